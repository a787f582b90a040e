#include "hfta/python/tuning.h"

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "hfta/base/error.h"
#include "hfta/tune/export.h"
#include "hfta/tune/ledger.h"
#include "hfta/tune/resume.h"
#include "hfta/tune/sampler.h"
#include "hfta/tune/study.h"
#include "hfta/tune/tuner.h"

namespace hfta::python {
namespace {

namespace py = pybind11;
using Unlocked = py::call_guard<py::gil_scoped_release>;

/// A distribution as one class of Python.
struct AnyDistribution {
  tune::Distribution distribution;
};

/// A study's lock that can be given back before the object goes.
struct HeldLock {
  std::optional<tune::StudyLock> lock;
  const tune::StudyLock& get() const {
    HFTA_CHECK(lock, "hfta.Study: expected a lock that is held, got one that was given back");
    return *lock;
  }
};

using Entry = std::tuple<std::string, AnyDistribution, std::optional<std::pair<std::string, std::vector<tune::Value>>>>;

tune::Space space_of(const std::vector<Entry>& entries) {
  std::vector<tune::Dimension> dimensions;
  for (const auto& [name, any, when] : entries) {
    tune::Dimension dimension{.name = name, .distribution = any.distribution};
    if (when) dimension.when = tune::Condition{.parameter = when->first, .values = when->second};
    dimensions.push_back(std::move(dimension));
  }
  return tune::Space(std::move(dimensions));
}

py::dict parameters_of(const tune::Trial& trial) {
  py::dict values;
  for (const auto& parameter : trial.parameters) values[py::str(parameter.name)] = py::cast(parameter.value());
  return values;
}

py::dict attributes_of(const std::map<std::string, std::string>& attributes) {
  const auto loads = py::module_::import("json").attr("loads");
  py::dict values;
  for (const auto& [key, json] : attributes) values[py::str(key)] = loads(json);
  return values;
}

void bind_space(py::module_& m) {
  py::class_<AnyDistribution>(m, "Distribution")
      .def("__repr__", [](const AnyDistribution& d) { return "hfta." + tune::describe(d.distribution); })
      .def("__eq__", [](const AnyDistribution& a, const AnyDistribution& b) { return a.distribution == b.distribution; })
      .def_property_readonly("json", [](const AnyDistribution& d) { return tune::to_json(d.distribution); });
  m.def(
      "choice", [](std::vector<tune::Value> values) { return AnyDistribution{tune::choice(std::move(values))}; }, py::arg("values"));
  m.def(
      "uniform", [](double low, double high) { return AnyDistribution{tune::uniform(low, high)}; }, py::arg("low"), py::arg("high"));
  m.def(
      "loguniform", [](double low, double high) { return AnyDistribution{tune::loguniform(low, high)}; }, py::arg("low"), py::arg("high"));
  m.def(
      "quniform", [](double low, double high, double step) { return AnyDistribution{tune::quniform(low, high, step)}; }, py::arg("low"),
      py::arg("high"), py::arg("step"));
  m.def(
      "integer", [](std::int64_t low, std::int64_t high, std::int64_t step) { return AnyDistribution{tune::integer(low, high, step)}; },
      py::arg("low"), py::arg("high"), py::arg("step"));
  m.def(
      "logint", [](std::int64_t low, std::int64_t high) { return AnyDistribution{tune::logint(low, high)}; }, py::arg("low"),
      py::arg("high"));
  py::class_<tune::Space>(m, "Space")
      .def(py::init(&space_of), py::arg("entries"))
      .def_property_readonly("points", &tune::Space::points)
      .def("to_json", &tune::Space::to_json);
  py::class_<tune::Sampler>(m, "Sampler")
      .def_property_readonly("name", &tune::Sampler::name)
      .def(
          "size",
          [](const tune::Sampler& sampler, const tune::Space& space) -> std::optional<std::uint64_t> {
            if (const auto* grid = dynamic_cast<const tune::GridSampler*>(&sampler)) return grid->size(space);
            return space.points();
          },
          py::arg("space"));
  m.def("make_sampler", &tune::make_sampler, py::arg("name"));
}

void bind_trial(py::module_& m) {
  py::class_<tune::Trial>(m, "Trial", "A trial as it stands in the study: plain data.")
      .def_readonly("number", &tune::Trial::number, "From 0 on.")
      .def_property_readonly("state", [](const tune::Trial& trial) { return std::string(tune::to_text(trial.state)); }, "Optuna's name of it, such as \"COMPLETE\".")
      .def_property_readonly("parameters", &parameters_of, "Values by name.")
      .def_property_readonly("value",
                             [](const tune::Trial& trial) { return trial.values.empty() ? std::nullopt : std::optional(trial.values[0]); },
                             "The tuned metric's last value; None where the trial has not completed.")
      .def_readonly("values", &tune::Trial::values, "The same as a list, as Optuna has it.")
      .def_readonly("intermediate", &tune::Trial::intermediate, "The tuned metric by epoch, from 1 on.")
      .def_property_readonly("user_attributes", [](const tune::Trial& trial) { return attributes_of(trial.user_attributes); },
                             "What else is told of it; hfta's own begin with \"hfta:\".")
      .def("__repr__", [](const tune::Trial& trial) {
        return base::message("hfta.Trial(", trial.number, ", ", tune::to_text(trial.state), ", ",
                             py::cast<std::string>(py::repr(parameters_of(trial))),
                             trial.values.empty() ? std::string() : base::message(", value=", trial.values[0]), ")");
      });
}

std::unique_ptr<tune::Study> create(const std::string& path, const std::string& name, bool maximize) {
  return std::make_unique<tune::Study>(
      tune::Study::create(path, {.name = name, .directions = {maximize ? tune::Direction::Maximize : tune::Direction::Minimize}}));
}

std::string finish(tune::Study& study, std::int64_t trial, const std::string& state, const std::vector<double>& values,
                   const std::string& reason) {
  return std::string(tune::to_text(study.finish(trial, tune::trial_state(state), values, reason)));
}

void report(tune::Study& study, const std::vector<std::tuple<std::int64_t, std::int64_t, double>>& given) {
  std::vector<tune::Report> reports;
  for (const auto& [trial, step, value] : given) reports.push_back({trial, step, value});
  study.report(reports);
}

void bind_study(py::module_& m) {
  py::class_<HeldLock>(m, "StudyLock")
      .def(py::init([](const std::string& study) { return HeldLock{std::optional<tune::StudyLock>(std::in_place, study)}; }),
           py::arg("study"))
      .def("close", [](HeldLock& held) { held.lock.reset(); });
  py::class_<tune::Study>(m, "Study")
      .def_static("create", &create, Unlocked(), py::arg("path"), py::arg("name"), py::arg("maximize"))
      .def_static(
          "read",
          [](const std::string& path, const std::string& name) { return std::make_unique<tune::Study>(tune::Study::read(path, name)); },
          Unlocked(), py::arg("path"), py::arg("name"))
      .def_property_readonly("path", &tune::Study::path)
      .def_property_readonly("name", &tune::Study::name)
      .def_property_readonly("maximize", [](const tune::Study& study) { return study.directions().front() == tune::Direction::Maximize; })
      .def("trials", &tune::Study::trials, Unlocked())
      .def("trial", &tune::Study::trial, Unlocked(), py::arg("number"))
      .def("best", &tune::Study::best, Unlocked())
      .def("adopt", &tune::Study::adopt, Unlocked(), py::arg("space"), py::arg("new_space"))
      .def("ask", &tune::Study::ask, Unlocked(), py::arg("space"), py::arg("sampler"), py::arg("seed"), py::arg("count"))
      .def("report", &report, Unlocked(), py::arg("reports"))
      .def("finish", &finish, Unlocked(), py::arg("trial"), py::arg("state"), py::arg("values"), py::arg("reason"))
      .def(
          "reclaim",
          [](tune::Study& study, const HeldLock& lock, const tune::Space& space) {
            return study.reclaim(lock.get(), space, [](const tune::Trial&) { return tune::Reclaim::Continue; });
          },
          Unlocked(), py::arg("lock"), py::arg("space"))
      .def(
          "set_trial_attribute",
          [](tune::Study& study, std::int64_t trial, const std::string& key, const std::string& json) {
            study.set_user_attribute(trial, key, json);
          },
          Unlocked(), py::arg("trial"), py::arg("key"), py::arg("json"))
      .def(
          "set_user_attribute",
          [](tune::Study& study, const std::string& key, const std::string& json) { study.set_user_attribute(key, json); }, Unlocked(),
          py::arg("key"), py::arg("json"))
      .def("user_attributes", [](const tune::Study& study) { return attributes_of(study.user_attributes()); })
      .def(
          "export_json", [](const tune::Study& study) { return tune::export_json(study); }, Unlocked());
  m.def("this_process", &tune::this_process);
  m.def(
      "plan_trials",
      [](std::int64_t existing, std::int64_t total, std::optional<std::uint64_t> points) {
        const auto plan = tune::plan_trials(existing, {.total = total, .points = points});
        return std::make_pair(plan.create, plan.summary);
      },
      py::arg("existing"), py::arg("total"), py::arg("points"));
}

void bind_ledger(py::module_& m) {
  m.def(
      "arrays_of",
      [](const std::vector<tune::Trial>& trials, const std::vector<std::string>& kinds, std::int64_t lanes) {
        std::map<std::int64_t, std::string> by_number;
        for (std::size_t i = 0; i < trials.size(); ++i) by_number[trials[i].number] = kinds.at(i);
        return tune::arrays_of(
            trials, [&](const tune::Trial& trial) { return by_number.at(trial.number); }, lanes);
      },
      py::arg("trials"), py::arg("kinds"), py::arg("lanes"));
  py::class_<tune::Ledger>(m, "Ledger")
      .def(py::init<tune::Study&>(), py::keep_alive<1, 2>(), py::arg("study"))
      .def_property_readonly("arrays", &tune::Ledger::arrays)
      .def("add", &tune::Ledger::add, Unlocked(), py::arg("arrays"))
      .def("has", &tune::Ledger::has, py::arg("trial"))
      .def(
          "plan",
          [](const tune::Ledger& ledger, std::size_t array) {
            const auto found = ledger.plan(array);
            return found ? std::optional(found->plan) : std::nullopt;
          },
          Unlocked(), py::arg("array"))
      .def(
          "set_plan",
          [](tune::Ledger& ledger, std::size_t array, const plan::Plan& plan, const std::string& explanation, const std::string& report) {
            ledger.set_plan(array, {.plan = plan, .explanation = explanation, .report = report});
          },
          Unlocked(), py::arg("array"), py::arg("plan"), py::arg("explanation"), py::arg("report"));
}

}  // namespace

void bind_tuning(py::module_& m) {
  bind_space(m);
  bind_trial(m);
  bind_study(m);
  bind_ledger(m);
}

}  // namespace hfta::python
