#include "hfta/python/steps.h"

#include <ATen/Parallel.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "hfta/base/error.h"
#include "hfta/base/threads.h"
#include "hfta/python/convert.h"
#include "hfta/python/lane_code.h"
#include "hfta/python/optimizers.h"
#include "hfta/python/recorded.h"
#include "hfta/train/plain_step.h"
#include "hfta/train/recorded_backward.h"
#include "hfta/train/recorded_function.h"

namespace hfta::python {
namespace {

train::LaneFunction lane_function(const std::shared_ptr<LaneCode>& code) {
  return [code](std::int64_t lane, std::span<const at::Tensor> inputs) { return code->evaluate(lane, inputs); };
}

/// In Python lanes run one after the other, with the caller's threads; casts of weights that autocast keeps are those of an earlier update.
base::Workers plain_worker() {
  at::autocast::clear_cache();
  return base::Workers(1, at::get_num_threads());
}

py::object train_step(std::vector<ArrayPtr> arrays, const OptimizerPtr& optimizer, py::object fn, const py::list& given, const std::optional<Numbers>& max_norm) {
  const Turn turn(arrays, "hfta.train_step");
  const auto code = code_of(std::move(fn), std::move(arrays));
  const Inputs inputs(std::span<PyObject* const>(PySequence_Fast_ITEMS(given.ptr()), given.size()));
  code->use(inputs);
  train::StepOptions options;
  if (max_norm) options.max_norm = per_lane_of(*max_norm);
  const auto output = unlocked([&] {
    auto worker = plain_worker();
    return train::train_step(code->arrays(), *optimizer->optimizer, lane_step(code), inputs.tensors, options, &worker);
  });
  return code->nest(output);
}

py::object backward(std::vector<ArrayPtr> arrays, py::object fn, const py::list& given) {
  const Turn turn(arrays, "hfta.backward");
  const auto code = code_of(std::move(fn), std::move(arrays));
  const Inputs inputs(std::span<PyObject* const>(PySequence_Fast_ITEMS(given.ptr()), given.size()));
  code->use(inputs);
  const auto output = unlocked([&] {
    auto worker = plain_worker();
    return train::backward(code->arrays(), lane_step(code), inputs.tensors, &worker);
  });
  return code->nest(output);
}

py::object evaluate(std::vector<ArrayPtr> arrays, py::object fn, const py::list& given) {
  const Turn turn(arrays);
  const auto code = code_of(std::move(fn), std::move(arrays));
  const Inputs inputs(std::span<PyObject* const>(PySequence_Fast_ITEMS(given.ptr()), given.size()));
  code->use(inputs);
  const auto results = unlocked([&] {
    auto worker = plain_worker();
    return train::evaluate(code->arrays(), lane_function(code), inputs.tensors, &worker);
  });
  return code->nest(results);
}

class Backward : public Recorded {
 public:
  Backward(Recorded base, plan::Plan plan) : Recorded(std::move(base)), step_(code_->arrays(), lane_step(code_), std::move(plan), options_) {}

  py::object operator()(const py::args& args) {
    const Turn turn(code_->array_pointers(), "hfta.backward");
    const Inputs inputs(arguments_of(args));
    look(inputs);
    const auto output = unlocked([&] { return step_(inputs.tensors); });
    return code_->nest(output);
  }
  train::RecordedBackward& step() { return step_; }

 private:
  train::RecordedBackward step_;
};

class Evaluation : public Recorded {
 public:
  Evaluation(Recorded base, plan::Plan plan)
      : Recorded(std::move(base)),
        function_(code_->arrays(),
                  [code = code_](std::int64_t lane, std::span<const at::Tensor> inputs) {
                    const at::NoGradGuard no_grad;
                    return code->evaluate(lane, inputs);
                  },
                  std::move(plan), options_) {}

  py::object operator()(const py::args& args) {
    const Turn turn(code_->array_pointers(), "hfta.evaluate: recorded");
    const Inputs inputs(arguments_of(args));
    look(inputs);
    const auto lanes = code_->arrays()[0]->lanes();
    std::vector<at::Tensor> whole;
    std::mutex mutex;
    unlocked([&] {
      train::check_inputs(inputs.tensors, *code_->arrays()[0], "train::evaluate");
      function_.run(inputs.tensors, [&](std::int64_t first, std::int64_t width, std::span<const at::Tensor> results) {
        {
          const std::lock_guard lock(mutex);
          for (std::size_t k = whole.size(); k < results.size(); ++k) {
            auto sizes = results[k].sizes().vec();
            sizes[0] = lanes;
            whole.push_back(at::empty(sizes, results[k].options()));
          }
        }
        for (std::size_t k = 0; k < results.size(); ++k) whole[k].narrow(0, first, width).copy_(results[k]);
      });
    });
    return code_->nest(whole);
  }
  train::RecordedFunction& function() { return function_; }

