#include "hfta/ops/attention.h"

#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_backward.h>

#include "hfta/ops/arguments.h"
#include "hfta/ops/layout.h"
#include "hfta/ops/register.h"

namespace hfta::ops {
namespace {

using at::Tensor;

/// The mask as the folded batch sees it: shared ones without a batch as they are, the others `[lanes * N or 1, ...]`.
std::optional<Tensor> folded_mask(const AttentionArguments& arguments, std::int64_t lanes) {
  if (!arguments.mask) return std::nullopt;
  const auto& mask = *arguments.mask;
  const bool has_batch = mask.lane_dim() == 4;
  if (mask.is_shared() && (!has_batch || mask.tensor.size(0) == 1)) return mask.tensor;
  auto all = lanes_first(mask, lanes);
  while (all.dim() < 5) all = all.unsqueeze(1);
  const auto batch = arguments.query.is_shared() ? arguments.query.tensor.size(0) : lanes_first(arguments.query, lanes).size(1);
  return all.expand({lanes, batch, -1, -1, -1}).flatten(0, 1);
}

}  // namespace

AttentionOutput attention(const AttentionArguments& arguments, std::int64_t lanes) {
  const auto [output, log_sum] = at::_scaled_dot_product_flash_attention_for_cpu(
      fold_lanes(arguments.query, lanes, 0), fold_lanes(arguments.key, lanes, 0), fold_lanes(arguments.value, lanes, 0), 0.0, arguments.causal,
      folded_mask(arguments, lanes), arguments.scale);
  return {unfold_lanes(output, lanes, 0), unfold_lanes(log_sum, lanes, 0)};
}

AttentionGradients attention_backward(const LaneTensor& gradient, const AttentionArguments& arguments, const AttentionOutput& forward, std::int64_t lanes) {
  const auto [query, key, value] = at::_scaled_dot_product_flash_attention_for_cpu_backward(
      fold_lanes(gradient, lanes, 0), fold_lanes(arguments.query, lanes, 0), fold_lanes(arguments.key, lanes, 0), fold_lanes(arguments.value, lanes, 0),
      fold_lanes(forward.output, lanes, 0), fold_lanes(forward.log_sum, lanes, 0), 0.0, arguments.causal, folded_mask(arguments, lanes), arguments.scale);
  return {unfold_lanes(query, lanes, 0), unfold_lanes(key, lanes, 0), unfold_lanes(value, lanes, 0)};
}

// ---- rules

namespace {

using Results = std::optional<std::vector<LaneValue>>;

/// Query, key and value from `first`; dropout, causal, mask and scale from `options`. Nothing where numbers differ between lanes.
std::optional<AttentionArguments> read(const Arguments& arguments, std::size_t first, std::size_t options) {
  if (arguments.any_differs() || arguments.number(options, 0).toDouble() != 0) return std::nullopt;
  AttentionArguments result{arguments.required(first), arguments.required(first + 1), arguments.required(first + 2), arguments.tensor(options + 2),
                            arguments.plain(options + 1).toBool(), std::nullopt};
  if (const auto& scale = arguments.plain(options + 3); !scale.isNone()) result.scale = scale.toDouble();
  return result;
}

/// `(query, key, value, dropout_p, is_causal, attn_mask, scale)`
Results attention_rule(const RuleContext& context, std::span<const LaneValue> values) {
  const Arguments arguments(context, values);
  const auto attended = read(arguments, 0, 3);
  if (!attended) return std::nullopt;
  // The operator counts as random, so it is asked also where nothing differs between lanes.
  const auto all = attention(*attended, arguments.all_shared() ? 1 : context.lanes);
  if (!arguments.all_shared()) return std::vector<LaneValue>{all.output, all.log_sum};
  return std::vector<LaneValue>{LaneTensor{lane_of(all.output, 0), std::nullopt}, LaneTensor{lane_of(all.log_sum, 0), std::nullopt}};
}

/// `(grad_out, query, key, value, out, logsumexp, dropout_p, is_causal, attn_mask, scale)`
Results attention_backward_rule(const RuleContext& context, std::span<const LaneValue> values) {
  const Arguments arguments(context, values);
  const auto attended = read(arguments, 1, 6);
  if (!attended) return std::nullopt;
  const auto gradients = attention_backward(arguments.required(0), *attended, {arguments.required(4), arguments.required(5)}, context.lanes);
  return std::vector<LaneValue>{gradients.query, gradients.key, gradients.value};
}

}  // namespace

void register_attention_rules() {
  add_rules({"aten::_scaled_dot_product_flash_attention_for_cpu", {{"folded", attention_rule, true}}});
  add_rules({"aten::_scaled_dot_product_flash_attention_for_cpu_backward", {{"folded", attention_backward_rule, true}}});
}

}  // namespace hfta::ops
