#include "hfta/ops/product.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <array>
#include <limits>

#include "hfta/ops/split_product_kernel.h"
#include "tests/ops/lane_cases.h"

namespace hfta::test {
namespace product_test {

using ::testing::Contains;
using ::testing::IsSupersetOf;
using ::testing::Not;

/// Width, dtype, where the lane axes of the per-lane tensors are, gaps between rows.
using Parameters = std::tuple<std::int64_t, torch::ScalarType, bool, bool>;

class ProductTest : public ::testing::TestWithParam<Parameters> {
 protected:
  void SetUp() override { torch::manual_seed(7); }
  std::int64_t lanes() const { return std::get<0>(GetParam()); }
  torch::ScalarType type() const { return std::get<1>(GetParam()); }
  LaneArgument lane(at::IntArrayRef sizes) const {
    const auto axis = std::get<2>(GetParam()) ? static_cast<std::int64_t>(sizes.size()) - 1 : 0;
    return random_lanes(lanes(), sizes, type(), axis, std::get<3>(GetParam()));
  }
  /// As `lane`, each lane transposed (`weight.t()`).
  LaneArgument transposed(std::int64_t rows, std::int64_t columns) const {
    auto argument = random_lanes(lanes(), {columns, rows}, type(), 0);
    for (auto& value : argument.of_lane) value = value.toTensor().t();
    argument.padded = std::get<3>(GetParam());
    return argument;
  }
  LaneArgument shared(at::IntArrayRef sizes) const { return random_shared(sizes, type()); }
};

TEST_P(ProductTest, MatrixProductsEqualTheLanesAlone) {
  EXPECT_THAT(expect_lanes_equal_alone("aten::mm", lanes(), {shared({5, 7}), lane({7, 3})}), IsSupersetOf({"wide", "batched", "looped"}));
  EXPECT_THAT(expect_lanes_equal_alone("aten::mm", lanes(), {lane({5, 7}), shared({7, 3})}), IsSupersetOf({"folded", "batched", "looped"}));
  EXPECT_THAT(expect_lanes_equal_alone("aten::mm", lanes(), {lane({5, 7}), lane({7, 3})}), IsSupersetOf({"batched", "looped"}));
  EXPECT_THAT(expect_lanes_equal_alone("aten::mm", lanes(), {shared({5, 7}), transposed(7, 3)}), Contains("wide"));
  EXPECT_THAT(expect_lanes_equal_alone("aten::mm", lanes(), {transposed(5, 7), shared({7, 3})}), Contains("folded"));
}

TEST_P(ProductTest, BatchesOfMatricesEqualTheLanesAlone) {
  EXPECT_THAT(expect_lanes_equal_alone("aten::bmm", lanes(), {shared({2, 5, 7}), lane({2, 7, 3})}), IsSupersetOf({"wide", "batched", "looped"}));
  EXPECT_THAT(expect_lanes_equal_alone("aten::bmm", lanes(), {lane({2, 5, 7}), shared({2, 7, 3})}), IsSupersetOf({"folded", "batched", "looped"}));
  EXPECT_THAT(expect_lanes_equal_alone("aten::bmm", lanes(), {lane({2, 5, 7}), lane({2, 7, 3})}), IsSupersetOf({"batched", "looped"}));
}

/// Heads of attention: batches whose matrices lie between each other in memory.
TEST_P(ProductTest, UnpackedBatchesEqualTheLanesAlone) {
  const auto between = [&](LaneArgument argument, std::int64_t a, std::int64_t b) {
    for (auto& value : argument.of_lane) value = value.toTensor().transpose(a, b);
    return argument;
  };
  const auto apart = [&](at::IntArrayRef sizes) { return random_lanes(lanes(), sizes, type(), 0, std::get<3>(GetParam())); };
  for (const auto& [n, k, m] : std::vector<std::array<std::int64_t, 3>>{{1, 1, 1}, {32, 16, 32}, {17, 5, 33}, {9, 130, 10}}) {
    for (const auto& left : {apart({6, n, k}), between(apart({n, 6, k}), 0, 1), between(apart({6, k, n}), 1, 2), shared({6, n, k})})
      for (const auto& right : {apart({6, k, m}), between(apart({6, m, k}), 1, 2)})
        EXPECT_THAT(expect_lanes_equal_alone("aten::bmm", lanes(), {left, right}), Contains("unpacked")) << n << ' ' << k << ' ' << m;
    EXPECT_THAT(expect_lanes_equal_alone("aten::bmm", lanes(), {apart({6, n, k}), shared({6, k, m})}), Contains("unpacked"));
    EXPECT_THAT(expect_lanes_equal_alone("aten::baddbmm", lanes(), {apart({m}), apart({6, n, k}), apart({6, k, m}), same(1), same(1)}), Contains("unpacked"));
  }
}

TEST_P(ProductTest, AddendsOfEveryShapeAreAdded) {
  for (const auto& sizes : std::vector<std::vector<std::int64_t>>{{3}, {1}, {5, 3}, {1, 3}, {5, 1}, {}}) {
    for (const auto& added : {shared(sizes), sizes.empty() ? shared(sizes) : lane(sizes)}) {
      for (const double beta : {1.0, 0.5}) {
        const auto call = [&](LaneArgument left, LaneArgument right) {
          expect_lanes_equal_alone("aten::addmm", lanes(), {added, std::move(left), std::move(right), same(beta), same(0.25)});
        };
        call(shared({5, 7}), transposed(7, 3));
        call(lane({5, 7}), shared({7, 3}));
        call(lane({5, 7}), transposed(7, 3));
      }
    }
  }
}

TEST_P(ProductTest, AddendsOfBatchesAreAdded) {
  for (const auto& sizes : std::vector<std::vector<std::int64_t>>{{2, 5, 3}, {1, 5, 3}, {2, 1, 3}, {2, 5, 1}, {3}}) {
    for (const auto& added : {shared(sizes), lane(sizes)}) {
      const auto call = [&](LaneArgument left, LaneArgument right) {
        expect_lanes_equal_alone("aten::baddbmm", lanes(), {added, std::move(left), std::move(right), same(2), same(1)});
      };
      call(shared({2, 5, 7}), lane({2, 7, 3}));
      call(lane({2, 5, 7}), shared({2, 7, 3}));
      call(lane({2, 5, 7}), lane({2, 7, 3}));
    }
  }
}

TEST_P(ProductTest, VectorsEqualTheLanesAlone) {
  expect_lanes_equal_alone("aten::mv", lanes(), {lane({5, 7}), lane({7})});
  expect_lanes_equal_alone("aten::mv", lanes(), {shared({5, 7}), lane({7})});
  expect_lanes_equal_alone("aten::mv", lanes(), {lane({5, 7}), shared({7})});
  expect_lanes_equal_alone("aten::addmv", lanes(), {lane({5}), lane({5, 7}), lane({7}), same(0.5), same(2)});
  expect_lanes_equal_alone("aten::addmv", lanes(), {shared({5}), shared({5, 7}), lane({7}), same(0.5), same(2)});
  expect_lanes_equal_alone("aten::addmv", lanes(), {lane({1}), lane({5, 7}), shared({7}), same(1), same(1)});
  expect_lanes_equal_alone("aten::dot", lanes(), {lane({7}), lane({7})});
  expect_lanes_equal_alone("aten::dot", lanes(), {shared({7}), lane({7})});
  expect_lanes_equal_alone("aten::dot", lanes(), {lane({7}), shared({7})});
}

/// Sizes around those of tiles, pairs of tiles and stretches, all large enough to be split.
TEST(ProductRulesTest, SplitProductsEqualTheLanesAlone) {
  torch::manual_seed(7);
  constexpr std::int64_t kLanes = 2;
  const auto expect_split = [](const std::string& name, const std::vector<LaneArgument>& arguments, double scale) {
    const auto took = expect_lanes_equal_alone(name, kLanes, arguments, "", scale);
    EXPECT_EQ(std::count(took.begin(), took.end(), "split"), ops::has_split_products());
  };
  for (const auto& [n, k, m] : std::vector<std::array<std::int64_t, 3>>{{32, 128, 32}, {33, 65, 70}, {1, 367, 411}, {401, 1, 333}, {403, 333, 1}, {17, 300, 49}, {150, 31, 129}}) {
    const auto transposed = [](LaneArgument argument) {
      for (auto& value : argument.of_lane) value = value.toTensor().t();
      return argument;
    };
    const double scale = 10 + static_cast<double>(k) / 5;  // roundings of longer sums
    const auto bias = random_lanes(kLanes, {m}, torch::kFloat, 0), gate = random_lanes(kLanes, {n, m}, torch::kFloat, 0);
    for (const auto& right : {transposed(random_lanes(kLanes, {m, k}, torch::kFloat, 0)), random_lanes(kLanes, {k, m}, torch::kFloat, 0, true), random_shared({k, m}, torch::kFloat)})
      for (const auto& left : {random_shared({n, k}, torch::kFloat), random_lanes(kLanes, {n, k}, torch::kFloat, 0), transposed(random_lanes(kLanes, {k, n}, torch::kFloat, 0))}) {
        SCOPED_TRACE(testing::Message() << n << ' ' << k << ' ' << m);
        expect_split("aten::mm", {left, right}, scale);
        expect_split("hfta::addmm_relu", {bias, left, right, same(1), same(1)}, scale);
        expect_split("hfta::mm_gated", {left, right, gate}, scale);
      }
  }
}

/// Largest error of a product against one in double, over that of LibTorch's.
double split_error(const torch::Tensor& left, const torch::Tensor& right) {
  const auto split = ops::product({left, std::nullopt}, {right, std::nullopt}, 1, ops::ProductLowering::Split);
  EXPECT_TRUE(split);
  const auto exact = left.to(torch::kDouble).mm(right.to(torch::kDouble));
  const auto error = [&](const torch::Tensor& got) { return (got.to(torch::kDouble) - exact).square().mean().sqrt().item<double>(); };
  return split ? error(split->tensor[0]) / error(left.mm(right)) : 0;
}

TEST(ProductRulesTest, SplitProductsAreAsExactAsFloats) {
  if (!ops::has_split_products()) GTEST_SKIP() << "no matrix unit";
  torch::manual_seed(7);
  const auto left = torch::randn({64, 200}), right = torch::randn({200, 48});
  EXPECT_LT(split_error(left, right), 1);
  EXPECT_LT(split_error(left * torch::logspace(-6, 6, 200), right), 1.5) << "numbers of every size";
  EXPECT_LT(split_error(left.abs(), right.abs()), 1.5) << "sums that do not cancel";
  EXPECT_LT(split_error(left * 1e-30, right * 1e20), 1) << "small numbers";
  EXPECT_LT(split_error(left * 1e30, right * 1e-20), 1) << "large numbers";
}

TEST(ProductRulesTest, SplitProductsKeepWhatIsNotFiniteInItsLane) {
  if (!ops::has_split_products()) GTEST_SKIP() << "no matrix unit";
  constexpr auto kInfinity = std::numeric_limits<float>::infinity(), kMost = std::numeric_limits<float>::max();
  auto left = torch::randn({4, 70, 64}), right = torch::randn({4, 40, 64});
  left[1][4][8] = std::numeric_limits<float>::quiet_NaN();
  right[2][6][8] = kInfinity, right[2].select(1, 8).narrow(0, 7, 3).fill_(1);
  left[3][69][63] = kMost, right[3].select(1, 63).fill_(0.5);
  const auto result = ops::product({left, 0}, {right.transpose(1, 2), 0}, 4, ops::ProductLowering::Split);
  ASSERT_TRUE(result);
  EXPECT_TRUE(close(result->tensor[0], left[0].mm(right[0].t()), tolerance(torch::kFloat), 20));
  EXPECT_EQ(result->tensor[1].isnan().sum().item<std::int64_t>(), 40);
  EXPECT_EQ(result->tensor[2].isinf().sum().item<std::int64_t>(), 70);
  EXPECT_EQ(result->tensor[2].isfinite().logical_not().sum().item<std::int64_t>(), 70);
  EXPECT_TRUE(result->tensor[3].isfinite().all().item<bool>());
  EXPECT_FLOAT_EQ(result->tensor[3][69][0].item<float>(), kMost * 0.5F);
}

/// Sizes around those of the kernel's vectors, tiles and stretches of the inner axis.
TEST_P(ProductTest, UnpackedProductsEqualTheLanesAlone) {
  for (const auto& [n, k, m] : std::vector<std::array<std::int64_t, 3>>{{1, 1, 1}, {16, 32, 48}, {17, 5, 33}, {32, 300, 10}, {7, 257, 70}, {40, 9, 130}, {15, 3, 64}}) {
    for (const auto& right : {transposed(k, m), random_lanes(lanes(), {k, m}, type(), 0)})
      for (const auto& left : {shared({n, k}), lane({n, k}), transposed(n, k)}) {
        EXPECT_THAT(expect_lanes_equal_alone("aten::mm", lanes(), {left, right}), Contains("unpacked")) << n << ' ' << k << ' ' << m;
        for (const auto& bias : {shared({m}), random_lanes(lanes(), {m}, type(), 0)})
          EXPECT_THAT(expect_lanes_equal_alone("aten::addmm", lanes(), {bias, left, right, same(1), same(1)}), Contains("unpacked")) << n << ' ' << k << ' ' << m;
      }
    EXPECT_THAT(expect_lanes_equal_alone("aten::mm", lanes(), {lane({n, k}), shared({k, m})}), Contains("unpacked"));
  }
}

TEST_P(ProductTest, ActivatedProductsEqualTheLanesAlone) {
  for (const auto& [n, k, m] : std::vector<std::array<std::int64_t, 3>>{{1, 1, 1}, {16, 32, 48}, {17, 5, 33}, {32, 140, 10}, {7, 130, 70}})
    for (const auto& right : {transposed(k, m), lane({k, m})}) {
      EXPECT_THAT(expect_lanes_equal_alone("hfta::addmm_relu", lanes(), {lane({m}), lane({n, k}), right, same(1), same(1)}), Contains("unpacked")) << n << ' ' << k << ' ' << m;
      for (const auto& gate : {shared({n, m}), lane({n, m})})
        EXPECT_THAT(expect_lanes_equal_alone("hfta::mm_gated", lanes(), {lane({n, k}), right, gate}), Contains("unpacked")) << n << ' ' << k << ' ' << m;
    }
}

TEST(ProductRulesTest, UnpackedProductsKeepANaNInItsLane) {
  auto left = torch::randn({3, 5, 9}), right = torch::randn({3, 7, 9});
  left[1][4][8] = std::numeric_limits<float>::quiet_NaN();
  right[2][6][8] = std::numeric_limits<float>::infinity();
  const auto result = ops::product({left, 0}, {right.transpose(1, 2), 0}, 3, ops::ProductLowering::Unpacked);
  ASSERT_TRUE(result);
  EXPECT_TRUE(result->tensor[0].isfinite().all().item<bool>());
  EXPECT_EQ(result->tensor[1].isnan().sum().item<std::int64_t>(), 7);
  EXPECT_EQ(result->tensor[2].isfinite().logical_not().sum().item<std::int64_t>(), 5);
}

TEST_P(ProductTest, EmptyAxesStayEmpty) {
  expect_lanes_equal_alone("aten::mm", lanes(), {shared({0, 7}), lane({7, 3})});
  expect_lanes_equal_alone("aten::mm", lanes(), {lane({5, 0}), lane({0, 3})});
}

INSTANTIATE_TEST_SUITE_P(Widths, ProductTest,
                         ::testing::Combine(::testing::Values(1, 3), ::testing::Values(torch::kFloat, torch::kDouble), ::testing::Bool(),
                                            ::testing::Bool()));

TEST(ProductRulesTest, EveryLoweringIsRegistered) {
  const auto* rules = ops::find_rules({"aten::addmm", ""});
  ASSERT_NE(rules, nullptr);
  ASSERT_EQ(rules->lowerings.size(), ops::kProductLowerings.size());
  for (std::size_t i = 0; i < rules->lowerings.size(); ++i) EXPECT_EQ(rules->lowerings[i].name, ops::name_of(ops::kProductLowerings[i]));
}

TEST(ProductRulesTest, NumbersThatDifferBetweenLanesAreNotTaken) {
  const ops::LaneTensor matrix{torch::randn({2, 3, 3}), 0};
  const std::vector<ops::LaneValue> values{matrix, matrix, matrix, ops::LaneNumbers{{1.0, 2.0}}, c10::IValue(1)};
  for (const auto& lowering : ops::find_rules({"aten::addmm", ""})->lowerings) EXPECT_FALSE(lowering.rule({2, {}}, values)) << lowering.name;
}

TEST(ProductRulesTest, OtherArgumentsAreNotTaken) {
  const ops::LaneTensor matrix{torch::randn({2, 3, 3}), 0}, vector{torch::randn({2, 3}), 0};
  for (const auto lowering : ops::kProductLowerings) {
    EXPECT_FALSE(ops::product(matrix, vector, 2, lowering));
    EXPECT_FALSE(ops::product(vector, vector, 2, lowering));
  }
  const std::vector<ops::LaneValue> missing{matrix, c10::IValue(torch::Tensor())}, few{matrix};
  for (const auto& lowering : ops::find_rules({"aten::mm", ""})->lowerings) {
    EXPECT_FALSE(lowering.rule({2, {}}, missing)) << lowering.name;
    EXPECT_FALSE(lowering.rule({2, {}}, few)) << lowering.name;
  }
}

TEST(ProductRulesTest, AWideProductLeavesLanesBesideColumns) {
  const ops::LaneTensor shared{torch::randn({5, 7}), std::nullopt}, weight{torch::randn({3, 2, 7}).transpose(1, 2), 0};
  const auto result = ops::product(shared, weight, 3, ops::ProductLowering::Wide);
  ASSERT_TRUE(result);
  EXPECT_EQ(result->axis, 1);
  EXPECT_TRUE(result->tensor.is_contiguous());
}

}  // namespace product_test
}  // namespace hfta::test
