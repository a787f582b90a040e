#include "hfta/ops/embedding.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/embedding_dense_backward.h>
#include <ATen/ops/stack.h>

#include "hfta/ops/arguments.h"
#include "hfta/ops/layout.h"
#include "hfta/ops/looped.h"
#include "hfta/ops/register.h"

namespace hfta::ops {
namespace {

using at::Tensor;

/// `[lanes, N, D]` whose rows are contiguous.
Tensor with_rows(const Tensor& lanes_first) {
  const auto rows = lanes_first.dim() == 2 ? lanes_first.unsqueeze(1) : lanes_first.flatten(1, -2);
  return rows.stride(-1) == 1 || rows.size(-1) == 1 ? rows : rows.contiguous();
}

/// `[lanes, N]`
Tensor as_list(const LaneTensor& indices, std::int64_t lanes) {
  const auto all = lanes_first(indices, lanes);
  return all.dim() == 1 ? all.unsqueeze(1) : all.flatten(1);
}

LaneTensor forward_fused(const LaneTensor& table, const LaneTensor& indices, std::int64_t lanes) {
  static const auto op = c10::Dispatcher::singleton().findSchemaOrThrow("hfta::embedding", "").typed<Tensor(const Tensor&, const Tensor&)>();
  const auto found = op.call(with_rows(lanes_first(table, lanes)), as_list(indices, lanes));
  auto sizes = lanes_first(indices, lanes).sizes().vec();
  sizes.push_back(found.size(-1));
  return {found.view(sizes), 0};
}

LaneTensor backward_fused(const LaneTensor& gradient, const LaneTensor& indices, const EmbeddingGradientOptions& options, std::int64_t lanes) {
  using Kernel = Tensor(const Tensor&, const Tensor&, std::int64_t, std::int64_t, bool);
  static const auto op = c10::Dispatcher::singleton().findSchemaOrThrow("hfta::embedding_backward", "").typed<Kernel>();
  return {op.call(with_rows(lanes_first(gradient, lanes)), as_list(indices, lanes), options.rows, options.padding_index, options.scale_by_frequency), 0};
}

LaneTensor stacked(std::vector<Tensor> of_lanes) { return {at::stack(of_lanes), 0}; }

}  // namespace

std::optional<LaneTensor> embedding(const LaneTensor& table, const LaneTensor& indices, std::int64_t lanes, EmbeddingLowering lowering) {
  // One table for all lanes: their indices are one list.
  if (table.is_shared()) {
    const auto found = at::embedding(table.tensor, lanes_first(indices, lanes));
    return LaneTensor{found, 0};
  }
  switch (lowering) {
    case EmbeddingLowering::Fused:
      return table.tensor.device().is_cpu() ? std::optional(forward_fused(table, indices, lanes)) : std::nullopt;
    case EmbeddingLowering::Looped: {
      std::vector<Tensor> found;
      for (std::int64_t lane = 0; lane < lanes; ++lane) found.push_back(at::embedding(lane_of(table, lane), lane_of(indices, lane)));
      return stacked(std::move(found));
    }
  }
  return std::nullopt;
}

std::optional<LaneTensor> embedding_backward(const LaneTensor& gradient, const LaneTensor& indices, const EmbeddingGradientOptions& options,
                                             std::int64_t lanes, EmbeddingLowering lowering) {
  switch (lowering) {
    case EmbeddingLowering::Fused: {
      const auto& tensor = gradient.tensor;
      const bool takes = tensor.device().is_cpu() && (tensor.scalar_type() == at::kFloat || tensor.scalar_type() == at::kDouble);
      return takes ? std::optional(backward_fused(gradient, indices, options, lanes)) : std::nullopt;
    }
    case EmbeddingLowering::Looped: {
      std::vector<Tensor> gradients;
      for (std::int64_t lane = 0; lane < lanes; ++lane)
        gradients.push_back(at::embedding_dense_backward(lane_of(gradient, lane), lane_of(indices, lane), options.rows, options.padding_index,
                                                         options.scale_by_frequency));
      return stacked(std::move(gradients));
    }
  }
  return std::nullopt;
}

// ---- rules

namespace {

using Results = std::optional<std::vector<LaneValue>>;

Results results(std::optional<LaneTensor> value) {
  if (!value) return std::nullopt;
  return std::vector<LaneValue>{*std::move(value)};
}

/// `(Tensor weight, Tensor indices, SymInt padding_idx, bool scale_grad_by_freq, bool sparse)`
Results embedding_rule(const Arguments& arguments, EmbeddingLowering lowering) {
  return results(embedding(arguments.required(0), arguments.required(1), arguments.lanes(), lowering));
}

/// `(Tensor grad_output, Tensor indices, SymInt num_weights, SymInt padding_idx, bool scale_grad_by_freq)`
Results embedding_backward_rule(const Arguments& arguments, EmbeddingLowering lowering) {
  const EmbeddingGradientOptions options{arguments.plain(2).toInt(), arguments.plain(3).toInt(), arguments.plain(4).toBool()};
  return results(embedding_backward(arguments.required(0), arguments.required(1), options, arguments.lanes(), lowering));
}

void add_embedding(const char* name, Results (*run)(const Arguments&, EmbeddingLowering)) {
  OperatorRules rules{name, {}};
  for (const auto lowering : kEmbeddingLowerings) {
    const bool fused = lowering == EmbeddingLowering::Fused;
    rules.lowerings.push_back({fused ? "fused" : "looped", [run, lowering](const RuleContext& context, std::span<const LaneValue> values) {
      return run(Arguments(context, values), lowering);
    }, fused});
  }
  add_rules(std::move(rules));
}

/// Operators that are one call per lane by nature: rows chosen by values, or kernels that take no batch of tables.
void add_looped(const char* name, const char* overload = "") {
  const auto op = c10::Dispatcher::singleton().findSchema({name, overload});
  if (!op) return;
  add_rules({toString(op->operator_name()), {{"looped", [op = *op](const RuleContext& context, std::span<const LaneValue> values) {
    return std::optional(loop_lanes(op, context, values));
  }}}});
}

}  // namespace

void register_embedding_rules() {
  add_embedding("aten::embedding", embedding_rule);
  add_embedding("aten::embedding_dense_backward", embedding_backward_rule);
  for (const char* name : {"aten::embedding_renorm_", "aten::_embedding_bag", "aten::_embedding_bag_forward_only", "aten::_embedding_bag_backward",
                           "aten::_embedding_bag_dense_backward", "aten::_embedding_bag_per_sample_weights_backward"})
    add_looped(name);
}

}  // namespace hfta::ops
