#include <ATen/ops/bernoulli.h>
#include <ATen/ops/full.h>
#include <ATen/ops/randn.h>

#include "benchmarks/ops/rule_bench.h"

namespace hfta::bench {
namespace {

/// Masks of a dropout, drawn by each lane's own generator.
void add_masks(std::int64_t lanes, std::int64_t rows, std::int64_t width) {
  const auto name = std::to_string(rows) + "x" + std::to_string(width);
  const auto input = at::randn({lanes, rows, width});
  const c10::IValue none;
  add_rule_case({"aten::native_dropout", name, lanes, {input, 0.5, true}, {true, false, false}});
  add_rule_case({"aten::native_dropout_backward", name, lanes, {input, at::bernoulli(at::full({lanes, rows, width}, 0.5)).to(at::kBool), 2.0}, {true, true, false}});
  add_rule_case({"aten::bernoulli_.float", name, lanes, {input.clone(), 0.5, none}, {true, false, false}});
  add_rule_case({"aten::normal_", name, lanes, {input.clone(), 0.0, 1.0, none}, {true, false, false, false}});
  add_rule_case({"aten::uniform_", name, lanes, {input.clone(), 0.0, 1.0, none}, {true, false, false, false}});
}

[[maybe_unused]] const bool kAdded = [] {
  for (const std::int64_t lanes : {1, 8}) {
    add_masks(lanes, 32, 784);
    add_masks(lanes, 32, 10);
  }
  return true;
}();

}  // namespace
}  // namespace hfta::bench
