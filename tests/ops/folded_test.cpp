#include "tests/ops/rule_check.h"

namespace hfta::test {
namespace {

/// Width, dtype.
class FoldedTest : public ::testing::TestWithParam<std::tuple<std::int64_t, torch::ScalarType>> {
 protected:
  void SetUp() override { torch::manual_seed(5); }
  std::int64_t lanes_ = std::get<0>(GetParam());
  torch::TensorOptions options_ = torch::TensorOptions().dtype(std::get<1>(GetParam())).device(device());
  torch::TensorOptions index_ = torch::TensorOptions().dtype(torch::kLong).device(device());
  ops::LaneValue none_ = plain(c10::IValue());

  torch::Tensor stacked(std::vector<std::int64_t> sizes) const {
    sizes.insert(sizes.begin(), lanes_);
    return torch::randn(sizes, options_);
  }
};

TEST_P(FoldedTest, AttentionAndItsGradientsEqualTheLanesAlone) {
  const std::vector<std::int64_t> sizes{2, 3, 5, 8};
  const auto query = stacked(sizes), key = stacked(sizes), value = stacked(sizes), grad = stacked(sizes);
  const auto one_mask = shared(torch::randn({5, 5}, options_));
  for (const auto& mask : {none_, one_mask, per_lane(stacked({5, 5})), shared(torch::randn({2, 1, 5, 5}, options_)), per_lane(stacked({2, 3, 5, 5}))}) {
    for (const bool causal : {false, true}) {
      if (causal && !std::holds_alternative<c10::IValue>(mask)) continue;
      for (const auto& q : {per_lane(query), per_lane_at(query, 1), shared(query[0])})
        check_rule("aten::_scaled_dot_product_flash_attention_for_cpu", "", lanes_, {q, per_lane(key), per_lane_at(value, 3), plain(0.0), plain(causal), mask, plain(0.3)});
      std::vector<torch::Tensor> outputs, sums;
      for (std::int64_t lane = 0; lane < lanes_; ++lane) {
        const auto* tensor = std::get_if<ops::LaneTensor>(&mask);
        const auto lane_mask = tensor ? std::optional(ops::lane_of(*tensor, lane)) : std::nullopt;
        auto [output, sum] = at::_scaled_dot_product_flash_attention_for_cpu(query[lane], key[lane], value[lane], 0.0, causal, lane_mask);
        outputs.push_back(output), sums.push_back(sum);
      }
      check_rule("aten::_scaled_dot_product_flash_attention_for_cpu_backward", "", lanes_,
                 {per_lane(grad), per_lane(query), per_lane(key), per_lane(value), per_lane(torch::stack(outputs)), per_lane(torch::stack(sums)), plain(0.0),
                  plain(causal), mask, none_},
                 {.factor = 10});
    }
  }
}

TEST_P(FoldedTest, SharedAttentionStaysShared) {
  const auto x = shared(torch::randn({2, 3, 5, 8}, options_));
  check_rule("aten::_scaled_dot_product_flash_attention_for_cpu", "", lanes_, {x, x, x, plain(0.0), plain(false), none_, none_});
}

TEST_P(FoldedTest, CtcLossAndItsGradientEqualTheLanesAlone) {
  const auto log_probs = stacked({7, 2, 4}).log_softmax(-1), targets = torch::randint(1, 4, {lanes_, 2, 3}, index_);
  const std::vector<std::int64_t> inputs{7, 6}, lengths{3, 2};
  const auto input_tensor = shared(torch::tensor(inputs, index_)), length_tensor = shared(torch::tensor(lengths, index_));
  const auto forward = [&](const char* overload, ops::LaneValue x, ops::LaneValue t, ops::LaneValue i, ops::LaneValue l) {
    check_rule("aten::_ctc_loss", overload, lanes_, {std::move(x), std::move(t), std::move(i), std::move(l), plain(0), plain(false)},
               {.unchecked = {1}});  // LibTorch leaves alphas beyond a target's length as the memory was
  };
  for (const auto& t : {per_lane(targets), shared(targets[0]), shared(targets[0].flatten().slice(0, 0, 5))}) {
    forward("", per_lane(log_probs), t, integers(inputs), integers(lengths));
    forward("Tensor", per_lane_at(log_probs, 2), t, input_tensor, length_tensor);
  }
  std::vector<torch::Tensor> losses, alphas;
  for (std::int64_t lane = 0; lane < lanes_; ++lane) {
    auto [loss, alpha] = at::_ctc_loss(log_probs[lane], targets[0], inputs, lengths);
    losses.push_back(loss), alphas.push_back(alpha);
  }
  const std::vector<ops::LaneValue> common{per_lane(stacked({2})), per_lane(log_probs), shared(targets[0])};
  for (const bool as_tensor : {false, true}) {
    auto arguments = common;
    arguments.push_back(as_tensor ? input_tensor : integers(inputs));
    arguments.push_back(as_tensor ? length_tensor : integers(lengths));
    for (const auto& rest : {per_lane(torch::stack(losses)), per_lane(torch::stack(alphas)), plain(0), plain(false)}) arguments.push_back(rest);
    check_rule("aten::_ctc_loss_backward", as_tensor ? "Tensor" : "", lanes_, arguments, {.factor = 10});
  }
}

TEST_P(FoldedTest, UpsamplingWeightNormAndTrilinearEqualTheLanesAlone) {
  check_rule("aten::_upsample_nearest_exact2d", "", lanes_, {per_lane_at(stacked({2, 3, 4, 5}), 2), integers({7, 9}), none_, none_});
  check_rule("aten::_upsample_nearest_exact2d_backward", "", lanes_, {per_lane(stacked({2, 3, 7, 9})), integers({7, 9}), integers({2, 3, 4, 5}), none_, none_});
  const auto v = stacked({3, 4}), g = stacked({3, 1});
  check_rule("aten::_weight_norm_interface", "", lanes_, {per_lane(v), per_lane(g), plain(0)});
  check_rule("aten::_weight_norm_interface_backward", "", lanes_,
             {per_lane(stacked({3, 4})), per_lane(v), per_lane(g), per_lane(v.norm(2, {2}, true)), plain(0)}, {.factor = 10});
  for (const auto& left : {per_lane(stacked({6, 4})), shared(torch::randn({6, 4}, options_))})
    check_rule("aten::_trilinear", "", lanes_,
               {left, per_lane(stacked({3, 4, 4})), per_lane_at(stacked({6, 4}), 1), integers({1, 3}), integers({0}), integers({1, 2}), integers({2, 3}), plain(1)},
               {.factor = 10});
}

TEST_P(FoldedTest, InPlaceOperatorsAlongOneDimensionEqualTheLanesAlone) {
  const auto index = torch::randint(0, 3, {lanes_, 2, 4}, index_);
  for (const auto& self : {per_lane(stacked({3, 4})), per_lane_at(stacked({3, 4}), 2)}) {
    for (const auto& at : {per_lane(index), shared(index[0])}) {
      check_rule("aten::scatter_", "src", lanes_, {self, plain(0), at, shared(torch::randn({2, 4}, options_))}, {.factor = 10});
      check_rule("aten::scatter_", "value", lanes_, {self, plain(-2), at, plain(1)});
      check_rule("aten::scatter_", "reduce", lanes_, {self, plain(0), at, per_lane(stacked({2, 4})), plain("add")});
    }
    check_rule("aten::cumsum_", "", lanes_, {self, plain(-1), none_});
    check_rule("aten::tril_", "", lanes_, {self, plain(0)});
  }
  check_rule("aten::unfold_backward", "", lanes_, {per_lane(stacked({3, 2, 4})), integers({3, 7}), plain(1), plain(4), plain(3)});
}

INSTANTIATE_TEST_SUITE_P(Widths, FoldedTest, ::testing::Combine(::testing::Values(1, 3), ::testing::Values(torch::kFloat, torch::kDouble)));

TEST(RecurrentTest, LayersOfLongShortTermMemoryEqualTheLanesAlone) {
  torch::manual_seed(3);
  for (const std::int64_t lanes : {1, 3}) {
    const auto stacked = [&](std::vector<std::int64_t> sizes) { return sizes.insert(sizes.begin(), lanes), torch::randn(sizes); };
    const auto x = stacked({6, 4, 5}), wi = stacked({12, 5}), wh = stacked({12, 3}), bi = stacked({12}), bh = stacked({12}), h = stacked({4, 3}), c = stacked({4, 3});
    const std::vector<ops::LaneValue> layer{per_lane(x), per_lane(wi), per_lane(wh), per_lane(bi), per_lane(bh), per_lane(h), per_lane(c), plain(false),
                                            integers({}), plain(2), plain(3), plain(1), plain(true), plain(false), plain(false), plain(true)};
    check_rule("aten::mkldnn_rnn_layer", "", lanes, layer, {.unchecked = {3}});
  }
}

}  // namespace
}  // namespace hfta::test
