#include <ATen/core/Reduction.h>
#include <ATen/ops/mean.h>
#include <ATen/ops/multi_margin_loss.h>
#include <ATen/ops/multi_margin_loss_backward.h>
#include <ATen/ops/multilabel_margin_loss_backward.h>
#include <ATen/ops/multilabel_margin_loss_forward.h>
#include <ATen/ops/sum.h>

#include "hfta/ops/arguments.h"
#include "hfta/ops/register.h"

namespace hfta::ops {
namespace {

using at::Tensor;
using Results = std::optional<std::vector<LaneValue>>;

/// Lanes folded into the samples, which are independent: `[lanes * N, ...]`. A lane of one sample without a batch axis gets one.
struct Folded {
  std::int64_t lanes, samples;
  bool batched;

  Folded(const Arguments& arguments, std::size_t self)
      : lanes(arguments.lanes()), batched(arguments.required(self).lane_dim() == 2) {
    samples = batched ? arguments.lanes_first(self).size(1) : 1;
  }
  Tensor fold(const Tensor& lanes_first) const { return batched ? lanes_first.flatten(0, 1) : lanes_first; }
  /// One number per sample, reduced per lane.
  Tensor reduce(const Tensor& losses, std::int64_t reduction) const {
    const auto rows = losses.view({lanes, samples});
    if (reduction == at::Reduction::Mean) return rows.mean(1);
    if (reduction == at::Reduction::Sum) return rows.sum(1);
    return batched ? rows : rows.squeeze(1);
  }
  /// A lane's gradient as one per sample.
  Tensor spread(const Tensor& gradient, std::int64_t reduction) const {
    if (reduction == at::Reduction::None) return gradient.reshape({lanes * samples});
    const auto each = reduction == at::Reduction::Mean ? gradient.div(samples) : gradient;
    return each.unsqueeze(1).expand({lanes, samples}).reshape({lanes * samples});
  }
  LaneTensor unfold(const Tensor& folded) const { return {batched ? folded.unflatten(0, {lanes, samples}) : folded, 0}; }
};

/// Class weights that all lanes share; false where they differ.
bool shared_weight(const Arguments& arguments, std::size_t index, std::optional<Tensor>& weight) {
  const auto value = arguments.tensor(index);
  if (value && !value->is_shared()) return false;
  if (value) weight = value->tensor;
  return true;
}

/// `(self, target, p, margin, weight, reduction)`
Results multi_margin(const Arguments& arguments) {
  std::optional<Tensor> weight;
  if (arguments.any_differs() || !shared_weight(arguments, 4, weight)) return std::nullopt;
  const Folded folded(arguments, 0);
  const auto losses = at::multi_margin_loss(folded.fold(arguments.lanes_first(0)), arguments.lanes_first(1).reshape(-1), arguments.number(2, 0),
                                            arguments.number(3, 0), weight, at::Reduction::None);
  return std::vector<LaneValue>{LaneTensor{folded.reduce(losses, arguments.plain(5).toInt()), 0}};
}

/// `(grad_output, self, target, p, margin, weight, reduction)`
Results multi_margin_backward(const Arguments& arguments) {
  std::optional<Tensor> weight;
  if (arguments.any_differs() || !shared_weight(arguments, 5, weight)) return std::nullopt;
  const Folded folded(arguments, 1);
  const auto gradient = at::multi_margin_loss_backward(folded.spread(arguments.lanes_first(0), arguments.plain(6).toInt()),
                                                       folded.fold(arguments.lanes_first(1)), arguments.lanes_first(2).reshape(-1),
                                                       arguments.number(3, 0), arguments.number(4, 0), weight, at::Reduction::None);
  return std::vector<LaneValue>{folded.unfold(gradient)};
}

/// `(self, target, reduction)`
Results multilabel_margin(const Arguments& arguments) {
  const Folded folded(arguments, 0);
  const auto [losses, is_target] =
      at::multilabel_margin_loss_forward(folded.fold(arguments.lanes_first(0)), folded.fold(arguments.lanes_first(1)), at::Reduction::None);
  return std::vector<LaneValue>{LaneTensor{folded.reduce(losses, arguments.plain(2).toInt()), 0}, folded.unfold(is_target)};
}

/// `(grad_output, self, target, reduction, is_target)`
Results multilabel_margin_backward(const Arguments& arguments) {
  const Folded folded(arguments, 1);
  const auto gradient = at::multilabel_margin_loss_backward(folded.spread(arguments.lanes_first(0), arguments.plain(3).toInt()),
                                                            folded.fold(arguments.lanes_first(1)), folded.fold(arguments.lanes_first(2)),
                                                            at::Reduction::None, folded.fold(arguments.lanes_first(4)));
  return std::vector<LaneValue>{folded.unfold(gradient)};
}

}  // namespace

void register_margin_loss_rules() {
  const std::pair<const char*, Results (*)(const Arguments&)> rules[] = {
      {"aten::multi_margin_loss", multi_margin}, {"aten::multi_margin_loss_backward", multi_margin_backward},
      {"aten::multilabel_margin_loss_forward", multilabel_margin}, {"aten::multilabel_margin_loss_backward", multilabel_margin_backward}};
  for (const auto& [name, run] : rules)
    add_rules({name, {{"folded", [run = run](const RuleContext& context, std::span<const LaneValue> values) { return run(Arguments(context, values)); }}}});
}

}  // namespace hfta::ops
