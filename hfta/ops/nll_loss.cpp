#include "hfta/ops/nll_loss.h"

#include <ATen/core/Reduction.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/div.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/ne.h>
#include <ATen/ops/nll_loss2d_backward.h>
#include <ATen/ops/nll_loss2d_forward.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include "hfta/ops/arguments.h"
#include "hfta/ops/register.h"

namespace hfta::ops {
namespace {

/// All lanes in one form: `[lanes, N, C, S]`, `[lanes, N, S]`, `[lanes, C]`.
struct Uniform {
  at::Tensor self, target;
  std::optional<at::Tensor> weight;
  std::vector<std::int64_t> target_sizes;  ///< `[lanes, ...]` as the lanes have it.
};

/// A sample axis in front of a single sample, all places after the classes as one.
at::Tensor uniform(const at::Tensor& lanes_first, std::int64_t leading) {
  auto tensor = lanes_first.dim() < leading ? lanes_first.unsqueeze(1) : lanes_first;
  return tensor.dim() == leading ? tensor.unsqueeze(-1) : tensor.flatten(leading);
}

Uniform uniform(const NllLossArguments& arguments, std::int64_t lanes) {
  const auto target = lanes_first(arguments.target, lanes);
  Uniform result{uniform(lanes_first(arguments.log_probabilities, lanes), 3), uniform(target, 2), std::nullopt, target.sizes().vec()};
  if (arguments.weight) result.weight = lanes_first(*arguments.weight, lanes);
  return result;
}

using NllForward = std::tuple<at::Tensor, at::Tensor>(const at::Tensor&, const at::Tensor&, const std::optional<at::Tensor>&, std::int64_t, std::int64_t);
using NllBackward = at::Tensor(const at::Tensor&, const at::Tensor&, const at::Tensor&, const std::optional<at::Tensor>&, std::int64_t, std::int64_t,
                            const at::Tensor&);

bool kernel_takes(const NllLossArguments& arguments) {
  const auto& self = arguments.log_probabilities.tensor;
  return self.device().is_cpu() && (self.scalar_type() == at::kFloat || self.scalar_type() == at::kDouble) &&
         arguments.target.tensor.scalar_type() == at::kLong;
}

NllLossOutput forward_fused(const NllLossArguments& arguments, std::int64_t lanes) {
  static const auto op = c10::Dispatcher::singleton().findSchemaOrThrow("hfta::nll_loss", "").typed<NllForward>();
  const auto all = uniform(arguments, lanes);
  const auto [loss, total] = op.call(all.self, all.target, all.weight, arguments.reduction, arguments.ignore_index);
  return {{arguments.reduction == at::Reduction::None ? loss.view(all.target_sizes) : loss, 0}, {total, 0}};
}

/// Lanes and samples as one batch `[lanes * N, C, 1, S]` for the operator over places.
at::Tensor batch(const at::Tensor& tensor, std::int64_t place_axis) { return tensor.flatten(0, 1).unsqueeze(place_axis); }

/// What each target counts, `[lanes, N, S]`.
at::Tensor weights_of_targets(const NllLossArguments& arguments, const at::Tensor& target, at::ScalarType type) {
  const auto counts = target.ne(arguments.ignore_index);
  if (!arguments.weight) return counts.to(type);
  const auto classes = at::where(counts, target, 0);
  return arguments.weight->tensor.index_select(0, classes.flatten()).view(target.sizes()).mul(counts);
}

std::optional<NllLossOutput> forward_folded(const NllLossArguments& arguments, std::int64_t lanes) {
  if (arguments.weight && !arguments.weight->is_shared()) return std::nullopt;
  const auto all = uniform(arguments, lanes);
  std::optional<at::Tensor> weight;
  if (arguments.weight) weight = arguments.weight->tensor;
  const auto losses = std::get<0>(at::nll_loss2d_forward(batch(all.self, 2), batch(all.target, 1), weight, at::Reduction::None, arguments.ignore_index));
  if (arguments.reduction == at::Reduction::None)
    return NllLossOutput{{losses.reshape(all.target_sizes), 0}, {at::zeros({lanes}, losses.options()), 0}};
  const auto total = weights_of_targets(arguments, all.target, losses.scalar_type()).sum(at::IntArrayRef{1, 2});
  const auto sum = losses.view({lanes, -1}).sum(1);
  return NllLossOutput{{arguments.reduction == at::Reduction::Mean ? sum.div(total) : sum, 0}, {total, 0}};
}

LaneTensor backward_fused(const LaneTensor& gradient, const NllLossArguments& arguments, const LaneTensor& total_weight, std::int64_t lanes) {
  static const auto op = c10::Dispatcher::singleton().findSchemaOrThrow("hfta::nll_loss_backward", "").typed<NllBackward>();
  const auto all = uniform(arguments, lanes);
  auto grads = lanes_first(gradient, lanes);
  if (arguments.reduction == at::Reduction::None) grads = uniform(grads, 2);
  const auto result = op.call(grads, all.self, all.target, all.weight, arguments.reduction, arguments.ignore_index, lanes_first(total_weight, lanes));
  return {result.view(lanes_first(arguments.log_probabilities, lanes).sizes()), 0};
}

std::optional<LaneTensor> backward_folded(const LaneTensor& gradient, const NllLossArguments& arguments, const LaneTensor& total_weight,
                                          std::int64_t lanes) {
  if (arguments.weight && !arguments.weight->is_shared()) return std::nullopt;
  const auto all = uniform(arguments, lanes);
  std::optional<at::Tensor> weight;
  if (arguments.weight) weight = arguments.weight->tensor;
  auto grads = lanes_first(gradient, lanes);
  if (arguments.reduction == at::Reduction::Mean) grads = grads.div(lanes_first(total_weight, lanes));
  grads = arguments.reduction == at::Reduction::None ? uniform(grads, 2) : grads.view({lanes, 1, 1}).expand(all.target.sizes());
  const auto result = at::nll_loss2d_backward(batch(grads, 1), batch(all.self, 2), batch(all.target, 1), weight, at::Reduction::None,
                                              arguments.ignore_index, at::zeros({}, grads.options()));
  return LaneTensor{result.reshape(lanes_first(arguments.log_probabilities, lanes).sizes()), 0};
}

}  // namespace

std::optional<NllLossOutput> nll_loss(const NllLossArguments& arguments, std::int64_t lanes, NllLossLowering lowering) {
  switch (lowering) {
    case NllLossLowering::Fused: return kernel_takes(arguments) ? std::optional(forward_fused(arguments, lanes)) : std::nullopt;
    case NllLossLowering::Folded: return forward_folded(arguments, lanes);
  }
  return std::nullopt;
}

std::optional<LaneTensor> nll_loss_backward(const LaneTensor& gradient, const NllLossArguments& arguments, const LaneTensor& total_weight,
                                            std::int64_t lanes, NllLossLowering lowering) {
  switch (lowering) {
    case NllLossLowering::Fused:
      return kernel_takes(arguments) ? std::optional(backward_fused(gradient, arguments, total_weight, lanes)) : std::nullopt;
    case NllLossLowering::Folded: return backward_folded(gradient, arguments, total_weight, lanes);
  }
  return std::nullopt;
}

// ---- rules

namespace {

using Results = std::optional<std::vector<LaneValue>>;

NllLossArguments read(const Arguments& arguments, std::size_t first) {
  NllLossArguments result{arguments.required(first), arguments.required(first + 1), arguments.tensor(first + 2), arguments.plain(first + 3).toInt(),
                          arguments.plain(first + 4).toInt()};
  // A single sample is its own sum, and LibTorch gives its weight then.
  if (result.log_probabilities.lane_dim() == 1 && result.reduction == at::Reduction::None) result.reduction = at::Reduction::Sum;
  return result;
}

/// `(Tensor self, Tensor target, Tensor? weight, int reduction, SymInt ignore_index)`
Results nll_loss_rule(const Arguments& arguments, NllLossLowering lowering) {
  const auto result = nll_loss(read(arguments, 0), arguments.lanes(), lowering);
  if (!result) return std::nullopt;
  return std::vector<LaneValue>{result->loss, result->total_weight};
}

/// `(Tensor grad_output, Tensor self, Tensor target, Tensor? weight, int reduction, SymInt ignore_index, Tensor total_weight)`
Results nll_loss_backward_rule(const Arguments& arguments, NllLossLowering lowering) {
  const auto result = nll_loss_backward(arguments.required(0), read(arguments, 1), arguments.required(6), arguments.lanes(), lowering);
  if (!result) return std::nullopt;
  return std::vector<LaneValue>{*result};
}

void add_nll_loss(const char* name, Results (*run)(const Arguments&, NllLossLowering)) {
  OperatorRules rules{name, {}};
  for (const auto lowering : kNllLossLowerings) {
    const bool fused = lowering == NllLossLowering::Fused;
    rules.lowerings.push_back({fused ? "fused" : "folded", [run, lowering](const RuleContext& context, std::span<const LaneValue> values) {
      return run(Arguments(context, values), lowering);
    }, fused});
  }
  add_rules(std::move(rules));
}

}  // namespace

void register_nll_loss_rules() {
  add_nll_loss("aten::nll_loss_forward", nll_loss_rule);
  add_nll_loss("aten::nll_loss2d_forward", nll_loss_rule);
  add_nll_loss("aten::nll_loss_backward", nll_loss_backward_rule);
  add_nll_loss("aten::nll_loss2d_backward", nll_loss_backward_rule);
}

}  // namespace hfta::ops
