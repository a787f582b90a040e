#include "hfta/ops/batch_norm.h"

#include "tests/ops/rule_check.h"

namespace hfta::test {
namespace {

/// Width, dtype, where the lane axis of the input lies.
class BatchNormTest : public ::testing::TestWithParam<std::tuple<std::int64_t, torch::ScalarType, std::int64_t>> {
 protected:
  void SetUp() override { torch::manual_seed(5); }
  std::int64_t lanes_ = std::get<0>(GetParam());
  torch::TensorOptions options_ = torch::TensorOptions().dtype(std::get<1>(GetParam())).device(device());

  ops::LaneValue input(std::vector<std::int64_t> sizes) const {
    sizes.insert(sizes.begin(), lanes_);
    return per_lane_at(torch::randn(sizes, options_) * 2 + 1, std::get<2>(GetParam()));
  }
  ops::LaneValue rows(std::int64_t channels) const { return per_lane(torch::rand({lanes_, channels}, options_) + 0.5); }
  /// As `rows`, with a gap between the lanes as stacked parameters have.
  ops::LaneValue gapped(std::int64_t channels) const {
    auto memory = torch::rand({lanes_, channels + 3}, options_) + 0.5;
    return per_lane(memory.narrow(1, 0, channels));
  }
  ops::LaneValue some(double first) const {
    std::vector<double> values;
    for (std::int64_t lane = 0; lane < lanes_; ++lane) values.push_back(first * static_cast<double>(lane + 1));
    return numbers(values);
  }
};

const std::vector<std::vector<std::int64_t>> kBatchNormShapes{{7, 5}, {4, 5, 3}, {2, 5, 3, 7}, {2, 5, 2, 3, 4}, {3, 5, 41, 37}};

TEST_P(BatchNormTest, TrainingNormalizesEachLaneAndUpdatesItsStatistics) {
  for (const auto& shape : kBatchNormShapes) {
    for (const auto& momentum : {plain(0.1), some(0.1)})
      check_rule("aten::native_batch_norm", "", lanes_, {input(shape), rows(5), rows(5), gapped(5), gapped(5), plain(true), momentum, plain(1e-5)});
    check_rule("aten::native_batch_norm", "", lanes_, {input(shape), kNone, kNone, kNone, kNone, plain(true), plain(0.1), some(1e-3)});
    check_rule("aten::_native_batch_norm_legit", "no_stats", lanes_, {input(shape), rows(5), rows(5), plain(true), plain(0.1), plain(1e-5)});
  }
}

TEST_P(BatchNormTest, SharedInputsAndWeightsServeAllLanes) {
  const auto x = shared(torch::randn({6, 5, 4}, options_)), w = shared(torch::rand({5}, options_));
  check_rule("aten::native_batch_norm", "", lanes_, {x, rows(5), rows(5), gapped(5), gapped(5), plain(true), some(0.2), plain(1e-5)});
  check_rule("aten::native_batch_norm", "", lanes_, {input({6, 5, 4}), w, w, gapped(5), gapped(5), plain(true), plain(0.1), plain(1e-5)});
}

// Case A3.
TEST_P(BatchNormTest, EvaluationUsesTheRunningStatisticsAndLeavesThem) {
  for (const auto& shape : kBatchNormShapes)
    check_rule("aten::native_batch_norm", "", lanes_, {input(shape), rows(5), rows(5), gapped(5), gapped(5), plain(false), plain(0.1), plain(1e-5)});
  const auto running = shared(torch::rand({5}, options_) + 0.5);
  check_rule("aten::native_batch_norm", "", lanes_, {input({7, 5}), rows(5), rows(5), running, running, plain(false), plain(0.1), plain(1e-5)});
}

TEST_P(BatchNormTest, GradientsEqualTheLanesAlone) {
  for (const auto& shape : kBatchNormShapes) {
    for (const auto& mask : {std::vector<bool>{true, true, true}, {true, false, false}, {false, true, true}}) {
      for (const bool training : {true, false}) {
        const auto empty = per_lane(torch::empty({lanes_, 0}, options_));
        const auto mean = training ? rows(5) : empty, deviation = training ? rows(5) : empty;
        check_rule("aten::native_batch_norm_backward", "", lanes_,
                   {input(shape), input(shape), rows(5), gapped(5), gapped(5), mean, deviation, plain(training), plain(1e-5), flags(mask)},
                   {.factor = 10});
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Widths, BatchNormTest,
                         ::testing::Combine(::testing::Values(1, 3), ::testing::Values(torch::kFloat, torch::kDouble), ::testing::Values(0, 1, 2)));

// Case A1.
TEST(BatchNormFiguresTest, TwoLanesOfOneChannelAfterOneStep) {
  const auto x = torch::tensor({0.0, 2.0, 4.0, 8.0}).reshape({2, 2, 1});
  for (const auto lowering : ops::kBatchNormLowerings) {
    const auto mean = torch::zeros({2, 1}, torch::kDouble), var = torch::ones({2, 1}, torch::kDouble);
    const auto one = torch::ones({2, 1}, torch::kDouble), zero = torch::zeros({2, 1}, torch::kDouble);
    const ops::BatchNormState state{ops::LaneTensor{one, 0}, ops::LaneTensor{zero, 0}, ops::LaneTensor{mean, 0}, ops::LaneTensor{var, 0}};
    const auto result = ops::batch_norm({x.to(torch::kDouble), 0}, state, {.training = true, .momentum = {0.1, 0.1}, .eps = {1e-5, 1e-5}}, 2, lowering);
    ASSERT_TRUE(result);
    EXPECT_TRUE(torch::allclose(mean.flatten(), torch::tensor({0.1, 0.6}, torch::kDouble)));
    EXPECT_TRUE(torch::allclose(var.flatten(), torch::tensor({1.1, 1.7}, torch::kDouble)));
    const auto expected = torch::tensor({-0.999995, 0.999995, -0.99999875, 0.99999875}, torch::kDouble);
    EXPECT_TRUE(torch::allclose(ops::lanes_first(result->output, 2).flatten(), expected, 0, 1e-8));
  }
}

}  // namespace
}  // namespace hfta::test
