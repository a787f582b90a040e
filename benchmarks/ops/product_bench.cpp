#include <ATen/ops/randn.h>

#include "benchmarks/ops/rule_bench.h"

namespace hfta::bench {
namespace {

/// A linear layer `[batch, in] -> [batch, out]` and its gradients, as autograd asks for them.
void add_linear(std::int64_t lanes, std::int64_t batch, std::int64_t in, std::int64_t out, bool shared_input) {
  const auto name = std::to_string(batch) + "x" + std::to_string(in) + "to" + std::to_string(out) + (shared_input ? "shared" : "");
  const auto input = shared_input ? at::randn({batch, in}) : at::randn({lanes, batch, in});
  const auto weight = at::randn({lanes, out, in}), bias = at::randn({lanes, out}), gradient = at::randn({lanes, batch, out});
  add_rule_case({"aten::addmm", name, lanes, {bias, input, weight.transpose(1, 2), 1, 1}, {true, !shared_input, true, false, false}});
  add_rule_case({"aten::mm", name + "_weight_gradient", lanes, {gradient.transpose(1, 2), input}, {true, !shared_input}});
  if (!shared_input) add_rule_case({"aten::mm", name + "_input_gradient", lanes, {gradient, weight}, {true, true}});
}

[[maybe_unused]] const bool kAdded = [] {
  for (const std::int64_t lanes : {1, 8, 32}) {
    add_linear(lanes, 32, 784, 128, true);
    add_linear(lanes, 32, 128, 128, false);
    add_linear(lanes, 32, 16, 10, false);
    add_rule_case({"aten::bmm", "attention", lanes, {at::randn({lanes, 32, 24, 16}), at::randn({lanes, 32, 16, 24})}, {true, true}});
  }
  return true;
}();

}  // namespace
}  // namespace hfta::bench
