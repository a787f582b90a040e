#include "hfta/ops/product.h"

#include <gmock/gmock.h>

#include <array>
#include <limits>

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
