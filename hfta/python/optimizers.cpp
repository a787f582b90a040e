#include "hfta/python/optimizers.h"

#include <map>
#include <set>
#include <string>

#include "hfta/base/error.h"
#include "hfta/optim/adadelta.h"
#include "hfta/optim/adam.h"
#include "hfta/optim/schedule.h"
#include "hfta/optim/sgd.h"
#include "hfta/python/convert.h"

namespace hfta::python {
namespace {

using Hypers = std::map<std::string, Numbers>;

std::map<std::string, optim::PerLane> per_lane_values(const Hypers& hypers) {
  std::map<std::string, optim::PerLane> values;
  for (const auto& [name, numbers] : hypers) values.emplace(name, per_lane_of(numbers));
  return values;
}

/// Names of the parameters and what differs for them.
using Group = std::pair<std::set<std::string>, Hypers>;

std::vector<optim::ParameterGroup> groups_of(const std::vector<Group>& given) {
  std::vector<optim::ParameterGroup> groups;
  for (const auto& [names, hypers] : given)
    groups.push_back({.takes = [names = names](const std::string& name, const at::Tensor&) { return names.contains(name); }, .hyper = per_lane_values(hypers)});
  return groups;
}

/// Takes the values by name; none may be left.
class Values {
 public:
  explicit Values(const Hypers& hypers) : hypers_(hypers) {}
  optim::PerLane take(const std::string& name) const { return per_lane_of(hypers_.at(name)); }

