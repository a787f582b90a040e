#include <ATen/CPUGeneratorImpl.h>

#include "hfta/base/generator.h"
#include "hfta/ops/mersenne.h"
#include "tests/ops/rule_check.h"

namespace hfta::test {
namespace {

class RandomTest : public ::testing::TestWithParam<std::tuple<std::int64_t, torch::ScalarType>> {
 protected:
  std::int64_t lanes_ = std::get<0>(GetParam());
  torch::TensorOptions options_ = torch::TensorOptions().dtype(std::get<1>(GetParam())).device(device());
  std::vector<double> some(double first, double step) const {
    std::vector<double> values;
    for (std::int64_t lane = 0; lane < lanes_; ++lane) values.push_back(first + step * static_cast<double>(lane));
    return values;
  }
  torch::Tensor value(std::vector<std::int64_t> sizes) const {
    sizes.insert(sizes.begin(), lanes_);
    torch::manual_seed(3);
    return torch::rand(sizes, options_);
  }
};

const RuleCheck kExact{.same_bits = true};

TEST_P(RandomTest, BernoulliDrawsWhatEachLaneAloneDraws) {
  for (const std::int64_t columns : {1, 5, 700}) {
    check_rule("aten::bernoulli_", "float", lanes_, {per_lane(value({3, columns})), numbers(some(0.3, 0.2)), kNone}, kExact);
    check_rule("aten::bernoulli_", "float", lanes_, {per_lane(value({3, columns})), plain(0.0), kNone}, kExact);
    check_rule("aten::bernoulli_", "float", lanes_, {per_lane(value({3, columns})), plain(1.0), kNone}, kExact);
  }
}

TEST_P(RandomTest, BernoulliDrawsInRowMajorOrderWhereTheLaneAxisLiesInside) {
  check_rule("aten::bernoulli_", "float", lanes_, {per_lane_at(value({3, 50}), 1), plain(0.4), kNone}, kExact);
  check_rule("aten::bernoulli_", "float", lanes_, {per_lane_at(value({3, 50}), 2), plain(0.4), kNone}, kExact);
}

TEST_P(RandomTest, DenseLanesOfAnotherLayoutDrawInTheOrderOfTheirMemory) {
  const auto channels_last = per_lane(value({2, 4, 5, 3}).permute({0, 1, 4, 2, 3}));
  check_rule("aten::bernoulli_", "float", lanes_, {channels_last, plain(0.4), kNone}, kExact);
  check_rule("aten::uniform_", "", lanes_, {channels_last, plain(0.0), plain(1.0), kNone}, kExact);
  check_rule("aten::rand_like", "", lanes_, {channels_last, kNone, kNone, kNone, kNone, kNone}, kExact);
}

// Case A5, A6.
TEST_P(RandomTest, NativeDropoutKeepsItsShareAndScalesIt) {
  check_rule("aten::native_dropout", "", lanes_, {per_lane(value({7, 11})), numbers(some(0.1, 0.2)), plain(true)}, kExact);
  check_rule("aten::native_dropout", "", lanes_, {shared(value({7, 11})[0]), plain(0.3), plain(true)}, kExact);
  check_rule("aten::native_dropout", "", lanes_, {per_lane(value({7, 11})), plain(0.3), plain(false)}, kExact);
  check_rule("aten::native_dropout", "", lanes_, {per_lane(value({7, 11})), plain(1.0), plain(true)}, kExact);
}

TEST_P(RandomTest, InPlaceOperatorsDrawWhatEachLaneAloneDraws) {
  for (const auto& self : {per_lane(value({5, 9})), per_lane_at(value({5, 9}), 1)}) {
    check_rule("aten::uniform_", "", lanes_, {self, plain(-0.5), plain(2.0), kNone}, kExact);
    check_rule("aten::normal_", "", lanes_, {self, numbers(some(0, 1)), plain(2.0), kNone}, kExact);
    check_rule("aten::exponential_", "", lanes_, {self, plain(1.5), kNone}, kExact);
    check_rule("aten::random_", "from", lanes_, {self, plain(2), plain(9), kNone}, kExact);
    check_rule("aten::geometric_", "", lanes_, {self, plain(0.4), kNone}, kExact);
    check_rule("aten::bernoulli_", "Tensor", lanes_, {self, shared(value({5, 9})[0]), kNone}, kExact);
  }
}

TEST_P(RandomTest, FactoriesDrawWhatEachLaneAloneDraws) {
  const std::vector<std::int64_t> sizes{4, 5};
  const c10::IValue type = options_.dtype().toScalarType();
  for (const char* name : {"aten::rand", "aten::randn"}) check_rule(name, "", lanes_, {plain(sizes), type, kNone, kNone, kNone}, kExact);
  for (const char* name : {"aten::rand_like", "aten::randn_like"}) {
    check_rule(name, "", lanes_, {per_lane(value({3, 7})), kNone, kNone, kNone, kNone, kNone}, kExact);
    check_rule(name, "", lanes_, {shared(value({3, 7})[0]), kNone, kNone, kNone, kNone, kNone}, kExact);
  }
  check_rule("aten::randint", "", lanes_, {plain(9), plain(sizes), kNone, kNone, kNone, kNone}, kExact);
  check_rule("aten::randint", "low", lanes_, {plain(3), plain(9), plain(sizes), type, kNone, kNone, kNone}, kExact);
  check_rule("aten::randint_like", "low_dtype", lanes_, {per_lane(value({3, 7})), plain(-3), plain(9), kNone, kNone, kNone, kNone, kNone}, kExact);
  check_rule("aten::randperm", "", lanes_, {plain(17), kNone, kNone, kNone, kNone}, kExact);
}

TEST_P(RandomTest, OperatorsOnValuesDrawWhatEachLaneAloneDraws) {
  for (const auto& self : {per_lane(value({5, 9})), per_lane_at(value({5, 9}), 2), shared(value({5, 9})[0])}) {
    check_rule("aten::bernoulli", "", lanes_, {self, kNone}, kExact);
    check_rule("aten::bernoulli", "p", lanes_, {self, plain(0.3), kNone}, kExact);
    check_rule("aten::multinomial", "", lanes_, {self, plain(4), plain(false), kNone}, kExact);
    check_rule("aten::poisson", "", lanes_, {self, kNone}, kExact);
    check_rule("aten::normal", "Tensor_float", lanes_, {self, plain(0.5), kNone}, kExact);
    check_rule("aten::_standard_gamma", "", lanes_, {self, kNone}, kExact);
  }
  check_rule("aten::rrelu_with_noise", "", lanes_,
             {per_lane(value({5, 9}) - 0.5), per_lane(value({5, 9})), plain(0.1), plain(0.4), plain(true), kNone}, kExact);
}

INSTANTIATE_TEST_SUITE_P(Widths, RandomTest, ::testing::Combine(::testing::Values(1, 3), ::testing::Values(torch::kFloat, torch::kDouble)));

TEST(MersenneStreamTest, TakesTheGeneratorsNumbersInOrderAndLeavesItBehindThem) {
  auto ours = base::seeded_generator(11), theirs = base::seeded_generator(11);
  auto* engine = at::check_generator<at::CPUGeneratorImpl>(theirs);
  for (const std::size_t count : {1U, 3U, 623U, 624U, 625U, 2000U, 0U, 620U, 1U}) {
    std::vector<std::uint32_t> taken(count);
    ops::MersenneStream(ours).take(taken);
    for (const auto number : taken) ASSERT_EQ(number, engine->random());
    EXPECT_TRUE(torch::equal(ours.get_state(), theirs.get_state())) << count;
  }
}

TEST(MersenneStreamTest, GoesOnAfterAnOddNumberOfDraws) {
  if (!ops::fill_bernoulli_is_native()) GTEST_SKIP() << "this LibTorch draws Bernoulli numbers with MKL";
  auto ours = base::seeded_generator(5), theirs = base::seeded_generator(5);
  for (auto* generator : {&ours, &theirs}) torch::empty({3}).uniform_(0, 1, *generator);
  auto drawn = torch::empty({1001}), expected = torch::empty({1001});
  ops::fill_bernoulli(std::span(drawn.data_ptr<float>(), 1001), 0.3, ours);
  expected.bernoulli_(0.3, theirs);
  EXPECT_TRUE(torch::equal(drawn, expected));
  EXPECT_TRUE(torch::equal(torch::empty({4}).uniform_(0, 1, ours), torch::empty({4}).uniform_(0, 1, theirs)));
}

// Case A5: masks differ between lanes and the mean keep rate is that of the layer.
TEST(BernoulliTest, LanesOfOneSharedInputHaveMasksOfTheirOwn) {
  const std::int64_t lanes = 8;
  std::vector<at::Generator> generators;
  for (std::uint64_t lane = 0; lane < 8; ++lane) generators.push_back(base::seeded_generator(lane));
  const auto* rules = ops::find_rules({"aten::native_dropout", ""});
  ASSERT_TRUE(rules);
  const auto x = torch::full({64, 25}, 2.0);
  const std::vector<ops::LaneValue> arguments{shared(x), plain(0.3), plain(true)};
  const auto results = rules->lowerings[0].rule({lanes, generators}, arguments);
  ASSERT_TRUE(results);
  const auto output = std::get<ops::LaneTensor>((*results)[0]).tensor;
  EXPECT_EQ(output.sizes(), (std::vector<std::int64_t>{8, 64, 25}));
  EXPECT_FALSE(torch::equal(output[0], output[1]));
  EXPECT_TRUE(((output == 0) | ((output - 2.0 / 0.7).abs() < 1e-6)).all().item<bool>());
  const double kept = (output != 0).to(torch::kDouble).mean().item<double>(), sigma = std::sqrt(0.3 * 0.7 / static_cast<double>(output.numel()));
  EXPECT_NEAR(kept, 0.7, 3 * sigma);
}

}  // namespace
}  // namespace hfta::test
