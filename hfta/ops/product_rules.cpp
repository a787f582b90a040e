#include <functional>
#include <utility>

#include "hfta/ops/arguments.h"
#include "hfta/ops/product.h"
#include "hfta/ops/register.h"
#include "hfta/ops/rule.h"

namespace hfta::ops {
namespace {

using Results = std::optional<std::vector<LaneValue>>;
using ProductRule = Results (*)(const Arguments&, std::int64_t lanes, ProductLowering);

Results results(std::optional<LaneTensor> value) {
  if (!value) return std::nullopt;
  return std::vector<LaneValue>{*std::move(value)};
}

/// A vector as a matrix of one column, lane axis untouched.
LaneTensor column(const LaneTensor& vector) { return {vector.tensor.unsqueeze(-1), vector.axis}; }

/// A vector as a matrix of one row.
LaneTensor row(const LaneTensor& vector) {
  if (vector.is_shared()) return {vector.tensor.unsqueeze(0), std::nullopt};
  return {vector.tensor.movedim(*vector.axis, 0).unsqueeze(1), 0};
}

/// The last axis of one lane's result, of size one, dropped.
Results without_last(std::optional<LaneTensor> value) {
  if (value) value->tensor = value->tensor.squeeze(-1);
  return results(std::move(value));
}

/// `beta` and `alpha` at `first`, `first + 1`; nothing where they differ between lanes.
std::optional<ProductAddend> addend(const Arguments& arguments, std::size_t first) {
  const auto tensor = arguments.tensor(0);
  const auto beta = arguments.scalar(first), alpha = arguments.scalar(first + 1);
  if (!tensor || !beta || !alpha) return std::nullopt;
  return ProductAddend{*tensor, *beta, *alpha};
}

/// `(left, right, ...)`
Results product_activated(const Arguments& arguments, std::int64_t lanes, ProductLowering lowering, const ProductActivation& activation) {
  const auto left = arguments.tensor(0), right = arguments.tensor(1);
  if (!left || !right) return std::nullopt;
  return results(product(*left, *right, lanes, lowering, std::nullopt, activation));
}

/// `(self, left, right, beta, alpha)`
Results added_product_activated(const Arguments& arguments, std::int64_t lanes, ProductLowering lowering, const ProductActivation& activation) {
  const auto left = arguments.tensor(1), right = arguments.tensor(2);
  const auto added = addend(arguments, 3);
  if (!left || !right || !added) return std::nullopt;
  return results(product(*left, *right, lanes, lowering, added, activation));
}

/// aten::mm(left, right), aten::bmm(left, right)
Results plain_product(const Arguments& arguments, std::int64_t lanes, ProductLowering lowering) { return product_activated(arguments, lanes, lowering, {}); }

/// aten::addmm(self, left, right, beta, alpha), aten::baddbmm
Results added_product(const Arguments& arguments, std::int64_t lanes, ProductLowering lowering) { return added_product_activated(arguments, lanes, lowering, {}); }

/// hfta::addmm_relu(self, left, right, beta, alpha)
Results rectified_product(const Arguments& arguments, std::int64_t lanes, ProductLowering lowering) {
  return added_product_activated(arguments, lanes, lowering, {.relu = true, .gate = {}});
}

/// hfta::mm_gated(left, right, gate)
Results gated_product(const Arguments& arguments, std::int64_t lanes, ProductLowering lowering) {
  return product_activated(arguments, lanes, lowering, {.gate = arguments.required(2)});
}

/// aten::mv(matrix, vector)
Results matrix_vector(const Arguments& arguments, std::int64_t lanes, ProductLowering lowering) {
  const auto matrix = arguments.tensor(0), vector = arguments.tensor(1);
  if (!matrix || !vector || vector->lane_dim() != 1) return std::nullopt;
  return without_last(product(*matrix, column(*vector), lanes, lowering));
}

/// aten::addmv(self, matrix, vector, beta, alpha)
Results added_matrix_vector(const Arguments& arguments, std::int64_t lanes, ProductLowering lowering) {
  const auto matrix = arguments.tensor(1), vector = arguments.tensor(2);
  auto added = addend(arguments, 3);
  if (!matrix || !vector || !added || vector->lane_dim() != 1) return std::nullopt;
  if (added->tensor.lane_dim() == 1) added->tensor = column(added->tensor);
  return without_last(product(*matrix, column(*vector), lanes, lowering, added));
}

/// aten::dot(left, right)
Results dot(const Arguments& arguments, std::int64_t lanes, ProductLowering lowering) {
  const auto left = arguments.tensor(0), right = arguments.tensor(1);
  if (!left || !right || left->lane_dim() != 1 || right->lane_dim() != 1) return std::nullopt;
  auto value = product(row(*left), column(*right), lanes, lowering);
  if (!value) return std::nullopt;
  // Which of the matrix axes the lane axis stands between differs, but both have size one.
  return results(LaneTensor{value->tensor.reshape({lanes}), 0});
}

void add_product_rules(std::string_view name, std::size_t arity, ProductRule rule) {
  OperatorRules rules{name, {}};
  for (const auto lowering : kProductLowerings) {
    rules.lowerings.push_back({name_of(lowering), [=](const RuleContext& context, std::span<const LaneValue> values) -> Results {
                                 const Arguments arguments(context, values);
                                 if (arguments.size() != arity || arguments.any_differs()) return std::nullopt;
                                 return rule(arguments, context.lanes, lowering);
                               }, is_our_kernel(lowering)});
  }
  add_rules(std::move(rules));
}

}  // namespace

void register_product_rules() {
  add_product_rules("aten::mm", 2, plain_product);
  add_product_rules("aten::bmm", 2, plain_product);
  add_product_rules("aten::addmm", 5, added_product);
  add_product_rules("aten::baddbmm", 5, added_product);
  add_product_rules("hfta::addmm_relu", 5, rectified_product);
  add_product_rules("hfta::mm_gated", 3, gated_product);
  add_product_rules("aten::mv", 2, matrix_vector);
  add_product_rules("aten::addmv", 5, added_matrix_vector);
  add_product_rules("aten::dot", 2, dot);
}

}  // namespace hfta::ops
