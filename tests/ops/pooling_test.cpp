#include "hfta/ops/pooling.h"

#include <gmock/gmock.h>

#include "tests/ops/lane_cases.h"

namespace hfta::test {
namespace pooling_test {

using ::testing::Contains;
using ::testing::ElementsAre;
using Sizes = std::vector<std::int64_t>;

/// An operator, its gradient, one lane's input and what follows the tensors.
struct Case {
  std::string name, backward;
  Sizes input;
  std::vector<c10::IValue> options;
  bool with_indices = false;
  bool options_in_backward = true;
};

std::vector<Case> cases() {
  const c10::IValue none;
  return {
      {"max_pool2d_with_indices", "max_pool2d_with_indices_backward", {2, 3, 9, 8}, {Sizes{2}, Sizes{2}, Sizes{0}, Sizes{1}, false}, true},
      {"max_pool2d_with_indices", "max_pool2d_with_indices_backward", {3, 9, 8}, {Sizes{3, 2}, Sizes{2, 1}, Sizes{1, 0}, Sizes{1, 2}, true}, true},
      {"max_pool3d_with_indices", "max_pool3d_with_indices_backward", {2, 3, 5, 6, 4}, {Sizes{2}, Sizes{2, 1, 1}, Sizes{0}, Sizes{1}, false}, true},
      {"avg_pool2d", "avg_pool2d_backward", {2, 3, 9, 8}, {Sizes{3, 2}, Sizes{2, 2}, Sizes{1, 1}, false, true, none}},
      {"avg_pool2d", "avg_pool2d_backward", {3, 9, 8}, {Sizes{2}, Sizes{2}, Sizes{0}, true, false, 3}},
      {"avg_pool3d", "avg_pool3d_backward", {2, 3, 5, 6, 4}, {Sizes{2}, Sizes{2}, Sizes{0}, false, true, none}},
      {"_adaptive_avg_pool2d", "_adaptive_avg_pool2d_backward", {2, 3, 9, 8}, {Sizes{2, 3}}, false, false},
      {"_adaptive_avg_pool2d", "_adaptive_avg_pool2d_backward", {3, 9, 8}, {Sizes{1, 1}}, false, false},
      {"_adaptive_avg_pool3d", "_adaptive_avg_pool3d_backward", {2, 3, 5, 6, 4}, {Sizes{2, 3, 1}}, false, false},
      {"adaptive_max_pool2d", "adaptive_max_pool2d_backward", {2, 3, 9, 8}, {Sizes{2, 3}}, true, false},
      {"adaptive_max_pool3d", "adaptive_max_pool3d_backward", {2, 3, 5, 6, 4}, {Sizes{2, 3, 1}}, true, false},
  };
}

class PoolingTest : public ::testing::TestWithParam<std::tuple<Case, std::int64_t, torch::ScalarType, std::int64_t>> {
 protected:
  void SetUp() override { torch::manual_seed(17); }
  const Case& shapes() const { return std::get<0>(GetParam()); }
  std::int64_t lanes() const { return std::get<1>(GetParam()); }
  torch::ScalarType type() const { return std::get<2>(GetParam()); }
  std::int64_t axis() const { return std::get<3>(GetParam()); }
  LaneArgument images(const Sizes& sizes) const { return random_lanes(lanes(), sizes, type(), axis()); }
  bool direct() const { return shapes().name == "max_pool2d_with_indices"; }

