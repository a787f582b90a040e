#include "hfta/python/steps.h"

#include <ATen/Parallel.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <chrono>
#include <iterator>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "hfta/base/error.h"
#include "hfta/base/threads.h"
#include "hfta/python/convert.h"
#include "hfta/python/interpreter.h"
#include "hfta/python/lane_code.h"
#include "hfta/python/optimizers.h"
#include "hfta/python/watch.h"
#include "hfta/plan/choose.h"
#include "hfta/plan/throughput.h"
#include "hfta/train/plain_step.h"
#include "hfta/train/recorded_backward.h"
#include "hfta/train/recorded_function.h"
#include "hfta/train/recorded_step.h"
#include "hfta/train/snapshot.h"

namespace hfta::python {
namespace {

constexpr double kChoiceSeconds = 1;      // A choice ends after it: recording is to take less than 2 s in all.
constexpr std::size_t kMostContexts = 8;  // A value that changes at every step would be recorded at every step.

/// Runs the library without the interpreter's lock. An operator's refusal that passed through Python comes out as what it is.
template <typename Body>
auto unlocked(Body&& body) {
  const RefusalScope refusal;
  const py::gil_scoped_release without_lock;
  try {
    return body();
  } catch (...) {
    RefusalScope::rethrow();
    throw;
  }
}

std::span<PyObject* const> arguments_of(const py::tuple& args) {
  return {&PyTuple_GET_ITEM(args.ptr(), 0), static_cast<std::size_t>(PyTuple_GET_SIZE(args.ptr()))};
}

std::shared_ptr<LaneCode> code_of(py::object fn, std::vector<ArrayPtr> arrays) { return std::make_shared<LaneCode>(std::move(fn), std::move(arrays)); }

train::LaneStep lane_step(const std::shared_ptr<LaneCode>& code) {
  return [code](std::int64_t lane, std::span<const at::Tensor> inputs) { return code->step(lane, inputs); };
}

train::LaneFunction lane_function(const std::shared_ptr<LaneCode>& code) {
  return [code](std::int64_t lane, std::span<const at::Tensor> inputs) { return code->evaluate(lane, inputs); };
}

/// In Python lanes run one after the other, with the caller's threads; casts of weights that autocast keeps are those of an earlier update.
base::Workers plain_worker() {
  at::autocast::clear_cache();
  return base::Workers(1, at::get_num_threads());
}

py::object train_step(std::vector<ArrayPtr> arrays, const OptimizerPtr& optimizer, py::object fn, const py::list& given, const std::optional<Numbers>& max_norm) {
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
  const auto code = code_of(std::move(fn), std::move(arrays));
  const Inputs inputs(std::span<PyObject* const>(PySequence_Fast_ITEMS(given.ptr()), given.size()));
  code->use(inputs);
  const auto results = unlocked([&] {
    auto worker = plain_worker();
    return train::evaluate(code->arrays(), lane_function(code), inputs.tensors, &worker);
  });
  return code->nest(results);
}

/// What recorded functions of all kinds have in common.
class Recorded {
 public:
  Recorded(py::object fn, std::vector<ArrayPtr> arrays, py::object collect, py::object name_captured, bool freeze_captured, std::size_t limit)
      : code_(code_of(std::move(fn), std::move(arrays))), watch_(std::make_shared<Watch>(std::move(collect))), name_captured_(std::move(name_captured)) {
    options_.freeze_captured = freeze_captured;
    options_.limit = limit;
    options_.context = [context = context_] { return *context; };
    options_.name_captured = [name = name_captured_](const at::Tensor& tensor) {
      const py::gil_scoped_acquire lock;
      return py::cast<std::string>(name.get()(tensor));
    };
  }

 protected:
  /// Before each call, with the lock.
  void look(const Inputs& inputs) {
    code_->use(inputs);
    *context_ = watch_->context();
    for (const auto device : {at::kCPU, at::kCUDA})
      if (at::autocast::is_autocast_enabled(device)) *context_ += base::message(' ', device, at::autocast::get_autocast_dtype(device));
    if (inputs.spec) *context_ += py::cast<std::string>(py::str(inputs.spec.get()));
    if (watch_->contexts() > kMostContexts)
      throw Unsupported(base::message("train::record: expected Python values that stay as they are, or change now and then, got ", watch_->contexts(),
                                      " different ones in as many calls", py::cast<std::string>(name_captured_.get()(py::none()))));
  }

