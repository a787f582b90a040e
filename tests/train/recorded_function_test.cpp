#include "hfta/train/recorded_function.h"

#include "tests/train/contract_models.h"
#include "tests/train/lanes_against_solo.h"

namespace recorded_function_test {

using namespace hfta::test;
using at::Tensor;

struct Case {
  std::int64_t width, workers;
  bool per_lane, training;
};

/// Contract 1, one step from equal state: widths 1, 3 and all, workers 1 and 2, training and evaluation mode, both precisions.
class RecordedFunctionTest : public ::testing::TestWithParam<std::tuple<Case, torch::ScalarType>> {};

template <typename Net>
Net build(std::int64_t lane) { return Net(static_cast<int>(lane)); }

template <typename Net>
Tensor loss_of(Net& net, const Tensor& x, const Tensor& y) { return nn::functional::cross_entropy(net->forward(x), y); }

template <typename Net>
void expect_equal_to_solo() {
  const auto [setting, dtype] = RecordedFunctionTest::GetParam();
  expect_lanes_equal_solo<Net>(build<Net>, loss_of<Net>,
                               {.width = setting.width, .workers = setting.workers, .per_lane = setting.per_lane, .training = setting.training, .dtype = dtype});
}

TEST_P(RecordedFunctionTest, Mlp) { expect_equal_to_solo<Mlp>(); }
TEST_P(RecordedFunctionTest, CnnWithDropoutOfEachLane) { expect_equal_to_solo<Cnn>(); }
TEST_P(RecordedFunctionTest, Gru) { expect_equal_to_solo<Recurrent>(); }
TEST_P(RecordedFunctionTest, Lstm) { expect_equal_to_solo<LongShort>(); }
TEST_P(RecordedFunctionTest, Transformer) { expect_equal_to_solo<Encoder>(); }
TEST_P(RecordedFunctionTest, Embedding) { expect_equal_to_solo<Words>(); }

std::string name_of(const ::testing::TestParamInfo<std::tuple<Case, torch::ScalarType>>& info) {
  const auto& c = std::get<0>(info.param);
  return "Width" + std::to_string(c.width) + "Workers" + std::to_string(c.workers) + (c.per_lane ? "PerLane" : "Shared") + (c.training ? "Train" : "Eval") +
         (std::get<1>(info.param) == torch::kFloat ? "Float" : "Double");
}

INSTANTIATE_TEST_SUITE_P(WidthsAndWorkers, RecordedFunctionTest,
                         ::testing::Combine(::testing::Values(Case{1, 1, false, true}, Case{1, 2, true, true}, Case{1, 2, false, false}, Case{3, 1, true, true},
                                                              Case{3, 2, false, true}, Case{3, 2, false, false}, Case{4, 1, false, true}, Case{4, 1, true, false}),
                                            ::testing::Values(torch::kFloat, torch::kDouble)),
                         name_of);

/// Contract 1 in every lowering: each operator of the program takes each of its ways in turn.
class EveryLoweringTest : public ::testing::TestWithParam<std::tuple<std::int64_t, torch::ScalarType>> {};

template <typename Net>
void expect_every_lowering_to_equal_solo() {
  const auto [width, dtype] = EveryLoweringTest::GetParam();
  Setting setting{.width = width, .dtype = dtype, .lowerings = std::map<std::string, std::string>()};
  const auto ways = ways_of_lowerings(expect_lanes_equal_solo<Net>(build<Net>, loss_of<Net>, setting), width);
  EXPECT_GE(ways.size(), 2U);
  for (const auto& way : ways) {
    setting.lowerings = way;
    expect_lanes_equal_solo<Net>(build<Net>, loss_of<Net>, setting);
  }
}

TEST_P(EveryLoweringTest, Mlp) { expect_every_lowering_to_equal_solo<Mlp>(); }
TEST_P(EveryLoweringTest, Cnn) { expect_every_lowering_to_equal_solo<Cnn>(); }
TEST_P(EveryLoweringTest, Gru) { expect_every_lowering_to_equal_solo<Recurrent>(); }
TEST_P(EveryLoweringTest, Transformer) { expect_every_lowering_to_equal_solo<Encoder>(); }
TEST_P(EveryLoweringTest, Embedding) { expect_every_lowering_to_equal_solo<Words>(); }

INSTANTIATE_TEST_SUITE_P(Widths, EveryLoweringTest, ::testing::Combine(::testing::Values(std::int64_t{1}, std::int64_t{3}), ::testing::Values(torch::kFloat, torch::kDouble)),
                         [](const auto& info) { return "Width" + std::to_string(std::get<0>(info.param)) + (std::get<1>(info.param) == torch::kFloat ? "Float" : "Double"); });

// The mode that records is not left on.
TEST(RecordedFunctionErrorTest, ExceptionOfTheStepLeavesNothingBehind) {
  hfta::Array<Mlp> array(kLanes, build<Mlp>);
  const auto before = array.parameters()[0].tensor.detach().clone();
  const auto random = hfta::base::state_of(array.generator(1));
  bool fails = true;
  hfta::train::RecordedFunction recorded({&array}, loss_and_gradients<Mlp>(array, [&](Mlp& net, const Tensor& x, const Tensor& y) {
    const auto loss = nn::functional::cross_entropy(torch::dropout(net->forward(x), 0.3, true), y);
    if (fails) throw std::domain_error("mine");
    return loss;
  }), {.width = kLanes});
  const std::vector<hfta::train::Input> inputs{{torch::randn({6, 12})}, {torch::randint(5, {6})}};
  EXPECT_THROW(recorded.run(inputs, [](auto, auto, auto) {}), std::domain_error);
  EXPECT_TRUE(same_bits(array.parameters()[0].tensor.detach(), before));
  EXPECT_TRUE(torch::equal(hfta::base::state_of(array.generator(1)), random));
  EXPECT_NO_THROW(torch::ones({2}).sum().item<float>()) << "nothing is taken down any more";
  fails = false;
  std::int64_t ran = 0;
  recorded.run(inputs, [&](auto, std::int64_t width, auto) { ran += width; });
  EXPECT_EQ(ran, kLanes);
}

}  // namespace recorded_function_test
