#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/stack.h>

#include "benchmarks/ops/rule_bench.h"

namespace hfta::bench {
namespace {

void add_embedding(std::int64_t lanes, std::int64_t words, std::int64_t width, std::int64_t count) {
  const auto name = std::to_string(words) + "x" + std::to_string(width) + "_" + std::to_string(count);
  const auto indices = at::randint(words, {count}, at::kLong);
  add_rule_case({"aten::embedding", name, lanes, {at::randn({lanes, words, width}), indices, -1, false, false}, {true, false, false, false, false}});
  add_rule_case({"aten::embedding_dense_backward", name, lanes, {at::randn({lanes, count, width}), indices, words, -1, false}, {true, false, false, false, false}});
}

void add_attention(std::int64_t lanes, std::int64_t batch, std::int64_t heads, std::int64_t length, std::int64_t width) {
  const auto name = std::to_string(batch) + "x" + std::to_string(heads) + "x" + std::to_string(length) + "x" + std::to_string(width);
  const auto made = [&] { return at::randn({lanes, batch, heads, length, width}); };
  const auto query = made(), key = made(), value = made();
  const c10::IValue none;
  add_rule_case({"aten::_scaled_dot_product_flash_attention_for_cpu", name, lanes, {query, key, value, 0.0, false, none, none}, {true, true, true, false, false, false, false}});
  std::vector<at::Tensor> outputs, sums;
  for (std::int64_t lane = 0; lane < lanes; ++lane) {
    const auto [output, sum] = at::_scaled_dot_product_flash_attention_for_cpu(query[lane], key[lane], value[lane]);
    outputs.push_back(output), sums.push_back(sum);
  }
  add_rule_case({"aten::_scaled_dot_product_flash_attention_for_cpu_backward",
                 name,
                 lanes,
                 {made(), query, key, value, at::stack(outputs), at::stack(sums), 0.0, false, none, none},
                 {true, true, true, true, true, true, false, false, false, false}});
}

[[maybe_unused]] const bool kAdded = [] {
  for (const std::int64_t lanes : {1, 8}) {
    add_embedding(lanes, 1000, 64, 1024);
    add_attention(lanes, 32, 4, 32, 16);
    add_rule_case({"aten::native_dropout", "32x784", lanes, {at::randn({lanes, 32, 784}), 0.5, true}, {true, false, false}});
  }
  return true;
}();

}  // namespace
}  // namespace hfta::bench
