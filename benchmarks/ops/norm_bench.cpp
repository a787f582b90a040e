#include <ATen/ops/native_batch_norm.h>
#include <ATen/ops/native_layer_norm.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/randn_like.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>

#include "benchmarks/ops/rule_bench.h"

namespace hfta::bench {
namespace {

using at::Tensor;

/// Batch norm in training, and its gradients.
void add_batch_norm(std::int64_t lanes, std::int64_t batch, std::int64_t channels, std::int64_t side) {
  const auto name = std::to_string(batch) + "x" + std::to_string(channels) + "x" + std::to_string(side);
  const auto input = at::randn({lanes, batch, channels, side, side});
  const auto weight = at::ones({lanes, channels}), bias = at::zeros({lanes, channels}), mean = at::zeros({lanes, channels}), variance = at::ones({lanes, channels});
  add_rule_case({"aten::native_batch_norm", name, lanes, {input, weight, bias, mean, variance, true, 0.1, 1e-5}, {true, true, true, true, true, false, false, false}});
  std::vector<Tensor> means, inverses;
  for (std::int64_t lane = 0; lane < lanes; ++lane) {
    const auto [output, save_mean, save_inverse] = at::native_batch_norm(input[lane], weight[lane], bias[lane], mean[lane], variance[lane], true, 0.1, 1e-5);
    means.push_back(save_mean), inverses.push_back(save_inverse);
  }
  add_rule_case({"aten::native_batch_norm_backward",
                 name,
                 lanes,
                 {at::randn_like(input), input, weight, mean, variance, at::stack(means), at::stack(inverses), true, 1e-5, c10::List<bool>({true, true, true})},
                 {true, true, true, true, true, true, true, false, false, false}});
}

void add_layer_norm(std::int64_t lanes, std::int64_t rows, std::int64_t width) {
  const auto name = std::to_string(rows) + "x" + std::to_string(width);
  const auto input = at::randn({lanes, rows, width}), weight = at::ones({lanes, width}), bias = at::zeros({lanes, width});
  const c10::List<std::int64_t> shape({width});
  add_rule_case({"aten::native_layer_norm", name, lanes, {input, shape, weight, bias, 1e-5}, {true, false, true, true, false}});
  std::vector<Tensor> means, inverses;
  for (std::int64_t lane = 0; lane < lanes; ++lane) {
    const auto [output, mean, inverse] = at::native_layer_norm(input[lane], {width}, weight[lane], bias[lane], 1e-5);
    means.push_back(mean), inverses.push_back(inverse);
  }
  add_rule_case({"aten::native_layer_norm_backward",
                 name,
                 lanes,
                 {at::randn_like(input), input, shape, at::stack(means), at::stack(inverses), weight, bias, c10::List<bool>({true, true, true})},
                 {true, true, false, true, true, true, true, false}});
}

void add_softmax(std::int64_t lanes, std::int64_t rows, std::int64_t width) {
  const auto name = std::to_string(rows) + "x" + std::to_string(width);
  const auto input = at::randn({lanes, rows, width});
  for (const std::string op : {"aten::_softmax", "aten::_log_softmax"}) {
    add_rule_case({op, name, lanes, {input, 1, false}, {true, false, false}});
    const auto output = op == "aten::_softmax" ? at::softmax(input, 2) : at::softmax(input, 2).log();
    add_rule_case({op + "_backward_data", name, lanes, {at::randn_like(input), output, 1, static_cast<std::int64_t>(at::kFloat)}, {true, true, false, false}});
  }
}

[[maybe_unused]] const bool kAdded = [] {
  for (const std::int64_t lanes : {1, 8}) {
    add_batch_norm(lanes, 32, 16, 28);
    add_batch_norm(lanes, 32, 64, 8);
    add_layer_norm(lanes, 32 * 32, 64);
    add_softmax(lanes, 32, 10);
    add_softmax(lanes, 32 * 4 * 32, 32);
  }
  return true;
}();

}  // namespace
}  // namespace hfta::bench
