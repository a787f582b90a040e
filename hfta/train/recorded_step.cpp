#include "hfta/train/recorded_step.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros_like.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <mutex>

#include "hfta/base/error.h"

namespace hfta::train {
namespace {

/// Takes the gradients off tensors for a scope: recording must neither add to them nor leave any.
class GradientsAside {
 public:
  explicit GradientsAside(std::vector<at::Tensor> tensors) : tensors_(std::move(tensors)) {
    for (auto& tensor : tensors_) {
      before_.push_back(tensor.grad());
      tensor.mutable_grad() = at::Tensor();
    }
  }
  ~GradientsAside() {
    for (std::size_t k = 0; k < tensors_.size(); ++k) tensors_[k].mutable_grad() = before_[k];
  }
  GradientsAside(const GradientsAside&) = delete;
  GradientsAside& operator=(const GradientsAside&) = delete;

 private:
  std::vector<at::Tensor> tensors_, before_;
};

}  // namespace

struct RecordedStep::State {
  std::vector<lanes::ArrayBase*> arrays;
  optim::Optimizer* optimizer;
  LaneStep step;
  StepOptions options;
  std::int64_t pending = 0;
  std::vector<double> max_norm;  // per lane; empty: no clip
  std::size_t extras = 0;
  std::mutex mutex;
  std::unique_ptr<RecordedFunction> function;

  lanes::ArrayBase& array() const { return optimizer->array(); }

  std::vector<at::Tensor> trainable(std::int64_t lane) const {
    std::vector<at::Tensor> tensors;
    for (const auto& parameter : array().lane_parameters(lane))
      if (parameter.requires_grad()) tensors.push_back(parameter);
    return tensors;
  }

  /// Loss, extras, and a gradient per parameter of the optimizer's array.
  std::vector<at::Tensor> run_lane(std::int64_t lane, std::span<const at::Tensor> inputs) {
    std::vector<at::Tensor> parameters;
    for (const auto* one : arrays)
      for (const auto& parameter : one->lane_parameters(lane)) parameters.push_back(parameter);
    const GradientsAside aside(std::move(parameters));
    const at::AutoGradMode grad_mode(true);
    const auto result = step(lane, inputs);
    check_loss(result.loss, lane, "train::record");
    if (arrays.size() == 1) {
      result.loss.backward();
    } else {
      torch::autograd::backward({result.loss}, {}, std::nullopt, false, trainable(lane));
    }
    std::vector<at::Tensor> results{result.loss.detach()};
    for (const auto& extra : result.extras) results.push_back(extra.detach());
    HFTA_CHECK(lane == 0 || result.extras.size() == extras, "train::record: expected ", extras, " extras as from lane 0, got ", result.extras.size(),
               " from lane ", lane);
    extras = result.extras.size();
    for (const auto& parameter : array().lane_parameters(lane)) results.push_back(parameter.grad());
    return results;
  }

  void update(std::int64_t first, std::int64_t width, std::span<const at::Tensor> gradients) const {
    if (!max_norm.empty()) optim::clip_gradients(gradients, std::vector<double>(max_norm.begin() + first, max_norm.begin() + first + width));
    optimizer->update(first, width, gradients);
  }

  /// Adds to the stacked gradients, which move with the lanes.
  void accumulate(std::int64_t first, std::int64_t width, std::span<const at::Tensor> gradients) {
    for (std::size_t k = 0; k < gradients.size(); ++k) {
      if (!gradients[k].defined()) continue;
      at::Tensor sum;
      {
        const std::lock_guard lock(mutex);
        auto parameter = array().parameters()[k].tensor;
        if (!parameter.grad().defined()) parameter.mutable_grad() = at::zeros_like(parameter.detach());
        sum = parameter.grad();
      }
      sum.narrow(0, first, width).add_(gradients[k]);
    }
  }

  void update_from_sums(std::int64_t first, std::int64_t width) const {
    std::vector<at::Tensor> gradients;
    for (const auto& parameter : array().parameters())
      gradients.push_back(parameter.tensor.grad().defined() ? parameter.tensor.grad().narrow(0, first, width) : at::Tensor());
    update(first, width, gradients);
  }

  void collect(StepOutput& output, std::int64_t first, std::int64_t width, std::span<const at::Tensor> results) {
    {
      const std::lock_guard lock(mutex);
      for (std::size_t k = 0; k <= extras; ++k) {
        auto& whole = k == 0 ? output.losses : output.extras[k - 1];
        if (whole.defined()) continue;
        auto sizes = results[k].sizes().vec();
        sizes[0] = array().lanes();
        whole = at::empty(sizes, results[k].options());
      }
    }
    for (std::size_t k = 0; k <= extras; ++k) (k == 0 ? output.losses : output.extras[k - 1]).narrow(0, first, width).copy_(results[k]);
  }
};

RecordedStep::RecordedStep(std::vector<lanes::ArrayBase*> arrays, optim::Optimizer& optimizer, LaneStep step, StepOptions options, plan::Plan plan,
                           RecordOptions recording)
    : state_(std::make_unique<State>()) {
  check_arrays(arrays, &optimizer, "train::record");
  HFTA_CHECK(options.accumulate >= 1, "train::record: expected to accumulate over at least 1 call, got ", options.accumulate);
  state_->arrays = arrays;
  state_->optimizer = &optimizer;
  state_->step = std::move(step);
  state_->options = std::move(options);
  auto* state = state_.get();
  state_->function = std::make_unique<RecordedFunction>(
      std::move(arrays), [state](std::int64_t lane, std::span<const at::Tensor> inputs) { return state->run_lane(lane, inputs); }, std::move(plan), recording);
}

RecordedStep::~RecordedStep() = default;
RecordedStep::RecordedStep(RecordedStep&&) noexcept = default;

StepOutput RecordedStep::operator()(std::span<const Input> inputs) {
  auto& state = *state_;
  check_inputs(inputs, *state.arrays[0], "train::record");
  if (state.options.max_norm) state.max_norm = state.options.max_norm->of_lanes(state.array().lanes(), "train::record: max_norm");
  StepOutput output;
  const bool sums = state.options.accumulate > 1, updates = state.pending + 1 >= state.options.accumulate;
  state.function->run(inputs, [&](std::int64_t first, std::int64_t width, std::span<const at::Tensor> results) {
    if (output.extras.size() != state.extras) {
      const std::lock_guard lock(state.mutex);
      output.extras.resize(state.extras);
    }
    state.collect(output, first, width, results);
    const auto gradients = results.subspan(1 + state.extras);
    if (sums) state.accumulate(first, width, gradients);
    if (!updates) return;
    sums ? state.update_from_sums(first, width) : state.update(first, width, gradients);
  });
  state.pending = updates ? 0 : state.pending + 1;
  if (sums && updates) state.array().zero_grad();
  return output;
}

const plan::Plan& RecordedStep::plan() const { return state_->function->plan(); }
void RecordedStep::set_plan(plan::Plan plan) { state_->function->set_plan(std::move(plan)); }
std::string RecordedStep::report() const { return state_->function->report(); }
std::string RecordedStep::print(std::int64_t repeats) { return state_->function->print(repeats); }
std::int64_t RecordedStep::activation_bytes() const { return state_->function->activation_bytes(); }
std::int64_t RecordedStep::pending() const { return state_->pending; }

}  // namespace hfta::train
