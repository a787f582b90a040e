#include <ATen/ops/_log_softmax.h>
#include <ATen/ops/_log_softmax_backward_data.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/nll_loss_backward.h>
#include <ATen/ops/nll_loss_forward.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/threshold_backward.h>
#include <torch/library.h>

#include "hfta/ops/arguments.h"
#include "hfta/ops/register.h"

// What `lanes::merged` makes of a few operators of one lane, where a kernel of ours computes them together. By themselves they are what they
// were made of.

namespace hfta::ops {
namespace {

using at::Tensor;

Tensor addmm_relu(const Tensor& self, const Tensor& left, const Tensor& right, const at::Scalar& beta, const at::Scalar& alpha) {
  return at::relu(at::addmm(self, left, right, beta, alpha));
}

Tensor mm_gated(const Tensor& left, const Tensor& right, const Tensor& gate) { return at::threshold_backward(at::mm(left, right), gate, 0); }

std::tuple<Tensor, Tensor, Tensor> cross_entropy(const Tensor& logits, const Tensor& target, const std::optional<Tensor>& weight, std::int64_t reduction,
                                                 std::int64_t ignore_index) {
  const auto logs = at::_log_softmax(logits, 1, false);
  const auto [loss, total] = at::nll_loss_forward(logs, target, weight, reduction, ignore_index);
  const auto of_logs = at::nll_loss_backward(at::ones_like(loss), logs, target, weight, reduction, ignore_index, total);
  return {loss, total, at::_log_softmax_backward_data(of_logs, logs, 1, logits.scalar_type())};
}

/// `(Tensor logits, Tensor target, Tensor? weight, int reduction, int ignore_index)`
std::optional<std::vector<LaneValue>> cross_entropy_rule(const RuleContext& context, std::span<const LaneValue> values) {
  static const auto op = c10::Dispatcher::singleton()
                             .findSchemaOrThrow("hfta::cross_entropy_rows", "")
                             .typed<std::tuple<Tensor, Tensor, Tensor>(const Tensor&, const Tensor&, const std::optional<Tensor>&, std::int64_t, std::int64_t)>();
  const Arguments arguments(context, values);
  std::optional<Tensor> weight;
  if (const auto given = arguments.tensor(2)) weight = lanes_first_or_shared(*given, context.lanes);
  const auto [loss, total, gradient] = op.call(arguments.lanes_first(0), arguments.lanes_first(1), weight, arguments.plain(3).toInt(), arguments.plain(4).toInt());
  return std::vector<LaneValue>{LaneTensor{loss, 0}, LaneTensor{total, 0}, LaneTensor{gradient, 0}};
}

}  // namespace

void register_merged_rules() { add_rules({"hfta::cross_entropy", {{"fused", cross_entropy_rule, true}}}); }

}  // namespace hfta::ops

TORCH_LIBRARY_FRAGMENT(hfta, library) {
  library.def("cross_entropy(Tensor logits, Tensor target, Tensor? weight, int reduction, int ignore_index) -> (Tensor loss, Tensor total_weight, Tensor gradient)",
              TORCH_FN(hfta::ops::cross_entropy));
  library.def("addmm_relu(Tensor self, Tensor mat1, Tensor mat2, Scalar beta, Scalar alpha) -> Tensor", TORCH_FN(hfta::ops::addmm_relu));
  library.def("mm_gated(Tensor self, Tensor mat2, Tensor gate) -> Tensor", TORCH_FN(hfta::ops::mm_gated));
}
