#include "tests/ops/rule_check.h"

namespace hfta::test {
namespace {

/// Width, dtype, reduction.
class NllLossTest : public ::testing::TestWithParam<std::tuple<std::int64_t, torch::ScalarType, std::int64_t>> {
 protected:
  void SetUp() override { torch::manual_seed(5); }
  std::int64_t lanes_ = std::get<0>(GetParam()), reduction_ = std::get<2>(GetParam());
  torch::TensorOptions options_ = torch::TensorOptions().dtype(std::get<1>(GetParam())).device(device());

  torch::Tensor stacked(std::vector<std::int64_t> sizes) const {
    sizes.insert(sizes.begin(), lanes_);
    return torch::randn(sizes, options_);
  }
  torch::Tensor targets(std::vector<std::int64_t> sizes, std::int64_t ignored) const {
    sizes.insert(sizes.begin(), lanes_);
    auto drawn = torch::randint(0, 5, sizes, torch::TensorOptions().dtype(torch::kLong).device(device()));
    return torch::where(torch::rand(sizes, options_) < 0.3, torch::full_like(drawn, ignored), drawn);
  }
  /// Forward and backward with the operator's two names, all ways the arguments can be shared.
  void check(const std::string& name, const std::vector<std::int64_t>& self_sizes, const std::vector<std::int64_t>& target_sizes) const {
    const std::int64_t ignored = 2;
    const auto self = stacked(self_sizes), target = targets(target_sizes, ignored), weight = torch::rand({lanes_, 5}, options_) + 0.1;
    const auto axis = static_cast<std::int64_t>(self_sizes.size()) - 1;
    const auto grad = reduction_ == at::Reduction::None ? stacked(target_sizes) : stacked({});
    for (const auto& x : {per_lane(self), per_lane_at(self, axis), shared(self[0])})
      for (const auto& t : {per_lane(target), shared(target[0])})
        for (const auto& w : {plain(c10::IValue()), per_lane(weight), shared(weight[0])}) {
          check_rule(name + "_forward", "", lanes_, {x, t, w, plain(reduction_), plain(ignored)});
          check_rule(name + "_backward", "", lanes_, {per_lane(grad), x, t, w, plain(reduction_), plain(ignored), per_lane(stacked({}).abs() + 1)});
        }
  }
};

TEST_P(NllLossTest, RowsOfClassesEqualTheLanesAlone) {
  check("aten::nll_loss", {7, 5}, {7});
  check("aten::nll_loss", {1, 5}, {1});
}

/// The kernel that gives the gradient too, beside LibTorch's operators; an infinite and a NaN logit stay in their samples.
TEST_P(NllLossTest, ALossWithItsGradientEqualsTheLanesAlone) {
  if (reduction_ == at::Reduction::None) return;
  const auto logits = stacked({37, 5}) * 3, target = targets({37}, 2), weight = torch::rand({lanes_, 5}, options_) + 0.1;
  auto spoiled = logits.clone();
  spoiled.select(1, 3).select(1, 0).fill_(std::nan(""));
  spoiled.select(1, 20).select(1, 1).fill_(-std::numeric_limits<double>::infinity());
  for (const auto& x : {per_lane(logits), per_lane_at(logits, 2), shared(logits[0]), per_lane(spoiled)})
    for (const auto& t : {per_lane(target), shared(target[0])})
      for (const auto& w : {plain(c10::IValue()), per_lane(weight), shared(weight[0])})
        EXPECT_EQ(check_rule("hfta::cross_entropy", "", lanes_, {x, t, w, plain(reduction_), plain(2)}, {.factor = 10}).size(), 1);
  check_rule("hfta::cross_entropy", "", lanes_, {per_lane(logits), per_lane(torch::full_like(target, 2)), plain(c10::IValue()), plain(reduction_), plain(2)});
}

TEST_P(NllLossTest, OneSampleWithoutBatchEqualsTheLanesAlone) { check("aten::nll_loss", {5}, {}); }

TEST_P(NllLossTest, ImagesOfClassesEqualTheLanesAlone) { check("aten::nll_loss2d", {3, 5, 2, 4}, {3, 2, 4}); }

TEST_P(NllLossTest, TargetsThatAreAllIgnoredGiveWhatTheLaneAloneGives) {
  const auto target = torch::full({lanes_, 7}, 2, torch::TensorOptions().dtype(torch::kLong).device(device()));
  check_rule("aten::nll_loss_forward", "", lanes_, {per_lane(stacked({7, 5})), per_lane(target), plain(c10::IValue()), plain(reduction_), plain(2)});
}

INSTANTIATE_TEST_SUITE_P(Widths, NllLossTest,
                         ::testing::Combine(::testing::Values(1, 3), ::testing::Values(torch::kFloat, torch::kDouble),
                                            ::testing::Values(at::Reduction::None, at::Reduction::Mean, at::Reduction::Sum)));

TEST(NllLossErrorTest, NamesATargetOutOfRange) {
  const auto* rules = ops::find_rules({"aten::nll_loss_forward", ""});
  const std::vector<at::Generator> generators;
  const std::vector<ops::LaneValue> arguments{per_lane(torch::randn({2, 3, 4})), shared(torch::tensor({0, 7, 1})), plain(c10::IValue()),
                                              plain(at::Reduction::Mean), plain(-100)};
  try {
    rules->lowerings[0].rule({2, generators}, arguments);
    FAIL() << "expected an error";
  } catch (const c10::IndexError& error) {
    EXPECT_STREQ(error.what_without_backtrace(), "Target 7 is out of bounds.");
  }
}

}  // namespace
}  // namespace hfta::test