 private:
  const Hypers& hypers_;
};

template <typename Options>
Options adam_options(const Values& v, const std::map<std::string, bool>& flags, std::vector<optim::ParameterGroup> groups) {
  return {.lr = v.take("lr"), .beta1 = v.take("beta1"), .beta2 = v.take("beta2"), .eps = v.take("eps"), .weight_decay = v.take("weight_decay"),
          .amsgrad = flags.at("amsgrad"), .maximize = flags.at("maximize"), .groups = std::move(groups)};
}

OptimizerPtr make(const ArrayPtr& array, const std::string& name, const Hypers& hypers, const std::map<std::string, bool>& flags, const std::vector<Group>& given) {
  const Values v(hypers);
  auto groups = groups_of(given);
  std::unique_ptr<optim::Optimizer> optimizer;
  if (name == "SGD")
    optimizer = std::make_unique<optim::SGD>(*array, optim::SGDOptions{.lr = v.take("lr"), .momentum = v.take("momentum"), .dampening = v.take("dampening"),
                                                                       .weight_decay = v.take("weight_decay"), .nesterov = flags.at("nesterov"),
                                                                       .maximize = flags.at("maximize"), .groups = std::move(groups)});
  else if (name == "Adam") optimizer = std::make_unique<optim::Adam>(*array, adam_options<optim::AdamOptions>(v, flags, std::move(groups)));
  else if (name == "AdamW") optimizer = std::make_unique<optim::AdamW>(*array, adam_options<optim::AdamWOptions>(v, flags, std::move(groups)));
  else if (name == "Adadelta")
    optimizer = std::make_unique<optim::Adadelta>(*array, optim::AdadeltaOptions{.lr = v.take("lr"), .rho = v.take("rho"), .eps = v.take("eps"),
                                                                                 .weight_decay = v.take("weight_decay"), .maximize = flags.at("maximize"),
                                                                                 .groups = std::move(groups)});
  HFTA_CHECK(optimizer, "hfta.optim: expected one of SGD, Adam, AdamW, Adadelta, got \"", name, "\"");
  return std::make_shared<OptimizerOfArray>(OptimizerOfArray{array, std::move(optimizer)});
}

void set_in_group(OptimizerOfArray& o, const std::string& name, const Numbers& numbers, std::size_t group) {
  auto& optimizer = *o.optimizer;
  if (optimizer.groups() == 1) return optimizer.set(name, per_lane_of(numbers));
  const auto values = per_lane_of(numbers).of_lanes(o.array->lanes(), optimizer.name() + ": " + name);
  for (std::size_t lane = 0; lane < values.size(); ++lane) optimizer.set(name, static_cast<std::int64_t>(lane), values[lane], group);
}

std::vector<double> get_of_group(const OptimizerOfArray& o, const std::string& name, std::size_t group) {
  std::vector<double> values;
  for (std::int64_t lane = 0; lane < o.array->lanes(); ++lane) values.push_back(o.optimizer->get(name, lane, group));
  return values;
}

/// A schedule and the optimizer that it must not outlive.
struct ScheduleOfOptimizer {
  OptimizerPtr optimizer;
  std::unique_ptr<optim::Schedule> schedule;
};

optim::SchedulePart part_of(const std::string& name, const Hypers& hypers) {
  const Values v(hypers);
  if (name == "StepLR") return optim::StepLR{.step_size = v.take("step_size"), .gamma = v.take("gamma")};
  if (name == "CosineAnnealingLR") return optim::CosineAnnealingLR{.t_max = v.take("T_max"), .eta_min = v.take("eta_min")};
  HFTA_CHECK(name == "LinearLR", "hfta.optim.lr_scheduler: expected one of StepLR, CosineAnnealingLR, LinearLR, got \"", name, "\"");
  return optim::LinearLR{.start_factor = v.take("start_factor"), .end_factor = v.take("end_factor"), .total_iters = v.take("total_iters")};
}

std::shared_ptr<ScheduleOfOptimizer> make_schedule(const OptimizerPtr& optimizer, const std::vector<std::pair<std::string, Hypers>>& given, const std::vector<Numbers>& milestones) {
  std::vector<optim::SchedulePart> parts;
  std::vector<optim::PerLane> starts;
  for (const auto& [name, hypers] : given) parts.push_back(part_of(name, hypers));
  for (const auto& numbers : milestones) starts.push_back(per_lane_of(numbers));
  return std::make_shared<ScheduleOfOptimizer>(ScheduleOfOptimizer{optimizer, std::make_unique<optim::Schedule>(*optimizer->optimizer, std::move(parts), starts)});
}

void bind_schedule(py::module_& m) {
  py::class_<ScheduleOfOptimizer, std::shared_ptr<ScheduleOfOptimizer>>(m, "Schedule")
      .def(py::init(&make_schedule), py::arg("optimizer"), py::arg("parts"), py::arg("milestones"))
      .def("step", [](ScheduleOfOptimizer& s) { s.schedule->step(); })
      .def("step_lane", [](ScheduleOfOptimizer& s, std::int64_t lane) { s.schedule->step(lane); }, py::arg("lane"))
      .def("steps", [](const ScheduleOfOptimizer& s, std::int64_t lane) { return s.schedule->steps(lane); }, py::arg("lane"))
      .def("restart", [](ScheduleOfOptimizer& s, std::int64_t lane) { s.schedule->restart(lane); }, py::arg("lane"))
      .def("lane_state_dict", [](const ScheduleOfOptimizer& s, std::int64_t lane) { return to_python(s.schedule->lane_state_dict(lane)); }, py::arg("lane"))
      .def("load_lane_state_dict", [](ScheduleOfOptimizer& s, std::int64_t lane, const py::object& state) { s.schedule->load_lane_state_dict(lane, from_python(state)); },
           py::arg("lane"), py::arg("state"));
}

}  // namespace

void bind_optimizers(py::module_& m) {
  const auto unlocked = py::call_guard<py::gil_scoped_release>();
  py::class_<OptimizerOfArray, OptimizerPtr>(m, "Optimizer")
      .def(py::init(&make), py::arg("array"), py::arg("name"), py::arg("hypers"), py::arg("flags"), py::arg("groups"))
      .def_readonly("array", &OptimizerOfArray::array)
      .def("get", &get_of_group, py::arg("name"), py::arg("group"))
      .def("set", &set_in_group, py::arg("name"), py::arg("value"), py::arg("group"))
      .def("hyper_names", [](const OptimizerOfArray& o) { return o.optimizer->hyper_names(); })
      .def("groups", [](const OptimizerOfArray& o) { return o.optimizer->groups(); })
      .def("group_of_parameters", [](const OptimizerOfArray& o) { return o.optimizer->group_of_parameters(); })
      .def("steps", [](const OptimizerOfArray& o, std::int64_t lane) { return o.optimizer->steps(lane); }, py::arg("lane"))
      .def("step", [](OptimizerOfArray& o) { o.optimizer->step(); }, unlocked)
      .def("state_bytes", [](const OptimizerOfArray& o) { return o.optimizer->state_bytes(); })
      .def("lane_state_dict", [](const OptimizerOfArray& o, std::int64_t lane) { return to_python(o.optimizer->lane_state_dict(lane)); }, py::arg("lane"))
      .def("load_lane_state_dict", [](OptimizerOfArray& o, std::int64_t lane, const py::object& state) { o.optimizer->load_lane_state_dict(lane, from_python(state)); },
           py::arg("lane"), py::arg("state"));
  bind_schedule(m);
}

}  // namespace hfta::python
