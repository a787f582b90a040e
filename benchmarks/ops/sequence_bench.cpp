#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/mkldnn_rnn_layer.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/randn_like.h>
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

/// A layer of an LSTM over whole sequences, as LibTorch's CPU kernel takes it.
void add_lstm(std::int64_t lanes, std::int64_t length, std::int64_t batch, std::int64_t inputs, std::int64_t hidden) {
  constexpr std::int64_t kLstm = 2;
  const auto name = std::to_string(length) + "x" + std::to_string(batch) + "x" + std::to_string(inputs) + "to" + std::to_string(hidden);
  const auto input = at::randn({lanes, length, batch, inputs}), state = at::randn({lanes, batch, hidden}), cell = at::randn({lanes, batch, hidden});
  const auto from_input = at::randn({lanes, 4 * hidden, inputs}), from_hidden = at::randn({lanes, 4 * hidden, hidden}), bias = at::randn({lanes, 4 * hidden});
  const std::vector<std::int64_t> sizes;
  add_rule_case({"aten::mkldnn_rnn_layer",
                 name,
                 lanes,
                 {input, from_input, from_hidden, bias, bias, state, cell, false, sizes, kLstm, hidden, 1, true, false, false, true},
                 {true, true, true, true, true, true, true, false, false, false, false, false, false, false, false, false},
                 true});
  std::vector<at::Tensor> outputs, states, cells, spaces;
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  for (std::int64_t lane = 0; lane < lanes; ++lane) {
    const auto [output, last, last_cell, space] = at::mkldnn_rnn_layer(input[lane], from_input[lane], from_hidden[lane], bias[lane], bias[lane], state[lane], cell[lane], false, sizes, kLstm,
                                                                      hidden, 1, true, false, false, true);
    outputs.push_back(output), states.push_back(last), cells.push_back(last_cell), spaces.push_back(space);
  }
  const auto output = at::stack(outputs), last = at::stack(states), last_cell = at::stack(cells);
  add_rule_case({"aten::mkldnn_rnn_layer_backward",
                 name,
                 lanes,
                 {input, from_input, from_hidden, bias, bias, state, cell, output, last, last_cell, at::randn_like(output), at::randn_like(last), at::randn_like(last_cell), false, kLstm, hidden, 1, true, true, false, sizes, false,
                  at::stack(spaces)},
                 {true, true, true, true, true, true, true, true, true, true, true, true, true, false, false, false, false, false, false, false, false, false, true},
                 true});
}

[[maybe_unused]] const bool kAdded = [] {
  for (const std::int64_t lanes : {1, 8}) {
    add_embedding(lanes, 1000, 64, 1024);
    add_attention(lanes, 32, 4, 32, 16);
    add_lstm(lanes, 10, 32, 16, 32);
  }
  return true;
}();

}  // namespace
}  // namespace hfta::bench