  std::vector<LaneArgument> forward(const LaneArgument& input) const {
    std::vector<LaneArgument> arguments{input};
    for (const auto& option : shapes().options) arguments.push_back(same(option));
    return arguments;
  }
  std::vector<LaneArgument> backward(const LaneArgument& input, bool shared_gradient) const {
    const auto op = operator_named("aten::" + shapes().name);
    std::vector<torch::Tensor> indices;
    Sizes output_sizes;
    for (std::int64_t lane = 0; lane < lanes(); ++lane) {
      const auto results = alone(op, forward(input), lane);
      output_sizes = results[0].toTensor().sizes().vec();
      if (shapes().with_indices) indices.push_back(results[1].toTensor());
    }
    const auto gradient = shared_gradient ? random_shared(output_sizes, type()) : images(output_sizes);
    std::vector<LaneArgument> arguments{gradient, input};
    if (shapes().options_in_backward) {
      for (const auto& option : shapes().options) arguments.push_back(same(option));
    }
    if (shapes().with_indices) arguments.push_back(per_lane(indices, 0));
    return arguments;
  }
};

TEST_P(PoolingTest, OutputsEqualTheLanesAlone) {
  const auto took = expect_lanes_equal_alone("aten::" + shapes().name, lanes(), forward(images(shapes().input)));
  EXPECT_THAT(took, Contains("native"));
  EXPECT_EQ(std::ranges::count(took, "direct"), direct() ? 1 : 0);
}

TEST_P(PoolingTest, GradientsEqualTheLanesAlone) {
  for (const bool shared_gradient : {false, true}) {
    const auto took = expect_lanes_equal_alone("aten::" + shapes().backward, lanes(), backward(images(shapes().input), shared_gradient));
    EXPECT_THAT(took, Contains("native"));
    EXPECT_EQ(std::ranges::count(took, "direct"), direct() ? 1 : 0);
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, PoolingTest,
                         ::testing::Combine(::testing::ValuesIn(cases()), ::testing::Values(1, 3), ::testing::Values(torch::kFloat, torch::kDouble),
                                            ::testing::Values(0, 1, 2)));

TEST(PoolingRulesTest, UnpoolingEqualsTheLanesAlone) {
  torch::manual_seed(3);
  for (const std::int64_t lanes : {1, 3})
    for (const std::int64_t axis : {0, 1, 2}) {
      std::vector<torch::Tensor> values, indices;
      for (std::int64_t lane = 0; lane < lanes; ++lane) {
        auto [pooled, where] = torch::max_pool2d_with_indices(torch::randn({2, 3, 9, 8}), 2);
        values.push_back(pooled), indices.push_back(where);
      }
      EXPECT_THAT(expect_lanes_equal_alone("aten::max_unpool2d", lanes, {per_lane(values, axis), per_lane(indices, 0), same(Sizes{9, 8})}), Contains("native"));
    }
}

TEST(PoolingRulesTest, LanesBesideChannelsStayThere) {
  const ops::LaneTensor images{torch::randn({2, 3, 4, 6, 6}), 1};
  const std::vector<ops::LaneValue> arguments{images, Sizes{2}, Sizes{2}, Sizes{0}, Sizes{1}, false};
  const auto results = ops::pooling(operator_named("aten::max_pool2d_with_indices"), arguments, 3, 2, ops::PoolingLowering::Direct);
  ASSERT_TRUE(results);
  const auto& output = std::get<ops::LaneTensor>(results->at(0));
  EXPECT_EQ(output.axis, 1);
  EXPECT_TRUE(output.tensor.is_contiguous());
}

TEST(PoolingRulesTest, OtherArgumentsAreNotTaken) {
  const auto op = operator_named("aten::max_pool2d_with_indices");
  const std::vector<ops::LaneValue> options{Sizes{2}, Sizes{2}, Sizes{0}, Sizes{1}, false};
  const auto with = [&](ops::LaneValue first) {
    std::vector<ops::LaneValue> arguments{std::move(first)};
    arguments.insert(arguments.end(), options.begin(), options.end());
    return arguments;
  };
  for (const auto lowering : ops::kPoolingLowerings) {
    EXPECT_FALSE(ops::pooling(op, with(ops::LaneTensor{torch::randn({2, 5, 5}), 0}), 2, 2, lowering));
    EXPECT_FALSE(ops::pooling(op, with(ops::LaneNumbers{{1, 2}}), 2, 2, lowering));
    EXPECT_FALSE(ops::pooling(op, options, 2, 2, lowering));
  }
  const auto halves = ops::LaneTensor{torch::randn({2, 3, 4, 6, 6}).to(torch::kBFloat16), 0};
  EXPECT_FALSE(ops::pooling(op, with(halves), 2, 2, ops::PoolingLowering::Direct));
  EXPECT_TRUE(ops::pooling(op, with(halves), 2, 2, ops::PoolingLowering::Native));
}

}  // namespace pooling_test
}  // namespace hfta::test