 private:
  train::RecordedFunction function_;
};

std::string describe(const plan::Plan& plan) { return "hfta.Plan(" + plan::describe(plan) + ")"; }

void bind_plan(py::module_& m) {
  py::class_<plan::Plan>(m, "Plan",
                         "How an array is run: group width, workers (groups that run at once) and threads of each; chosen by measurement, kept with the run.\n\n"
                         "Ways to compute an operator that `lowerings` does not name are timed at the first step, so another run may round otherwise; with\n"
                         "`measures_lowerings=False` each operator takes its first way, and the same plan gives the same bits.\n\n"
                         "Example:\n    >>> step = array.record(adam, loss_of, plan=hfta.Plan(width=8, workers=2))\n")
      .def(py::init([](std::int64_t width, std::int64_t workers, int intra_op_threads, bool recorded, std::map<std::string, std::string> lowerings,
                       bool measures_lowerings) {
             return plan::Plan{.width = width, .workers = workers, .intra_op_threads = intra_op_threads, .recorded = recorded, .lowerings = std::move(lowerings),
                               .measures_lowerings = measures_lowerings};
           }),
           py::kw_only(), py::arg("width") = 1, py::arg("workers") = 1, py::arg("intra_op_threads") = 1, py::arg("recorded") = true,
           py::arg("lowerings") = std::map<std::string, std::string>(), py::arg("measures_lowerings") = true)
      .def_readwrite("width", &plan::Plan::width, "Lanes that run as one program.")
      .def_readwrite("workers", &plan::Plan::workers, "Groups that run at once.")
      .def_readwrite("intra_op_threads", &plan::Plan::intra_op_threads, "Threads of each worker.")
      .def_readwrite("recorded", &plan::Plan::recorded, "False: plain steps, one lane after the other.")
      .def_readwrite("lowerings", &plan::Plan::lowerings, "The way that each operator is computed, by the operator and its shapes.")
      .def_readwrite("measures_lowerings", &plan::Plan::measures_lowerings, "Whether ways that `lowerings` does not name are timed.")
      .def("to_json", &plan::to_json, "The plan as text.")
      .def_static("from_json", [](const std::string& text) { return plan::from_json(text); }, py::arg("text"), "The way back.")
      .def("validate", &plan::validate, py::arg("lanes"), "Refuses a plan that does not fit so many lanes (InvalidArgument).")
      .def("fitted", &plan::fitted, py::arg("lanes"), "The plan for so many lanes: no group wider than the array, no worker without a group.")
      .def("__eq__", [](const plan::Plan& a, const py::object& b) { return py::isinstance<plan::Plan>(b) && a == py::cast<const plan::Plan&>(b); })
      .def("__repr__", &describe)
      .def(py::pickle([](const plan::Plan& plan) { return plan::to_json(plan); }, [](const std::string& text) { return plan::from_json(text); }));
}

}  // namespace

void bind_steps(py::module_& m) {
  bind_plan(m);
  py::class_<PerLane>(m, "PerLane", "Marks an input with a leading lane axis; see `hfta.per_lane`.")
      .def(py::init<at::Tensor>(), py::arg("tensor"))
      .def_readonly("tensor", &PerLane::tensor, "`[lanes, ...]`");
  py::class_<Alone>(m, "Alone")
      .def(py::init<std::vector<ArrayPtr>, std::string>(), py::arg("arrays"), py::arg("who"))
      .def("__enter__", &Alone::enter)
      .def("__exit__", [](Alone& alone, const py::args&) { alone.exit(); });
  m.def("check_between_steps", &Turn::check_between_steps, py::arg("who"));
  m.def("train_step", &train_step, py::arg("arrays"), py::arg("optimizer"), py::arg("fn"), py::arg("inputs"), py::arg("max_norm") = py::none());
  m.def("backward", &backward, py::arg("arrays"), py::arg("fn"), py::arg("inputs"));
  m.def("evaluate", &evaluate, py::arg("arrays"), py::arg("fn"), py::arg("inputs"));
  py::class_<Watch>(m, "Watch").def(py::init<py::object>(), py::arg("collect")).def("context", &Watch::context);
  py::class_<Recorded>(m, "Recorded")
      .def(py::init<py::object, std::vector<ArrayPtr>, py::object, py::object, bool, std::size_t>(), py::arg("fn"), py::arg("arrays"), py::arg("collect"),
           py::arg("name_captured"), py::arg("freeze_captured"), py::arg("limit"));
  bind_recorded_step(m);
  py::class_<Backward>(m, "RecordedBackward")
      .def(py::init<Recorded, plan::Plan>(), py::arg("recorded"), py::arg("plan"))
      .def("__call__", &Backward::operator())
      .def_property("plan", [](Backward& b) { return b.step().plan(); }, [](Backward& b, plan::Plan plan) { b.step().set_plan(std::move(plan)); })
      .def("report", [](Backward& b) { return b.step().report(); });
  py::class_<Evaluation>(m, "RecordedEvaluation")
      .def(py::init<Recorded, plan::Plan>(), py::arg("recorded"), py::arg("plan"))
      .def("__call__", &Evaluation::operator())
      .def_property("plan", [](Evaluation& e) { return e.function().plan(); }, [](Evaluation& e, plan::Plan plan) { e.function().set_plan(std::move(plan)); })
      .def("report", [](Evaluation& e) { return e.function().report(); });
}

}  // namespace hfta::python