  std::shared_ptr<std::string> context_ = std::make_shared<std::string>();
  std::shared_ptr<LaneCode> code_;
  std::shared_ptr<Watch> watch_;
  Held name_captured_;
  train::RecordOptions options_;
};

class Step : public Recorded {
 public:
  /// Without a plan the second call, whose function is known to record, chooses one.
  Step(Recorded base, OptimizerPtr optimizer, const std::optional<Numbers>& max_norm, std::int64_t accumulate, const std::optional<plan::Plan>& plan)
      : Recorded(std::move(base)), optimizer_(std::move(optimizer)), accumulate_(accumulate), to_choose_(!plan),
        step_(code_->arrays(), *optimizer_->optimizer, lane_step(code_), step_options(max_norm, accumulate), plan ? *plan : even_share(), options_) {}

  py::object operator()(const py::args& args) {
    const Inputs inputs(arguments_of(args));
    look(inputs);
    const auto output = unlocked([&] {
      if (to_choose_ && called_ && step_.pending() == 0) choose(inputs.tensors, 1);
      auto result = step_(inputs.tensors);
      called_ = true;
      return result;
    });
    return code_->nest(output);
  }

  /// Steps on batches in turn; neighbours that are nested alike are made together.
  py::list run(const std::vector<py::tuple>& given) {
    std::vector<Inputs> batches;
    for (const auto& batch : given) batches.emplace_back(arguments_of(batch));
    py::list results;
    for (std::size_t first = 0, end; first < batches.size(); first = end) {
      std::vector<train::Batch> together;
      for (end = first; end < batches.size() && nested_alike(batches[first], batches[end]); ++end) together.push_back(batches[end].tensors);
      look(batches[first]);
      for (const auto& output : unlocked([&] { return run_together(together); })) results.append(code_->nest(output));
    }
    return results;
  }

  void set_plan(plan::Plan plan) {
    to_choose_ = false;
    step_.set_plan(std::move(plan));
  }
  train::RecordedStep& step() { return step_; }
  const std::string& choice() const { return choice_; }

 private:
  static train::StepOptions step_options(const std::optional<Numbers>& max_norm, std::int64_t accumulate) {
    train::StepOptions options;
    if (max_norm) options.max_norm = per_lane_of(*max_norm);
    options.accumulate = accumulate;
    return options;
  }

  static bool nested_alike(const Inputs& a, const Inputs& b) { return bool(a.spec) == bool(b.spec) && (!a.spec || py::str(a.spec.get()).equal(py::str(b.spec.get()))); }

  std::vector<train::StepOutput> run_together(std::span<const train::Batch> batches) {
    std::vector<train::StepOutput> all, outputs;
    if (to_choose_ && !called_) {
      all.push_back(step_(batches[0]));
      called_ = true;
    }
    const auto rest = batches.subspan(all.size());
    if (rest.empty()) return all;
    if (to_choose_ && step_.pending() == 0) choose(rest[0], static_cast<std::int64_t>(rest.size()));
    step_.run(rest, outputs);
    std::move(outputs.begin(), outputs.end(), std::back_inserter(all));
    return all;
  }

  plan::Plan even_share() const {
    const auto lanes = code_->arrays()[0]->lanes(), workers = std::min<std::int64_t>(at::get_num_threads(), lanes);
    return {.width = (lanes + workers - 1) / workers, .workers = workers};
  }

  /// Milliseconds of an update by the plan, where so many steps are made together.
  double measure(std::span<const train::Input> inputs, const plan::Plan& plan, std::int64_t together) {
    using Clock = std::chrono::steady_clock;
    const auto updates = std::max<std::int64_t>(together / accumulate_, 1);
    const std::vector<train::Batch> batches(static_cast<std::size_t>(updates * accumulate_), train::Batch(inputs.begin(), inputs.end()));
    std::vector<train::StepOutput> outputs;
    const auto measure_update = [&] {
      const auto before = Clock::now();
      step_.run(batches, outputs);
      return std::chrono::duration<double, std::milli>(Clock::now() - before).count() / static_cast<double>(updates);
    };
    step_.set_plan(plan);
    measure_update();
    return plan::middle_ms(measure_update);
  }

  void choose(std::span<const train::Input> inputs, std::int64_t together) {
    to_choose_ = false;
    const auto arrays = code_->arrays();
    const auto before = step_.plan();
    const plan::SearchSpace space{.lanes = arrays[0]->lanes(), .cores = at::get_num_threads(), .plain = false, .steps = together, .device = arrays[0]->device().str()};
    plan::Plan chosen = before;
    {
      const train::Undisturbed undisturbed(arrays, *optimizer_->optimizer);
      try {
        auto subject = step_.subject(inputs);
        subject.key = "Python, " + subject.key;
        subject.complete = [&](const plan::Plan& found) {
          undisturbed.restore_now();
          measure(inputs, found, together);
          return step_.plan();
        };
        const auto result = plan::choose(space, subject, [&](const plan::Plan& plan) {
          undisturbed.restore_now();
          return measure(inputs, plan, together);
        }, {.budget_seconds = kChoiceSeconds});
        chosen = result.plan;
        choice_ = result.explanation + '\n' + plan::table(result);
      } catch (const Error&) {
        choice_ = "no other plan could be measured";
      }
    }
    step_.set_plan(chosen);
  }

