#include "tests/ops/rule_check.h"

namespace hfta::test {
namespace {

/// Width, dtype, where the lane axis lies.
class SoftmaxTest : public ::testing::TestWithParam<std::tuple<std::int64_t, torch::ScalarType, std::int64_t>> {
 protected:
  void SetUp() override { torch::manual_seed(5); }
  std::int64_t lanes_ = std::get<0>(GetParam()), axis_ = std::get<2>(GetParam());
  torch::ScalarType type_ = std::get<1>(GetParam());
  torch::TensorOptions options_ = torch::TensorOptions().dtype(type_).device(device());

  torch::Tensor stacked(std::vector<std::int64_t> sizes) const {
    sizes.insert(sizes.begin(), lanes_);
    return torch::randn(sizes, options_) * 3;
  }
};

const std::vector<std::vector<std::int64_t>> kSoftmaxShapes{{7, 10}, {3, 5, 37}, {2, 300}, {5, 1}, {17, 65}, {11}};

TEST_P(SoftmaxTest, RowsAndTheirGradientsEqualTheLanesAlone) {
  for (const auto& sizes : kSoftmaxShapes) {
    const auto x = stacked(sizes);
    const auto axis = std::min<std::int64_t>(axis_, static_cast<std::int64_t>(sizes.size()));
    for (const std::int64_t dim : {-1, 0}) {
      check_rule("aten::_softmax", "", lanes_, {per_lane_at(x, axis), plain(dim), plain(false)});
      check_rule("aten::_log_softmax", "", lanes_, {per_lane_at(x, axis), plain(dim), plain(false)});
      check_rule("aten::_safe_softmax", "", lanes_, {per_lane_at(x, axis), plain(dim), kNone});
      const auto physical = dim == 0 ? 1 : -1;
      for (const auto& grad : {per_lane(stacked(sizes)), per_lane_at(stacked(sizes), axis), shared(torch::ones(sizes, options_))}) {
        check_rule("aten::_softmax_backward_data", "", lanes_, {grad, per_lane_at(x.softmax(physical), axis), plain(dim), plain(type_)}, {.factor = 10});
        check_rule("aten::_log_softmax_backward_data", "", lanes_, {grad, per_lane_at(x.log_softmax(physical), axis), plain(dim), plain(type_)}, {.factor = 10});
      }
    }
  }
}

TEST_P(SoftmaxTest, ExtremeValuesGiveWhatTheLaneAloneGives) {
  constexpr double inf = std::numeric_limits<double>::infinity();
  for (const std::int64_t classes : {5, 100}) {
    auto x = stacked({6, classes});
    x.select(1, 0).fill_(-inf);
    x.select(1, 1).select(1, 2).fill_(-inf);
    x.select(1, 2).select(1, 1).fill_(inf);
    x.select(1, 3).select(1, 0).fill_(std::nan(""));
    x.select(1, 4).mul_(1e4);
    x.select(1, 5).fill_(0);
    check_rule("aten::_softmax", "", lanes_, {per_lane(x), plain(1), plain(false)});
    check_rule("aten::_log_softmax", "", lanes_, {per_lane(x), plain(1), plain(false)});
    check_rule("aten::_safe_softmax", "", lanes_, {per_lane(x), plain(1), kNone});
  }
}

INSTANTIATE_TEST_SUITE_P(Widths, SoftmaxTest,
                         ::testing::Combine(::testing::Values(1, 3), ::testing::Values(torch::kFloat, torch::kDouble), ::testing::Values(0, 1, 2)));

}  // namespace
}  // namespace hfta::test
