#include "hfta/train/lane_gradients.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <torch/csrc/autograd/autograd.h>

#include "hfta/base/error.h"
#include "hfta/lanes/rows.h"

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

std::vector<at::Tensor> LaneGradients::trainable(std::int64_t lane) const {
  std::vector<at::Tensor> tensors;
  for (const auto* array : wanted_)
    for (const auto& parameter : array->lane_parameters(lane))
      if (parameter.requires_grad()) tensors.push_back(parameter);
  return tensors;
}

std::vector<at::Tensor> LaneGradients::run(std::int64_t lane, std::span<const at::Tensor> inputs) {
  std::vector<at::Tensor> parameters;
  for (const auto* array : arrays_)
    for (const auto& parameter : array->lane_parameters(lane)) parameters.push_back(parameter);
  const GradientsAside aside(std::move(parameters));
  const at::AutoGradMode grad_mode(true);
  const auto result = step_(lane, inputs);
  check_loss(result.loss, lane, "train::record");
  if (wanted_.size() == arrays_.size()) {
    result.loss.backward();
  } else {
    torch::autograd::backward({result.loss}, {}, std::nullopt, false, trainable(lane));
  }
  std::vector<at::Tensor> results{result.loss.detach()};
  for (const auto& extra : result.extras) results.push_back(extra.detach());
  HFTA_CHECK(lane == 0 || result.extras.size() == extras_, "train::record: expected ", extras_, " extras as from lane 0, got ", result.extras.size(),
             " from lane ", lane);
  extras_ = result.extras.size();
  for (const auto* array : wanted_)
    for (const auto& parameter : array->lane_parameters(lane)) results.push_back(parameter.grad());
  return results;
}

void LaneGradients::collect(StepOutput& output, std::int64_t first, std::span<const at::Tensor> results) {
  const auto whole = [&](std::size_t k) -> at::Tensor& { return k == 0 ? output.losses : output.extras[k - 1]; };
  {
    const std::lock_guard lock(mutex_);
    output.extras.resize(extras_);
    for (std::size_t k = 0; k <= extras_; ++k) {
      if (whole(k).defined()) continue;
      auto sizes = results[k].sizes().vec();
      sizes[0] = arrays_[0]->lanes();
      whole(k) = at::empty(sizes, results[k].options());
    }
  }
  for (std::size_t k = 0; k <= extras_; ++k) whole(k).narrow(0, first, results[k].size(0)).copy_(results[k]);
}

at::Tensor LaneGradients::sum_of(const lanes::Stacked& stack, std::int64_t lanes) {
  const std::lock_guard lock(mutex_);
  auto parameter = stack.tensor;
  if (!parameter.grad().defined()) parameter.mutable_grad() = lanes::allocate_rows(lanes::row(parameter, 0), lanes, parameter.options());
  return parameter.grad();
}

void LaneGradients::accumulate(std::int64_t first, std::span<const at::Tensor> results) {
  auto gradient = gradients(results).begin();
  for (auto* array : wanted_)
    for (std::size_t p = 0; p < array->parameters().size(); ++p) {
      const auto& own = *gradient++;
      if (!own.defined()) continue;
      const auto sum = sum_of(array->parameters()[p], array->lanes());
      // Its own gradient tells that a lane has one: where a parameter is frozen in some lanes only, those rows are no gradients.
      const auto has_one = [&](std::int64_t lane) { return array->lane_parameters(lane)[p].grad().defined(); };
      const auto end = first + own.size(0);
      for (auto from = first, next = first; from < end; from = next) {
        const bool adds = has_one(from);
        for (next = from; next < end && has_one(next) == adds; ++next)
          if (!adds) array->lane_parameters(next)[p].mutable_grad() = lanes::row(sum, next);
        const auto rows = sum.narrow(0, from, next - from), more = own.narrow(0, from - first, next - from);
        adds ? rows.add_(more) : rows.copy_(more);
      }
    }
}

}  // namespace hfta::train
