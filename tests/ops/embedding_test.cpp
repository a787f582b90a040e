#include "tests/ops/rule_check.h"

namespace hfta::test {
namespace {

/// Width, dtype.
class EmbeddingTest : public ::testing::TestWithParam<std::tuple<std::int64_t, torch::ScalarType>> {
 protected:
  void SetUp() override { torch::manual_seed(5); }
  std::int64_t lanes_ = std::get<0>(GetParam());
  torch::TensorOptions options_ = torch::TensorOptions().dtype(std::get<1>(GetParam())).device(device());

  torch::Tensor stacked(std::vector<std::int64_t> sizes) const {
    sizes.insert(sizes.begin(), lanes_);
    return torch::randn(sizes, options_);
  }
  torch::Tensor indices(std::vector<std::int64_t> sizes, torch::ScalarType type = torch::kLong) const {
    sizes.insert(sizes.begin(), lanes_);
    return torch::randint(0, 11, sizes, torch::TensorOptions().dtype(type).device(device()));
  }
  ops::LaneValue table() const { return per_lane(torch::randn({lanes_, 11 * 5 + 3}, options_).narrow(1, 0, 55).unflatten(1, {11, 5})); }
};

TEST_P(EmbeddingTest, RowsAreThoseOfTheLanesTables) {
  const auto none = plain(-1);
  for (const auto type : {torch::kLong, torch::kInt})
    for (const auto& index : {per_lane(indices({7}, type)), per_lane_at(indices({2, 3}, type), 1), shared(indices({2, 3}, type)[0]), shared(indices({}, type)[0])})
      for (const auto& weight : {table(), per_lane_at(stacked({11, 5}), 1), shared(torch::randn({11, 5}, options_))})
        check_rule("aten::embedding", "", lanes_, {weight, index, none, plain(false), plain(false)}, {.same_bits = true});
}

TEST_P(EmbeddingTest, GradientsAreAddedPerLane) {
  for (const auto& index : {per_lane(indices({9})), shared(indices({9})[0])})
    for (const std::int64_t padding : {-1, 3})
      for (const bool by_frequency : {false, true})
        for (const auto& grad : {per_lane(stacked({9, 5})), per_lane_at(stacked({9, 5}), 1), per_lane_at(stacked({9, 5}), 2)})
          check_rule("aten::embedding_dense_backward", "", lanes_, {grad, index, plain(11), plain(padding), plain(by_frequency)});
}

TEST_P(EmbeddingTest, RenormalizationWritesIntoTheLanesTables) {
  check_rule("aten::embedding_renorm_", "", lanes_, {table(), shared(indices({7})[0]), plain(0.8), plain(2.0)});
}

// Case A12.
TEST_P(EmbeddingTest, BagsWithOffsetsAndPaddingEqualTheLanesAlone) {
  const auto offsets = shared(torch::tensor({0, 2, 2, 5}, torch::kLong)), none = plain(c10::IValue());
  for (const std::int64_t mode : {0, 1, 2})
    for (const auto& index : {per_lane(indices({8})), shared(indices({8})[0])})
      check_rule("aten::_embedding_bag", "", lanes_, {table(), index, offsets, plain(false), plain(mode), plain(false), none, plain(false), plain(3)});
  const auto index = shared(indices({8})[0]);
  const auto weight = std::get<ops::LaneTensor>(table()).tensor;
  const auto bag = torch::_embedding_bag(weight[0], std::get<ops::LaneTensor>(index).tensor, torch::tensor({0, 2, 2, 5}), false, 1, false, {}, false, 3);
  check_rule("aten::_embedding_bag_backward", "", lanes_,
             {per_lane(stacked({4, 5})), index, offsets, shared(std::get<1>(bag)), shared(std::get<2>(bag)), shared(std::get<3>(bag)), plain(11), plain(false),
              plain(1), plain(false), none, plain(3)});
}

INSTANTIATE_TEST_SUITE_P(Widths, EmbeddingTest, ::testing::Combine(::testing::Values(1, 3), ::testing::Values(torch::kFloat, torch::kDouble)));

}  // namespace
}  // namespace hfta::test
