#include "hfta/ops/batch_norm.h"

#include <ATen/ops/add.h>
#include <ATen/ops/native_batch_norm.h>
#include <ATen/ops/native_batch_norm_backward.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>

#include "hfta/ops/arguments.h"
#include "hfta/ops/batch_norm_fused.h"
#include "hfta/ops/layout.h"

namespace hfta::ops {
namespace {

bool all_equal(const std::vector<double>& numbers) {
  return std::all_of(numbers.begin(), numbers.end(), [&](double number) { return number == numbers.front(); });
}

std::optional<at::Tensor> folded(const std::optional<LaneTensor>& channels, std::int64_t lanes) {
  return channels ? std::optional(fold_lanes(*channels, lanes, 0)) : std::nullopt;
}

std::optional<at::Tensor> of_lane(const std::optional<LaneTensor>& value, std::int64_t lane) {
  return value ? std::optional(lane_of(*value, lane)) : std::nullopt;
}

/// Running statistics of all lanes as one vector for the operator, and back into the lanes' rows.
class Running {
 public:
  Running(const std::optional<LaneTensor>& rows, const BatchNormOptions& options, std::int64_t lanes) : rows_(rows), options_(options), lanes_(lanes) {
    if (!rows) return;
    blended_ = options.training && !all_equal(options.momentum);
    vector_ = fold_lanes(*rows, lanes, 0);
    // With a momentum per lane the operator writes the batch's own statistics, which are mixed in afterwards.
    if (blended_) vector_ = at::zeros_like(vector_);
  }

  std::optional<at::Tensor> vector() const { return rows_ ? std::optional(vector_) : std::nullopt; }

  void write_back() {
    if (!rows_ || !options_.training || rows_->is_shared()) return;
    const auto rows = lanes_first(*rows_, lanes_), fresh = vector_.unflatten(0, {lanes_, -1});
    if (blended_) {
      auto keep = options_.momentum;
      for (auto& number : keep) number = 1 - number;
      const auto as_tensor = [&](const std::vector<double>& numbers) { return number_tensor(numbers, 2, rows.scalar_type(), rows.device()); };
      rows.mul_(as_tensor(keep)).add_(fresh.mul(as_tensor(options_.momentum)));
    } else if (!folds_as_view(*rows_, 0)) {
      rows.copy_(fresh);
    }
  }

