#include "tests/ops/rule_check.h"

namespace hfta::test {
namespace {

/// Width, dtype, where the lane axis of the input lies.
class LayerNormTest : public ::testing::TestWithParam<std::tuple<std::int64_t, torch::ScalarType, std::int64_t>> {
 protected:
  void SetUp() override { torch::manual_seed(5); }
  std::int64_t lanes_ = std::get<0>(GetParam()), axis_ = std::get<2>(GetParam());
  torch::TensorOptions options_ = torch::TensorOptions().dtype(std::get<1>(GetParam())).device(device());

  torch::Tensor stacked(std::vector<std::int64_t> sizes) const {
    sizes.insert(sizes.begin(), lanes_);
    return torch::randn(sizes, options_);
  }
  ops::LaneValue gapped(std::int64_t size) const { return per_lane((torch::rand({lanes_, size + 3}, options_) + 0.5).narrow(1, 0, size)); }
};

const std::vector<std::vector<std::int64_t>> kLayerNormShapes{{7, 37}, {2, 3, 19}, {2, 3, 4, 5}, {1, 16}};

TEST_P(LayerNormTest, NormalizesTheRowsOfEachLane) {
  for (const auto& sizes : kLayerNormShapes) {
    const auto n = sizes.back();
    const auto x = per_lane_at(stacked(sizes), axis_);
    check_rule("aten::native_layer_norm", "", lanes_, {x, integers({n}), gapped(n), gapped(n), plain(1e-5)});
    check_rule("aten::native_layer_norm", "", lanes_, {x, integers({n}), gapped(n), kNone, plain(1e-3)});
    check_rule("aten::native_layer_norm", "", lanes_, {x, integers({n}), kNone, kNone, plain(1e-5)});
    check_rule("aten::native_layer_norm", "", lanes_, {shared(torch::randn(sizes, options_)), integers({n}), gapped(n), gapped(n), plain(1e-5)});
    check_rule("aten::native_layer_norm", "", lanes_, {x, integers({n}), shared(torch::randn({n}, options_)), kNone, plain(1e-5)});
  }
  check_rule("aten::native_layer_norm", "", lanes_, {per_lane_at(stacked({2, 3, 5}), axis_), integers({3, 5}), per_lane(stacked({3, 5})), kNone, plain(1e-5)});
}

TEST_P(LayerNormTest, GradientsEqualTheLanesAlone) {
  for (const auto& sizes : kLayerNormShapes) {
    const auto n = sizes.back();
    const auto x = stacked(sizes);
    const auto statistics = torch::native_layer_norm(x, {n}, {}, {}, 1e-5);
    const auto mean = per_lane(std::get<1>(statistics)), inverse_std = per_lane(std::get<2>(statistics));
    for (const auto& grad : {per_lane(stacked(sizes)), per_lane_at(stacked(sizes), axis_)}) {
      for (const auto& mask : {std::vector<bool>{true, true, true}, {true, false, false}, {false, true, true}}) {
        check_rule("aten::native_layer_norm_backward", "", lanes_,
                   {grad, per_lane_at(x, axis_), integers({n}), mean, inverse_std, gapped(n), gapped(n), flags(mask)}, {.factor = 10});
      }
      check_rule("aten::native_layer_norm_backward", "", lanes_,
                 {grad, per_lane_at(x, axis_), integers({n}), mean, inverse_std, kNone, kNone, flags({true, false, false})}, {.factor = 10});
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Widths, LayerNormTest,
                         ::testing::Combine(::testing::Values(1, 3), ::testing::Values(torch::kFloat, torch::kDouble), ::testing::Values(0, 1)));

}  // namespace
}  // namespace hfta::test
