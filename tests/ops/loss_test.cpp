#include "tests/ops/rule_check.h"

namespace hfta::test {
namespace {

/// Width, dtype, reduction.
class LossTest : public ::testing::TestWithParam<std::tuple<std::int64_t, torch::ScalarType, std::int64_t>> {
 protected:
  void SetUp() override { torch::manual_seed(5); }
  std::int64_t lanes_ = std::get<0>(GetParam()), reduction_ = std::get<2>(GetParam());
  torch::TensorOptions options_ = torch::TensorOptions().dtype(std::get<1>(GetParam())).device(device());
  ops::LaneValue mode_ = plain(reduction_), none_ = plain(c10::IValue());

  torch::Tensor stacked(std::vector<std::int64_t> sizes) const {
    sizes.insert(sizes.begin(), lanes_);
    return torch::randn(sizes, options_);
  }
  ops::LaneValue some(double first, double step) const {
    std::vector<double> values;
    for (std::int64_t lane = 0; lane < lanes_; ++lane) values.push_back(first + step * static_cast<double>(lane));
    return numbers(values);
  }
  /// A gradient of the loss of values of this shape: per lane, and shared as a loss's own is.
  std::vector<ops::LaneValue> gradients(const std::vector<std::int64_t>& sizes) const {
    if (reduction_ == at::Reduction::None) return {per_lane(stacked(sizes)), per_lane_at(stacked(sizes), 1)};
    return {per_lane(stacked({})), shared(torch::ones({}, options_))};
  }
  /// Predictions and targets of this shape in all ways they can be shared.
  std::vector<std::pair<ops::LaneValue, ops::LaneValue>> pairs(const std::vector<std::int64_t>& sizes) const {
    const auto a = stacked(sizes), b = stacked(sizes);
    return {{per_lane(a), per_lane(b)}, {per_lane_at(a, 1), shared(b[0])}, {shared(a[0]), per_lane_at(b, 2)}};
  }
};

TEST_P(LossTest, RegressionLossesEqualTheLanesAlone) {
  for (const auto& [self, target] : pairs({3, 4})) {
    check_rule("aten::smooth_l1_loss", "", lanes_, {self, target, mode_, some(0.5, 0.5)});
    check_rule("aten::huber_loss", "", lanes_, {self, target, mode_, some(0.5, 0.5)});
    check_rule("aten::soft_margin_loss", "", lanes_, {self, target, mode_});
    for (const auto& grad : gradients({3, 4})) {
      check_rule("aten::mse_loss_backward", "", lanes_, {grad, self, target, mode_});
      check_rule("aten::soft_margin_loss_backward", "", lanes_, {grad, self, target, mode_});
      for (const auto& number : {plain(0.7), some(0.5, 0.5)}) {
        check_rule("aten::smooth_l1_loss_backward", "", lanes_, {grad, self, target, mode_, number});
        check_rule("aten::huber_loss_backward", "", lanes_, {grad, self, target, mode_, number});
      }
    }
  }
}

TEST_P(LossTest, BinaryCrossEntropyWithLogitsEqualsTheLanesAlone) {
  for (const auto& [self, target] : pairs({3, 4}))
    for (const auto& weight : {none_, per_lane(stacked({4}).abs()), shared(torch::rand({3, 1}, options_))})
      for (const auto& positive : {none_, per_lane(stacked({4}).abs()), shared(torch::rand({4}, options_))})
        check_rule("aten::binary_cross_entropy_with_logits", "", lanes_, {self, target, weight, positive, mode_});
}

TEST_P(LossTest, MarginLossesEqualTheLanesAlone) {
  const auto index = torch::TensorOptions().dtype(torch::kLong).device(device());
  const auto target = torch::randint(0, 5, {lanes_, 7}, index), labels = torch::randint(-1, 5, {lanes_, 7, 5}, index);
  for (const auto& self : {per_lane(stacked({7, 5})), per_lane_at(stacked({7, 5}), 1)}) {
    for (const auto& t : {per_lane(target), shared(target[0])})
      for (const auto& weight : {none_, shared(torch::rand({5}, options_))}) {
        check_rule("aten::multi_margin_loss", "", lanes_, {self, t, plain(1), plain(0.8), weight, mode_});
        for (const auto& grad : gradients({7}))
          check_rule("aten::multi_margin_loss_backward", "", lanes_, {grad, self, t, plain(2), plain(0.8), weight, mode_});
      }
    check_rule("aten::multilabel_margin_loss_forward", "", lanes_, {self, per_lane(labels), mode_});
    const auto marks = (torch::rand({lanes_, 7, 5}, options_) > 0.5).to(std::get<1>(GetParam()));
    for (const auto& grad : gradients({7}))
      check_rule("aten::multilabel_margin_loss_backward", "", lanes_, {grad, self, per_lane(labels), mode_, per_lane(marks)});
  }
  check_rule("aten::multi_margin_loss", "", lanes_, {per_lane(stacked({5})), shared(target[0][0]), plain(1), plain(1), none_, mode_});
  check_rule("aten::multilabel_margin_loss_forward", "", lanes_, {per_lane(stacked({5})), shared(labels[0][0]), mode_});
}

INSTANTIATE_TEST_SUITE_P(Widths, LossTest,
                         ::testing::Combine(::testing::Values(1, 3), ::testing::Values(torch::kFloat, torch::kDouble),
                                            ::testing::Values(at::Reduction::None, at::Reduction::Mean, at::Reduction::Sum)));

}  // namespace
}  // namespace hfta::test
