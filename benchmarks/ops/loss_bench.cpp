#include <ATen/core/Reduction.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>

#include "benchmarks/ops/rule_bench.h"

namespace hfta::bench {
namespace {

void add_losses(std::int64_t lanes, std::int64_t batch, std::int64_t classes) {
  const auto name = std::to_string(batch) + "x" + std::to_string(classes);
  const auto scores = at::randn({lanes, batch, classes}), values = at::rand({lanes, batch, classes}), gradient = at::ones({lanes});
  const auto target = at::randint(classes, {batch}, at::kLong);
  const c10::IValue none, mean = static_cast<std::int64_t>(at::Reduction::Mean);
  add_rule_case({"aten::nll_loss_forward", name, lanes, {scores, target, none, mean, -100}, {true, false, false, false, false}});
  add_rule_case({"aten::nll_loss_backward", name, lanes, {gradient, scores, target, none, mean, -100, at::full({lanes}, static_cast<double>(batch))},
                 {true, true, false, false, false, false, true}});
  add_rule_case({"aten::mse_loss", name, lanes, {scores, values, mean}, {true, true, false}});
  add_rule_case({"aten::mse_loss_backward", name, lanes, {gradient, scores, values, mean}, {true, true, true, false}});
  add_rule_case({"aten::smooth_l1_loss", name, lanes, {scores, values, mean, 1.0}, {true, true, false, false}});
  add_rule_case({"aten::smooth_l1_loss_backward", name, lanes, {gradient, scores, values, mean, 1.0}, {true, true, true, false, false}});
  add_rule_case({"aten::huber_loss", name, lanes, {scores, values, mean, 1.0}, {true, true, false, false}});
  add_rule_case({"aten::huber_loss_backward", name, lanes, {gradient, scores, values, mean, 1.0}, {true, true, true, false, false}});
  add_rule_case({"aten::xlogy.Tensor", name + "_kl_div", lanes, {values, values}, {true, true}});
  add_rule_case({"aten::binary_cross_entropy_with_logits", name, lanes, {scores, values, none, none, mean}, {true, true, false, false, false}});
  add_rule_case({"aten::multi_margin_loss", name, lanes, {scores, target, 1, 1.0, none, mean}, {true, false, false, false, false, false}});
  add_rule_case({"aten::multi_margin_loss_backward", name, lanes, {gradient, scores, target, 1, 1.0, none, mean}, {true, true, false, false, false, false, false}});
  add_rule_case({"aten::soft_margin_loss", name, lanes, {scores, values, mean}, {true, true, false}});
}

[[maybe_unused]] const bool kAdded = [] {
  for (const std::int64_t lanes : {1, 8, 64}) add_losses(lanes, 32, 10);
  return true;
}();

}  // namespace
}  // namespace hfta::bench
