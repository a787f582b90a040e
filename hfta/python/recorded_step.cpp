#include <ATen/Parallel.h>
#include <ATen/autocast_mode.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <iterator>
#include <limits>
#include <optional>

#include "hfta/base/error.h"
#include "hfta/plan/choose.h"
#include "hfta/plan/measure.h"
#include "hfta/plan/throughput.h"
#include "hfta/python/convert.h"
#include "hfta/python/optimizers.h"
#include "hfta/python/recorded.h"
#include "hfta/train/plain_step.h"
#include "hfta/train/recorded_step.h"
#include "hfta/train/snapshot.h"

namespace hfta::python {
namespace {

/// Ctrl-C while plans are timed, which is no candidate's failure: no std::exception, so nobody takes it for one.
struct Interrupted {
  std::exception_ptr error;
};

/// Runs what is timed; asks for signals, which only Python code would notice.
template <typename Body>
auto interruptible(const Body& body) {
  try {
    const auto result = body();
    const py::gil_scoped_acquire lock;
    if (PyErr_CheckSignals() != 0) throw py::error_already_set();
    return result;
  } catch (py::error_already_set& error) {
    const py::gil_scoped_acquire lock;
    if (error.matches(PyExc_Exception)) throw;
    throw Interrupted{std::current_exception()};
  }
}

constexpr double kChoiceSeconds = 1;  // A choice ends after it: recording is to take less than 2 s in all.

/// How a plan was chosen. Where plain steps won, by how much.
std::string explained(const plan::SearchResult& result) {
  double recorded = std::numeric_limits<double>::infinity();
  for (const auto& timing : result.timings)
    if (timing.plan.recorded) recorded = std::min(recorded, timing.median_ms());
  std::string text;
  if (!result.plan.recorded)
    text = base::message("do not fuse here, one lane after the other is faster: the best recorded plan takes ", plan::short_number(recorded / result.step_ms), " times as long; ");
  return text + result.explanation + '\n' + plan::table(result);
}

/// A step that is recorded, replayed, and run plainly where that is what the plan says.
class Step : public Recorded {
 public:
  /// Without a plan the second call, whose function is known to record, chooses one.
  /// @param plain_fn the function as plain steps call it.
  Step(Recorded base, OptimizerPtr optimizer, const std::optional<Numbers>& max_norm, std::int64_t accumulate, const std::optional<plan::Plan>& plan, py::object plain_fn)
      : Recorded(std::move(base)), optimizer_(std::move(optimizer)), accumulate_(accumulate), to_choose_(!plan),
        plain_code_(code_of(std::move(plain_fn), code_->array_pointers())),
        recorded_(code_->arrays(), *optimizer_->optimizer, lane_step(code_), step_options(max_norm, accumulate), plan ? *plan : even_share(), options_),
        plain_(code_->arrays(), *optimizer_->optimizer, lane_step(plain_code_), step_options(max_norm, accumulate), plan::Plan{.recorded = false}) {
    if (plan) use(*plan);
  }

  py::object operator()(const py::args& args) {
    const Turn turn(code_->array_pointers(), "hfta.record: a recorded step");
    const Inputs inputs(arguments_of(args));
    prepare(inputs);
    const train::Batch batch(inputs.tensors);
    return nest(unlocked([&] { return run_together({&batch, 1}); }))[0];
  }

  /// Steps on batches in turn; neighbours that are nested alike are made together.
  py::list run(const std::vector<py::tuple>& given) {
    const Turn turn(code_->array_pointers(), "hfta.record: a recorded step");
    std::vector<Inputs> batches;
    for (const auto& batch : given) batches.emplace_back(arguments_of(batch));
    py::list results;
    for (std::size_t first = 0, end; first < batches.size(); first = end) {
      std::vector<train::Batch> together;
      for (end = first; end < batches.size() && nested_alike(batches[first], batches[end]); ++end) together.push_back(batches[end].tensors);
      prepare(batches[first]);
      for (const auto& result : nest(unlocked([&] { return run_together(together); }))) results.append(result);
    }
    return results;
  }

  plan::Plan plan() const { return runs_plainly_ ? plain_.plan() : recorded_.plan(); }
  /// @throws InvalidArgument where gradients of the other kind of steps wait for their update.
  void set_plan(const plan::Plan& plan) {
    HFTA_CHECK(runs_plainly_ != plan.recorded || pending() == 0, "hfta.record: expected no accumulated gradients when a plan turns recorded steps to plain ones or back, got those of ",
               pending(), " calls");
    to_choose_ = false;
    use(plan);
  }
  std::int64_t pending() const { return runs_plainly_ ? plain_.pending() : recorded_.pending(); }
  const std::string& choice() const { return choice_; }
  const std::vector<plan::Timing>& timings() const { return timings_; }
  std::string report() const { return runs_plainly_ ? "plain steps, one lane after the other\n" : recorded_.report(); }
  std::string print(std::int64_t repeats) { return recorded_.print(repeats); }

 private:
  static train::StepOptions step_options(const std::optional<Numbers>& max_norm, std::int64_t accumulate) {
    train::StepOptions options;
    if (max_norm) options.max_norm = per_lane_of(*max_norm);
    options.accumulate = accumulate;
    return options;
  }

  static bool nested_alike(const Inputs& a, const Inputs& b) { return bool(a.spec) == bool(b.spec) && (!a.spec || py::str(a.spec.get()).equal(py::str(b.spec.get()))); }

  plan::Plan even_share() const {
    const auto lanes = code_->arrays()[0]->lanes(), workers = std::min<std::int64_t>(at::get_num_threads(), lanes);
    return {.width = (lanes + workers - 1) / workers, .workers = workers};
  }

