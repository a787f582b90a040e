#include "hfta/ops/lane_product.h"

#include <ATen/core/dispatch/Dispatcher.h>

#include <string>

namespace hfta::ops {
namespace {

bool is_bias(const at::Tensor& lanes_first, std::int64_t lane_dim, std::int64_t columns) {
  return lane_dim == 1 && lanes_first.size(-1) == columns && lanes_first.stride(-1) == 1;
}

bool has_neighbours(const at::Tensor& factor) { return factor.numel() > 0 && (factor.stride(-1) == 1 || factor.stride(-2) == 1); }

}  // namespace

LaneTensor LaneProduct::call(const char* name) const {
  using Op = at::Tensor(const at::Tensor&, const at::Tensor&, const std::optional<at::Tensor>&, const std::optional<at::Tensor>&, bool, at::IntArrayRef);
  return {c10::Dispatcher::singleton().findSchemaOrThrow(name, "").typed<Op>().call(left, right, bias, gate, relu, products), 0};
}

std::optional<LaneProduct> lane_product(const LaneTensor& left, const LaneTensor& right, const std::optional<ProductAddend>& addend,
                                        const ProductActivation& activation, std::int64_t lanes) {
  if (addend && !(addend->beta.equal(1) && addend->alpha.equal(1))) return std::nullopt;
  const auto type = left.tensor.scalar_type();
  if (!left.tensor.is_cpu() || (type != at::kFloat && type != at::kDouble)) return std::nullopt;
  LaneProduct all{lanes_first_or_shared(left, lanes), lanes_first_or_shared(right, lanes), std::nullopt, std::nullopt, activation.relu, {lanes}};
  if (left.lane_dim() == 3) all.products.push_back(all.left.size(-3));
  if (right.tensor.scalar_type() != type || !has_neighbours(all.left) || !has_neighbours(all.right)) return std::nullopt;
  if (addend) {
    all.bias = lanes_first_or_shared(addend->tensor, lanes);
    if (all.bias->scalar_type() != type || !is_bias(*all.bias, addend->tensor.lane_dim(), all.right.size(-1))) return std::nullopt;
  }
  if (activation.gate) {
    if (activation.gate->tensor.scalar_type() != type) return std::nullopt;
    all.gate = lanes_first_or_shared(*activation.gate, lanes).contiguous();
  }
  return all;
}

}  // namespace hfta::ops