 private:
  std::optional<LaneTensor> rows_;
  const BatchNormOptions& options_;
  std::int64_t lanes_;
  at::Tensor vector_;
  bool blended_ = false;
};

/// Folding copies unless the lane axis lies beside the channels; that pays only where the lanes are small.
bool folding_pays(const LaneTensor& input, std::int64_t lanes) {
  constexpr std::int64_t kSmall = 1 << 14;
  return folds_as_view(input, 1) || (!input.is_shared() && input.tensor.numel() / lanes <= kSmall);
}

std::optional<BatchNormOutput> forward_folded(const LaneTensor& input, const BatchNormState& state, const BatchNormOptions& options, std::int64_t lanes) {
  if (!all_equal(options.eps) || !folding_pays(input, lanes)) return std::nullopt;
  Running mean(state.running_mean, options, lanes), var(state.running_var, options, lanes);
  const double momentum = all_equal(options.momentum) ? options.momentum.front() : 1.0;
  auto [output, saved_mean, inverse_std] =
      at::native_batch_norm(fold_lanes(input, lanes, 1), folded(state.weight, lanes), folded(state.bias, lanes), mean.vector(), var.vector(),
                            options.training, momentum, options.eps.front());
  mean.write_back();
  var.write_back();
  return BatchNormOutput{unfold_lanes(output, lanes, 1), unfold_lanes(saved_mean, lanes, 0), unfold_lanes(inverse_std, lanes, 0)};
}

/// Writes into the lanes' slices where the operator can (its CPU and CUDA kernels take memory in training).
bool writes_into_slices(const LaneTensor& input, const BatchNormOptions& options) {
  const auto type = input.tensor.scalar_type();
  return options.training && (type == at::kFloat || type == at::kDouble) && lane_of(input, 0).is_contiguous();
}

BatchNormOutput forward_looped(const LaneTensor& input, const BatchNormState& state, const BatchNormOptions& options, std::int64_t lanes) {
  std::vector<at::Tensor> outputs, means, deviations;
  at::Tensor output, mean, deviation;
  const bool into_slices = lanes > 1 && writes_into_slices(input, options);
  if (into_slices) {
    output = at::empty(lanes_first(input, lanes).sizes(), input.tensor.options());
    mean = at::empty({lanes, output.size(2)}, input.tensor.options());
    deviation = at::empty({lanes, output.size(2)}, input.tensor.options());
  }
  for (std::int64_t lane = 0; lane < lanes; ++lane) {
    const auto x = lane_of(input, lane);
    const auto weight = of_lane(state.weight, lane), bias = of_lane(state.bias, lane);
    const auto running_mean = of_lane(state.running_mean, lane), running_var = of_lane(state.running_var, lane);
    if (into_slices) {
      auto y = output.select(0, lane), m = mean.select(0, lane), d = deviation.select(0, lane);
      at::native_batch_norm_out(y, m, d, x, weight, bias, running_mean, running_var, true, options.momentum[lane], options.eps[lane]);
      continue;
    }
    auto [y, m, d] = at::native_batch_norm(x, weight, bias, running_mean, running_var, options.training, options.momentum[lane], options.eps[lane]);
    outputs.push_back(y), means.push_back(m), deviations.push_back(d);
  }
  if (into_slices) return {{output, 0}, {mean, 0}, {deviation, 0}};
  return {{at::stack(outputs), 0}, {at::stack(means), 0}, {at::stack(deviations), 0}};
}

std::optional<BatchNormGradients> backward_folded(const BatchNormBackward& arguments, std::int64_t lanes) {
  const auto& [gradient, input, state, saved, options, mask] = arguments;
  if (!all_equal(options.eps) || !folding_pays(input, lanes)) return std::nullopt;
  auto [grad_input, grad_weight, grad_bias] = at::native_batch_norm_backward(
      fold_lanes(gradient, lanes, 1), fold_lanes(input, lanes, 1), folded(state.weight, lanes), folded(state.running_mean, lanes),
      folded(state.running_var, lanes), folded(saved.mean, lanes), folded(saved.inverse_std, lanes), options.training, options.eps.front(), mask);
  const auto back = [&](const at::Tensor& tensor, std::int64_t dim) {
    return tensor.defined() ? std::optional(unfold_lanes(tensor, lanes, dim)) : std::nullopt;
  };
  return BatchNormGradients{back(grad_input, 1), back(grad_weight, 0), back(grad_bias, 0)};
}

BatchNormGradients backward_looped(const BatchNormBackward& arguments, std::int64_t lanes) {
  const auto& [gradient, input, state, saved, options, mask] = arguments;
  std::array<std::vector<at::Tensor>, 3> of_lanes;
  for (std::int64_t lane = 0; lane < lanes; ++lane) {
    auto [grad_input, grad_weight, grad_bias] = at::native_batch_norm_backward(
        lane_of(gradient, lane), lane_of(input, lane), of_lane(state.weight, lane), of_lane(state.running_mean, lane),
        of_lane(state.running_var, lane), of_lane(saved.mean, lane), of_lane(saved.inverse_std, lane), options.training, options.eps[lane], mask);
    of_lanes[0].push_back(grad_input), of_lanes[1].push_back(grad_weight), of_lanes[2].push_back(grad_bias);
  }
  const auto together = [&](const std::vector<at::Tensor>& tensors) {
    return tensors.front().defined() ? std::optional(LaneTensor{at::stack(tensors), 0}) : std::nullopt;
  };
  return {together(of_lanes[0]), together(of_lanes[1]), together(of_lanes[2])};
}

}  // namespace

std::optional<BatchNormOutput> batch_norm(const LaneTensor& input, const BatchNormState& state, const BatchNormOptions& options, std::int64_t lanes,
                                          BatchNormLowering lowering) {
  switch (lowering) {
    case BatchNormLowering::Fused: return batch_norm_fused(input, state, options, lanes);
    case BatchNormLowering::Folded: return forward_folded(input, state, options, lanes);
    case BatchNormLowering::Looped: return forward_looped(input, state, options, lanes);
  }
  return std::nullopt;
}

std::optional<BatchNormGradients> batch_norm_backward(const BatchNormBackward& arguments, std::int64_t lanes, BatchNormLowering lowering) {
  switch (lowering) {
    case BatchNormLowering::Fused: return batch_norm_backward_fused(arguments, lanes);
    case BatchNormLowering::Folded: return backward_folded(arguments, lanes);
    case BatchNormLowering::Looped: return backward_looped(arguments, lanes);
  }
  return std::nullopt;
}

}  // namespace hfta::ops