  /// Before the calls on these inputs, with the lock.
  void prepare(const Inputs& inputs) {
    plain_code_->use(inputs);
    if (!runs_plainly_) look(inputs);
  }

  py::list nest(const std::vector<train::StepOutput>& outputs) const {
    py::list all;
    for (const auto& output : outputs) all.append((runs_plainly_ ? plain_code_ : code_)->nest(output));
    return all;
  }

  void use(const plan::Plan& plan) {
    HFTA_CHECK(plan.recorded || plan.workers == 1, "hfta.record: expected 1 worker for plain steps (in Python lanes run one after the other), got ", plan.workers);
    runs_plainly_ = !plan.recorded;
    runs_plainly_ ? plain_.set_plan(plan) : recorded_.set_plan(plan);
  }

  std::vector<train::StepOutput> run_together(std::span<const train::Batch> batches) {
    std::vector<train::StepOutput> all;
    if (to_choose_ && !called_) {
      all.push_back(recorded_(batches[0]));
      called_ = true;
    }
    const auto rest = batches.subspan(all.size());
    if (rest.empty()) return all;
    if (to_choose_ && pending() == 0) choose(rest[0], static_cast<std::int64_t>(rest.size()));
    auto outputs = run_now(rest);
    std::move(outputs.begin(), outputs.end(), std::back_inserter(all));
    return all;
  }

  /// By the present plan.
  std::vector<train::StepOutput> run_now(std::span<const train::Batch> batches) {
    std::vector<train::StepOutput> outputs;
    if (!runs_plainly_) {
      recorded_.run(batches, outputs);
      return outputs;
    }
    at::autocast::clear_cache();  // casts of weights that autocast keeps are those of an earlier update
    for (const auto& batch : batches) outputs.push_back(plain_(batch));
    return outputs;
  }

  /// Milliseconds of an update by the plan, where so many steps are made together.
  double measure(std::span<const train::Input> inputs, const plan::Plan& plan, std::int64_t together) {
    using Clock = std::chrono::steady_clock;
    const auto updates = std::max<std::int64_t>(together / accumulate_, 1);
    const std::vector<train::Batch> batches(static_cast<std::size_t>(updates * accumulate_), train::Batch(inputs.begin(), inputs.end()));
    const auto measure_update = [&] {
      const auto before = Clock::now();
      run_now(batches);
      return std::chrono::duration<double, std::milli>(Clock::now() - before).count() / static_cast<double>(updates);
    };
    use(plan);
    measure_update();
    return plan::middle_ms(measure_update);
  }

  /// Times plans on copies of the state, one lane after the other by plain steps among them: the array is never slower than that.
  void choose(std::span<const train::Input> inputs, std::int64_t together) {
    to_choose_ = false;
    const auto arrays = code_->arrays();
    const plan::SearchSpace space{.lanes = arrays[0]->lanes(), .cores = at::get_num_threads(), .plain_workers = false, .steps = together, .device = arrays[0]->device().str()};
    plan::Plan chosen = recorded_.plan();
    {
      const train::Undisturbed undisturbed(arrays, *optimizer_->optimizer);
      try {
        auto subject = recorded_.subject(inputs);
        subject.key = "Python, " + subject.key;
        subject.complete = [&](const plan::Plan& found) {
          if (!found.recorded) return found;
          undisturbed.restore_now();
          interruptible([&] { return measure(inputs, found, together); });
          return recorded_.plan();
        };
        const auto result = plan::choose(space, subject, [&](const plan::Plan& plan) {
          undisturbed.restore_now();
          return interruptible([&] { return measure(inputs, plan, together); });
        }, {.budget_seconds = kChoiceSeconds});
        chosen = result.plan;
        choice_ = explained(result);
        timings_ = result.timings;
      } catch (const Interrupted& interrupted) {
        use(chosen);
        to_choose_ = true;
        std::rethrow_exception(interrupted.error);
      } catch (const Error&) {
        choice_ = "no other plan could be measured";
      }
    }
    use(chosen);
  }

  OptimizerPtr optimizer_;
  std::int64_t accumulate_;
  bool to_choose_, called_ = false, runs_plainly_ = false;
  std::string choice_;
  std::vector<plan::Timing> timings_;  // that it was chosen by
  std::shared_ptr<LaneCode> plain_code_;
  train::RecordedStep recorded_;
  train::PlainStep plain_;
};

}  // namespace

void bind_recorded_step(py::module_& m) {
  py::class_<Step>(m, "RecordedStep")
      .def(py::init<Recorded, OptimizerPtr, std::optional<Numbers>, std::int64_t, std::optional<plan::Plan>, py::object>(), py::arg("recorded"), py::arg("optimizer"),
           py::arg("max_norm"), py::arg("accumulate"), py::arg("plan"), py::arg("plain_fn"))
      .def("__call__", &Step::operator())
      .def("run", &Step::run, py::arg("batches"))
      .def_property("plan", &Step::plan, &Step::set_plan)
      .def_property_readonly("choice", &Step::choice)
      .def_property_readonly("timings",
                             [](const Step& s) {
                               std::vector<std::pair<plan::Plan, std::vector<double>>> all;
                               for (const auto& timing : s.timings()) all.emplace_back(timing.plan, timing.step_ms);
                               return all;
                             })
      .def_property_readonly("pending", &Step::pending)
      .def("report", &Step::report)
      .def("print", [](Step& s, std::int64_t repeats) { return unlocked([&] { return s.print(repeats); }); }, py::arg("repeats") = 0);
}

}  // namespace hfta::python