  OptimizerPtr optimizer_;
  std::int64_t accumulate_;
  bool to_choose_, called_ = false;
  std::string choice_;
  train::RecordedStep step_;
};

class Backward : public Recorded {
 public:
  Backward(Recorded base, plan::Plan plan) : Recorded(std::move(base)), step_(code_->arrays(), lane_step(code_), std::move(plan), options_) {}

  py::object operator()(const py::args& args) {
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
  py::class_<plan::Plan>(m, "Plan")
      .def(py::init([](std::int64_t width, std::int64_t workers, int intra_op_threads, bool recorded, std::map<std::string, std::string> lowerings,
                       bool measures_lowerings) {
             return plan::Plan{.width = width, .workers = workers, .intra_op_threads = intra_op_threads, .recorded = recorded, .lowerings = std::move(lowerings),
                               .measures_lowerings = measures_lowerings};
           }),
           py::kw_only(), py::arg("width") = 1, py::arg("workers") = 1, py::arg("intra_op_threads") = 1, py::arg("recorded") = true,
           py::arg("lowerings") = std::map<std::string, std::string>(), py::arg("measures_lowerings") = true)
      .def_readwrite("width", &plan::Plan::width)
      .def_readwrite("workers", &plan::Plan::workers)
      .def_readwrite("intra_op_threads", &plan::Plan::intra_op_threads)
      .def_readwrite("recorded", &plan::Plan::recorded)
      .def_readwrite("lowerings", &plan::Plan::lowerings)
      .def_readwrite("measures_lowerings", &plan::Plan::measures_lowerings)
      .def("to_json", &plan::to_json)
      .def_static("from_json", [](const std::string& text) { return plan::from_json(text); }, py::arg("text"))
      .def("validate", &plan::validate, py::arg("lanes"))
      .def("fitted", &plan::fitted, py::arg("lanes"))
      .def("__eq__", [](const plan::Plan& a, const py::object& b) { return py::isinstance<plan::Plan>(b) && a == py::cast<const plan::Plan&>(b); })
      .def("__repr__", &describe)
      .def(py::pickle([](const plan::Plan& plan) { return plan::to_json(plan); }, [](const std::string& text) { return plan::from_json(text); }));
}

}  // namespace

void bind_steps(py::module_& m) {
  bind_plan(m);
  py::class_<PerLane>(m, "PerLane").def(py::init<at::Tensor>(), py::arg("tensor")).def_readonly("tensor", &PerLane::tensor);
  m.def("train_step", &train_step, py::arg("arrays"), py::arg("optimizer"), py::arg("fn"), py::arg("inputs"), py::arg("max_norm") = py::none());
  m.def("backward", &backward, py::arg("arrays"), py::arg("fn"), py::arg("inputs"));
  m.def("evaluate", &evaluate, py::arg("arrays"), py::arg("fn"), py::arg("inputs"));
  py::class_<Watch>(m, "Watch").def(py::init<py::object>(), py::arg("collect")).def("context", &Watch::context);
  py::class_<Recorded>(m, "Recorded")
      .def(py::init<py::object, std::vector<ArrayPtr>, py::object, py::object, bool, std::size_t>(), py::arg("fn"), py::arg("arrays"), py::arg("collect"),
           py::arg("name_captured"), py::arg("freeze_captured"), py::arg("limit"));
  py::class_<Step>(m, "RecordedStep")
      .def(py::init<Recorded, OptimizerPtr, std::optional<Numbers>, std::int64_t, std::optional<plan::Plan>>(), py::arg("recorded"), py::arg("optimizer"),
           py::arg("max_norm"), py::arg("accumulate"), py::arg("plan"))
      .def("__call__", &Step::operator())
      .def("run", &Step::run, py::arg("batches"))
      .def_property("plan", [](Step& s) { return s.step().plan(); }, [](Step& s, plan::Plan plan) { s.set_plan(std::move(plan)); })
      .def_property_readonly("choice", &Step::choice)
      .def_property_readonly("pending", [](Step& s) { return s.step().pending(); })
      .def("report", [](Step& s) { return s.step().report(); })
      .def("print", [](Step& s, std::int64_t repeats) { return unlocked([&] { return s.step().print(repeats); }); }, py::arg("repeats") = 0);
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
