#include "hfta/train/recorded_step.h"

#include <iterator>

#include "hfta/base/error.h"
#include "hfta/train/lane_gradients.h"

namespace hfta::train {

struct RecordedStep::State {
  State(std::vector<lanes::ArrayBase*> of, optim::Optimizer& by, LaneStep step, StepOptions how, plan::Plan plan, RecordOptions recording)
      : arrays(std::move(of)), optimizer(by), options(std::move(how)), lane(arrays, {&by.array()}, std::move(step)),
        function(arrays, [this](std::int64_t index, std::span<const at::Tensor> inputs) { return lane.run(index, inputs); }, std::move(plan), std::move(recording)) {}

  std::vector<lanes::ArrayBase*> arrays;
  optim::Optimizer& optimizer;
  StepOptions options;
  LaneGradients lane;
  RecordedFunction function;
  std::int64_t pending = 0;
  std::vector<double> max_norm{};  // per lane; empty: no clip

  lanes::ArrayBase& array() const { return optimizer.array(); }

  bool sums() const { return options.accumulate > 1; }
  /// Whether the step on batch `batch` of a call ends with an update.
  bool updates(std::size_t batch) const { return (pending + static_cast<std::int64_t>(batch) + 1) % options.accumulate == 0; }

  void update(std::int64_t first, std::int64_t width, std::span<const at::Tensor> gradients, const optim::Hypers* hypers) const {
    if (!max_norm.empty()) optim::clip_gradients(gradients, std::vector<double>(max_norm.begin() + first, max_norm.begin() + first + width));
    optimizer.update(first, width, gradients, {.hypers = hypers, .rounds_freely = function.plan().measures_lowerings});
  }

  bool has_gradient(std::int64_t lane, std::size_t parameter) const { return array().lane_parameters(lane)[parameter].grad().defined(); }

  bool have_like_gradients(std::int64_t a, std::int64_t b) const {
    for (std::size_t p = 0; p < array().parameters().size(); ++p)
      if (has_gradient(a, p) != has_gradient(b, p)) return false;
    return true;
  }

  /// Lanes that have gradients of the same parameters together: what is frozen in some lanes is left alone there, by weight decay too.
  void update_from_sums(std::int64_t first, std::int64_t width, const optim::Hypers* hypers) const {
    for (auto from = first, end = first; from < first + width; from = end) {
      for (end = from + 1; end < first + width && have_like_gradients(from, end);) ++end;
      std::vector<at::Tensor> gradients;
      for (std::size_t p = 0; p < array().parameters().size(); ++p)
        gradients.push_back(has_gradient(from, p) ? array().parameters()[p].tensor.grad().narrow(0, from, end - from) : at::Tensor());
      update(from, end - from, gradients, hypers);
    }
    for (auto lane = first; lane < first + width; ++lane)  // the next sum begins anew
      for (const auto& parameter : array().lane_parameters(lane))
        if (parameter.grad().defined()) parameter.mutable_grad().reset();
  }

  /// Steps on the batches that are taken together; adds their outputs.
  void run(std::span<const Batch> batches, std::vector<StepOutput>& outputs, const std::function<void()>& after_update) {
    if (options.max_norm) max_norm = options.max_norm->of_lanes(array().lanes(), "train::record: max_norm");
    std::vector<StepOutput> now(batches.size());
    std::vector<optim::Hypers> hypers(batches.size());  // of each update, where they may change from one to the next
    const auto taken = function.run_together(
        batches,
        [&](std::size_t batch, std::int64_t first, std::int64_t width, std::span<const at::Tensor> results) {
          const auto* of_update = hypers[batch].empty() ? nullptr : &hypers[batch];
          lane.collect(now[batch], first, results);
          if (sums()) lane.accumulate(first, results);
          if (updates(batch)) sums() ? update_from_sums(first, width, of_update) : update(first, width, lane.gradients(results), of_update);
        },
        [&](std::size_t count) {
          if (sums()) pending == 0 ? array().zero_grad() : array().stack_gradients();
          for (std::size_t batch = 0; after_update && batch < count; ++batch) {
            if (!updates(batch)) continue;
            hypers[batch] = optimizer.hypers();
            after_update();
          }
        });
    if (sums() && updates(taken - 1)) array().zero_grad();
    pending = (pending + static_cast<std::int64_t>(taken)) % options.accumulate;
    outputs.insert(outputs.end(), std::make_move_iterator(now.begin()), std::make_move_iterator(now.begin() + static_cast<std::ptrdiff_t>(taken)));
  }
};

RecordedStep::RecordedStep(std::vector<lanes::ArrayBase*> arrays, optim::Optimizer& optimizer, LaneStep step, StepOptions options, plan::Plan plan,
                           RecordOptions recording) {
  check_arrays(arrays, &optimizer, "train::record");
  HFTA_CHECK(options.accumulate >= 1, "train::record: expected to accumulate over at least 1 call, got ", options.accumulate);
  state_ = std::make_unique<State>(std::move(arrays), optimizer, std::move(step), std::move(options), std::move(plan), std::move(recording));
}

RecordedStep::~RecordedStep() = default;
RecordedStep::RecordedStep(RecordedStep&&) noexcept = default;

StepOutput RecordedStep::operator()(std::span<const Input> inputs) {
  const Batch batch(inputs.begin(), inputs.end());
  std::vector<StepOutput> outputs;
  run({&batch, 1}, outputs);
  return std::move(outputs[0]);
}

void RecordedStep::run(std::span<const Batch> batches, std::vector<StepOutput>& outputs, const std::function<void()>& after_update) {
  outputs.clear();
  for (const auto& batch : batches) check_inputs(batch, *state_->arrays[0], "train::record");
  while (outputs.size() < batches.size()) state_->run(batches.subspan(outputs.size()), outputs, after_update);
}

plan::Subject RecordedStep::subject(std::span<const Input> inputs) {
  auto& state = *state_;
  check_inputs(inputs, *state.arrays[0], "train::record");
  const auto [work, structure] = state.function.work(inputs);
  const auto lanes = state.array().lanes();
  std::int64_t bytes = state.optimizer.state_bytes();
  for (const auto* array : state.arrays)
    for (const auto* stacks : {&array->parameters(), &array->buffers()})
      for (const auto& stack : *stacks) bytes += stack.stored_bytes();
  plan::Subject subject;
  subject.profile = plan::StepProfile{lanes, work.nodes, work.flops, work.moved_bytes, work.made_bytes, static_cast<double>(bytes) / static_cast<double>(lanes)};
  subject.key = base::message(state.optimizer.name(), ", ", state.optimizer.groups(), " parameter groups, accumulates ", state.options.accumulate, ", clips ",
                              state.options.max_norm.has_value(), '\n', structure);
  return subject;
}

const plan::Plan& RecordedStep::plan() const { return state_->function.plan(); }
void RecordedStep::set_plan(plan::Plan plan) { state_->function.set_plan(std::move(plan)); }
std::string RecordedStep::report() const { return state_->function.report(); }
std::string RecordedStep::print(std::int64_t repeats) { return state_->function.print(repeats); }
std::int64_t RecordedStep::activation_bytes() const { return state_->function.activation_bytes(); }
std::int64_t RecordedStep::pending() const { return state_->pending; }

}  // namespace hfta::train
