// Situations that people who train arrays have met, as small inputs with the right value, through recorded steps (plain ones are beside them).
#include <gmock/gmock.h>

#include <cmath>

#include "hfta/base/generator.h"
#include "hfta/hfta.h"
#include "hfta/train/runner.h"
#include "tests/support.h"

namespace cases_test {

using at::Tensor;
using hfta::Array;
using hfta::per_lane;
using hfta::test::close;
using hfta::test::same_bits;
using hfta::train::Runner;
namespace nn = torch::nn;
namespace F = torch::nn::functional;

/// Each case at width 1 and as one group.
class CasesTest : public ::testing::TestWithParam<std::int64_t> {
 protected:
  hfta::plan::Plan plan() const { return {.width = GetParam(), .workers = GetParam() == 1 ? 2 : 1}; }
};

Tensor doubles(std::vector<double> values) { return torch::tensor(values, torch::kDouble); }

Array<nn::BatchNorm1d> norms(std::int64_t lanes) {
  return Array<nn::BatchNorm1d>(lanes, [](std::int64_t) {
    nn::BatchNorm1d norm(1);
    norm->to(torch::kDouble);
    return norm;
  });
}

TEST_P(CasesTest, A1BatchNormAfterOneStep) {  // case A1
  auto array = norms(2);
  hfta::optim::SGD sgd(array, {.lr = 0.0});
  auto step = hfta::record(array, sgd, [](nn::BatchNorm1d& norm, const Tensor& x) {
    const auto out = norm(x);
    return std::pair(out.sum(), out);
  }, {}, plan());
  const auto out = step(per_lane(doubles({0, 2, 4, 8}).view({2, 2, 1}))).extras[0];
  EXPECT_TRUE(close(array.buffers()[0].tensor.flatten(), doubles({0.1, 0.6}), {0, 1e-12}));
  EXPECT_TRUE(close(array.buffers()[1].tensor.flatten(), doubles({1.1, 1.7}), {0, 1e-12}));
  EXPECT_TRUE(torch::equal(array.buffers()[2].tensor.flatten(), torch::tensor({1L, 1L})));
  EXPECT_TRUE(close(out.flatten(), doubles({-0.999995, 0.999995, -0.99999875, 0.99999875}), {0, 1e-8}));
}

TEST_P(CasesTest, A3EvaluationUsesEachLanesStatistics) {  // case A3
  auto array = norms(3);
  const torch::NoGradGuard no_grad;
  const auto set = [](const hfta::lanes::Stacked& stack, std::vector<double> values) { stack.tensor.detach().copy_(doubles(std::move(values)).view({3, 1})); };
  set(array.parameters()[0], {1, 2, 3}), set(array.parameters()[1], {0.5, -1, 2});
  set(array.buffers()[0], {0, 2, -1}), set(array.buffers()[1], {1, 4, 9});
  array.eval();
  std::vector<Tensor> before;
  for (const auto& buffer : array.buffers()) before.push_back(buffer.tensor.clone());
  auto evaluation = hfta::record_evaluate(array, [](nn::BatchNorm1d& norm, const Tensor& x) { return norm(x); }, plan());
  for (const double shift : {0.0, 1.0}) {
    const auto x = doubles({1, 5, -2}).view({3, 1}) + shift;
    const auto column = [](const Tensor& rows) { return rows.detach().view({3, 1, 1}); };
    const auto expected = (x - column(before[0])) / (column(before[1]) + 1e-5).sqrt() * column(array.parameters()[0].tensor) + column(array.parameters()[1].tensor);
    EXPECT_TRUE(close(evaluation(x), expected));
  }
  for (std::size_t k = 0; k < before.size(); ++k) EXPECT_TRUE(same_bits(array.buffers()[k].tensor, before[k]));
}

struct DroppingImpl : nn::Module {
  nn::Dropout drop{register_module("drop", nn::Dropout(0.3))};
  nn::Linear linear{register_module("linear", nn::Linear(5, 2))};
};
TORCH_MODULE(Dropping);

/// What the first layer lets through for each lane, of the same input.
Tensor let_through(std::vector<std::uint64_t> seeds, const Tensor& x, hfta::plan::Plan plan) {
  plan.width = std::min<std::int64_t>(plan.width, static_cast<std::int64_t>(seeds.size()));
  Array<Dropping> array(std::move(seeds), [](std::int64_t) { return Dropping(); });
  hfta::optim::SGD sgd(array, {.lr = 0.1});
  auto step = hfta::record(array, sgd, [](Dropping& net, const Tensor& x) {
    const auto kept = net->drop(x);
    return std::pair(net->linear(kept).sum(), kept);
  }, {}, plan);
  step(x);
  return step(x).extras[0];
}

TEST_P(CasesTest, A5DropoutOnASharedInput) {  // case A5
  const auto x = torch::arange(1, 1001).to(torch::kFloat).view({200, 5});
  const auto kept = let_through({0, 1, 2, 3, 4, 5, 6, 7}, x, plan());
  ASSERT_EQ(kept.sizes(), (std::vector<std::int64_t>{8, 200, 5}));
  for (std::int64_t a = 0; a < 8; ++a)
    for (std::int64_t b = 0; b < a; ++b) EXPECT_FALSE(torch::equal(kept[a], kept[b]));
  EXPECT_TRUE(close(kept, torch::where(kept != 0, x / 0.7, torch::zeros({})).expand_as(kept)));
  const double share = (kept != 0).to(torch::kDouble).mean().item<double>();
  EXPECT_NEAR(share, 0.7, 3 * std::sqrt(0.3 * 0.7 / static_cast<double>(kept.numel())));
}

TEST_P(CasesTest, A6MasksBelongToTheSeed) {  // case A6, contract 3
  const auto x = torch::ones({6, 5});
  std::vector<std::uint64_t> many(64);
  std::iota(many.begin(), many.end(), 100);
  const auto of_64 = let_through(many, x, plan());
  EXPECT_TRUE(same_bits(let_through({117}, x, plan())[0], of_64[17]));
  EXPECT_TRUE(same_bits(let_through({3, 163, 2, 100}, x, plan())[1], of_64[63]));
}

/// Steps through a sequence by its cell.
struct UnrollsImpl : nn::Module {
  nn::GRUCell cell{register_module("cell", nn::GRUCell(64, 64))};
  Tensor forward(const Tensor& x) {
    auto state = torch::zeros({x.size(1), 64});
    for (const auto& step : x.unbind()) state = cell(step, state);
    return state;
  }
};
TORCH_MODULE(Unrolls);

Tensor unrolled_loss(Unrolls& net, const Tensor& x, const Tensor& y) { return F::mse_loss(net->forward(x), y); }

TEST_P(CasesTest, A11CellsOfManyLanesStepAsOne) {  // case A11
  Array<Unrolls> array(32, [](std::int64_t) { return Unrolls(); });
  std::vector<Unrolls> alone;
  const torch::NoGradGuard no_grad;
  for (std::int64_t lane = 0; lane < 32; ++lane) {
    const auto from = array.lane_parameters(lane), to = alone.emplace_back()->parameters();
    for (std::size_t k = 0; k < to.size(); ++k) to[k].copy_(from[k]);
  }
  const torch::AutoGradMode grad(true);
  hfta::optim::SGD sgd(array, {.lr = 0.5});
  auto how = plan();
  how.width = std::min<std::int64_t>(how.width, 32);
  auto step = hfta::record(array, sgd, unrolled_loss, {}, how);
  auto random = hfta::base::seeded_generator(1);
  for (int i = 0; i < 3; ++i) {
    const auto x = torch::randn({5, 4, 64}, random), y = torch::randn({4, 64}, random);
    const auto losses = step(x, y);
    for (std::int64_t lane = 0; lane < 32; ++lane) {
      torch::optim::SGD own(alone[lane]->parameters(), 0.5);
      const auto loss = unrolled_loss(alone[lane], x, y);
      loss.backward();
      own.step();
      own.zero_grad();
      EXPECT_TRUE(close(losses[lane], loss.detach())) << "lane " << lane;
    }
  }
  for (std::int64_t lane = 0; lane < 32; ++lane)
    for (std::size_t k = 0; k < alone[lane]->parameters().size(); ++k)
      EXPECT_TRUE(close(array.lane_parameters(lane)[k].detach(), alone[lane]->parameters()[k].detach(), hfta::test::tolerance(torch::kFloat, 10))) << "lane " << lane;
  EXPECT_THAT(step->report(), ::testing::Not(::testing::AnyOf(::testing::HasSubstr("one node per lane"), ::testing::HasSubstr("another structure"), ::testing::HasSubstr("not fused"))));
}

TEST(PlanCasesTest, A11CellsOfManyLanesAreNotSlowerThanAlone) {  // case A11
  Array<Unrolls> array(32, [](std::int64_t) { return Unrolls(); });
  hfta::optim::SGD sgd(array, {.lr = 0.1});
  Runner runner({&array}, sgd, hfta::lane_step(array, unrolled_loss));
  const std::vector<hfta::train::Input> inputs{{torch::randn({5, 4, 64})}, {torch::randn({4, 64})}};
  const auto found = runner.choose_plan(inputs, {.cores = 2}, {.budget_seconds = 1e6, .repeats = 3});
  double plain = std::numeric_limits<double>::infinity(), fused = plain;
  for (const auto& timing : found.timings)
    if (!timing.step_ms.empty()) (timing.plan.recorded ? fused : plain) = std::min(timing.plan.recorded ? fused : plain, timing.best_ms());
  EXPECT_LE(fused, plain);
  EXPECT_TRUE(found.plan.recorded) << hfta::plan::describe(found.plan);
}

struct ScaledImpl : nn::Module {
  Tensor w = register_parameter("w", torch::randn({4}));
};
TORCH_MODULE(Scaled);

TEST_P(CasesTest, A14FreshZerosWrittenInPlace) {  // case A14
  const auto build = [](std::int64_t) { return Scaled(); };
  const auto loss = [](Scaled& net, const Tensor& x) {
    auto m = torch::zeros(x.sizes());
    m += x * net->w;
    return m.square().mean();
  };
  Array<Scaled> recorded(3, build), plain(3, build);
  hfta::optim::SGD a(recorded, {.lr = 0.1}), b(plain, {.lr = 0.1});
  auto step = hfta::record(recorded, a, loss, {}, plan());
  for (int i = 0; i < 3; ++i) {
    const auto x = torch::randn({5, 4}, hfta::base::seeded_generator(static_cast<std::uint64_t>(i)));
    Tensor expected = torch::empty({3});
    for (std::int64_t lane = 0; lane < 3; ++lane) expected[lane] = (x * plain.lane(lane)->w.detach()).square().mean();
    EXPECT_TRUE(close(step(x), expected));
    EXPECT_TRUE(close(hfta::train_step(plain, b, loss, x), expected));
  }
  EXPECT_TRUE(close(recorded.parameters()[0].tensor.detach(), plain.parameters()[0].tensor.detach()));
}

TEST_P(CasesTest, A15LaneThatTakesItsOwnBranchTrainsByPlainSteps) {  // case A15
  Array<Scaled> array(3, [](std::int64_t) { return Scaled(); });
  const auto before = array.parameters()[0].tensor.detach().clone();
  hfta::optim::SGD sgd(array, {.lr = 0.5});
  Runner runner({&array}, sgd, hfta::lane_step(array, [](Scaled& net, const Tensor& letter) {
    return letter.item<std::int64_t>() == 1 ? net->w.sum() : 2 * net->w.sum();
  }), {}, plan());
  const std::vector<hfta::train::Input> inputs{per_lane(torch::tensor({0, 1, 2}))};
  const auto losses = runner(inputs).losses;
  EXPECT_TRUE(close(losses, before.sum(1) * torch::tensor({2.0F, 1.0F, 2.0F})));
  EXPECT_TRUE(close(array.parameters()[0].tensor.detach(), before - 0.5 * torch::tensor({{2.0F}, {1.0F}, {2.0F}})));
  EXPECT_FALSE(runner.plan().recorded);
  EXPECT_THAT(runner.report(), ::testing::AllOf(::testing::StartsWith("plain steps: "), ::testing::HasSubstr("_local_scalar_dense")));
}

TEST_P(CasesTest, A18AdamWithARateOfEachLane) {  // case A18
  const auto train = [&]<typename Optimizer>(std::type_identity<Optimizer>, auto options, std::int64_t lanes) {
    Array<Scaled> array(lanes, [](std::int64_t) {
      Scaled net;
      net->w.set_data(torch::ones({1}, torch::kDouble));
      return net;
    });
    Optimizer optimizer(array, std::move(options));
    auto step = hfta::record(array, optimizer, [](Scaled& net) { return 0.5 * net->w.square().sum(); }, {}, plan());
    for (int i = 0; i < 3; ++i) step();
    return array.parameters()[0].tensor.detach().flatten();
  };
  using hfta::optim::Adam, hfta::optim::AdamOptions, hfta::optim::AdamW, hfta::optim::AdamWOptions;
  EXPECT_TRUE(close(train(std::type_identity<Adam>(), AdamOptions{.lr = {0.1, 0.01, 0.001}, .eps = 1e-8}, 3), doubles({0.701586274504, 0.970010099529, 0.997000096080}), {0, 1e-12}));
  EXPECT_TRUE(close(train(std::type_identity<AdamW>(), AdamWOptions{.lr = {0.1, 0.01}, .weight_decay = {0.1, 0.5}}, 2), doubles({0.675101223189, 0.955240143580}), {0, 1e-12}));
}

TEST_P(CasesTest, A20RecordedBackwardLeavesStackedGradients) {  // case A20
  Array<nn::Linear> array(3, [](std::int64_t) { return nn::Linear(4, 2); });
  auto pass = hfta::record_backward(array, [](nn::Linear& net, const Tensor& x) { return net(x).square().mean(); }, plan());
  const auto x = torch::randn({5, 4}, hfta::base::seeded_generator(1)), y = torch::randn({5, 4}, hfta::base::seeded_generator(2));
  pass(x);
  const Tensor losses = pass(y);
  EXPECT_EQ(array.parameters().size(), nn::Linear(4, 2)->parameters().size());
  for (const auto& parameter : array.parameters()) {
    EXPECT_TRUE(parameter.tensor.is_leaf());
    ASSERT_TRUE(parameter.tensor.grad().defined()) << parameter.name;
  }
  for (std::int64_t lane = 0; lane < 3; ++lane) {
    auto solo = array.lane(lane, hfta::lanes::copy);
    solo->zero_grad();
    solo(x).square().mean().backward();
    const auto loss = solo(y).square().mean();
    loss.backward();
    EXPECT_TRUE(close(losses[lane], loss.detach()));
    for (std::size_t k = 0; k < 2; ++k) {
      EXPECT_TRUE(close(array.parameters()[k].tensor.grad()[lane], solo->parameters()[k].grad())) << "the sum of both calls";
      EXPECT_TRUE(same_bits(array.lane(lane)->parameters()[k].grad(), array.parameters()[k].tensor.grad()[lane])) << "the lane's own is a row of it";
    }
  }
  hfta::optim::SGD sgd(array, {.lr = 0.1});
  const auto before = array.parameters()[0].tensor.detach().clone(), gradient = array.parameters()[0].tensor.grad().clone();
  sgd.step();
  EXPECT_TRUE(close(array.parameters()[0].tensor.detach(), before - 0.1 * gradient));
}

struct UnbiasedImpl : nn::Module {
  Tensor weight;
  explicit UnbiasedImpl(const Tensor& shared) : weight(register_parameter("weight", shared)) {}
  Tensor forward(const Tensor& x) { return torch::linear(x, weight); }
};
TORCH_MODULE(Unbiased);

struct TiedImpl : nn::Module {
  Unbiased one{register_module("one", Unbiased(torch::randn({4, 4})))}, two{register_module("two", Unbiased(one->weight))};
  Tensor forward(const Tensor& x) { return two(torch::tanh(one(x))); }
};
TORCH_MODULE(Tied);

TEST_P(CasesTest, A21TiedWeightsHaveOneGradientOfBothUses) {  // case A21
  Array<Tied> array(3, [](std::int64_t) { return Tied(); });
  ASSERT_EQ(array.parameters().size(), 1U);
  const auto loss = [](Tied& net, const Tensor& x) { return net->forward(x).square().mean(); };
  auto pass = hfta::record_backward(array, loss, plan());
  const auto x = torch::randn({5, 4}, hfta::base::seeded_generator(1));
  pass(x);
  for (std::int64_t lane = 0; lane < 3; ++lane) {
    const auto w = array.lane_parameters(lane)[0].detach().clone(), first = w.clone().requires_grad_(), second = w.clone().requires_grad_();
    torch::linear(torch::tanh(torch::linear(x, first)), second).square().mean().backward();
    EXPECT_TRUE(close(array.parameters()[0].tensor.grad()[lane], first.grad() + second.grad()));
    EXPECT_TRUE(array.lane(lane)->one->weight.is_same(array.lane(lane)->two->weight));
  }
}

TEST(PlanCasesTest, A23TheFastestOfThePlansThatWereTimedIsTaken) {  // case A23
  Array<nn::Linear> array(10, [](std::int64_t) { return nn::Linear(12, 5); });
  hfta::optim::SGD sgd(array, {.lr = 0.1});
  Runner runner({&array}, sgd, hfta::lane_step(array, [](nn::Linear& net, const Tensor& x, const Tensor& y) { return F::cross_entropy(net(x), y); }));
  const std::vector<hfta::train::Input> inputs{{torch::randn({8, 12})}, {torch::zeros({8}, torch::kLong)}};
  const hfta::plan::SearchOptions options{.budget_seconds = 1e6, .repeats = 3};
  const auto found = runner.choose_plan(inputs, {.cores = 2}, options);
  double chosen = 0, best = std::numeric_limits<double>::infinity();
  bool timed_plain = false, timed_fused = false;
  std::size_t most = 0;
  for (const auto& timing : found.timings) most = std::max(most, timing.step_ms.size());
  for (const auto& timing : found.timings) {
    EXPECT_TRUE(!timing.step_ms.empty() || timing.is_pruned) << "every candidate is timed at least once, or hopeless: " << describe(timing.plan) << ' ' << timing.error;
    timed_plain |= !timing.plan.recorded;
    timed_fused |= timing.plan.recorded && timing.plan.width > 1;
    if (timing.plan == found.plan) chosen = timing.median_ms();
    if (timing.step_ms.size() == most) best = std::min(best, timing.median_ms());
  }
  EXPECT_TRUE(timed_plain && timed_fused) << "loops over single models are among the candidates, and so is fusion";
  EXPECT_LE(chosen, (1 + options.tie) * best) << "of equally fast plans the smaller is taken";
}

TEST_P(CasesTest, A26TheSameRateGivesTheSameCourseForOneLaneAndForSixteen) {  // case A26
  const auto course = [&](std::int64_t lanes) {
    Array<nn::Linear> array(lanes, [](std::int64_t) { return nn::Linear(12, 5); });
    hfta::optim::SGD sgd(array, {.lr = 0.5});
    auto how = plan();
    how.width = std::min(how.width, lanes);
    auto step = hfta::record(array, sgd, [](nn::Linear& net, const Tensor& x, const Tensor& y) { return F::cross_entropy(net(x), y); }, {}, how);
    std::vector<Tensor> losses;
    for (std::uint64_t i = 0; i < 10; ++i) {
      auto random = hfta::base::seeded_generator(i);
      losses.push_back(step(torch::randn({8, 12}, random), torch::randint(5, {8}, random))[0]);
    }
    return torch::stack(losses);
  };
  EXPECT_TRUE(close(course(16), course(1), hfta::test::tolerance(torch::kFloat, 10)));
}

INSTANTIATE_TEST_SUITE_P(Widths, CasesTest, ::testing::Values(std::int64_t{1}, std::int64_t{64}), [](const auto& info) { return "Width" + std::to_string(info.param); });

}  // namespace cases_test
