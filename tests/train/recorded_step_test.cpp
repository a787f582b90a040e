#include "hfta/base/generator.h"
#include "hfta/base/threads.h"
#include "hfta/hfta.h"
#include "hfta/program/random.h"
#include "tests/support.h"

namespace recorded_step_test {

using at::Tensor;
using hfta::Array;
using hfta::test::close;
using hfta::test::same_bits;
using hfta::test::tolerance;
namespace nn = torch::nn;
namespace F = torch::nn::functional;

constexpr std::int64_t kLanes = 4;
const std::vector<double> kRates{0.01, 0.003, 0.02, 0.001};

struct NetImpl : nn::Module {
  // No bias before the norm: its true gradient is zero, and Adam makes steps of the rounding noise.
  nn::Linear one{register_module("one", nn::Linear(nn::LinearOptions(11, 13).bias(false)))}, two{register_module("two", nn::Linear(13, 5))};
  nn::BatchNorm1d norm{register_module("norm", nn::BatchNorm1d(13))};
  Tensor forward(const Tensor& x) { return two(torch::dropout(torch::relu(norm(one(x))), 0.2, is_training())); }
};
TORCH_MODULE(Net);

Array<Net> nets(std::int64_t lanes = kLanes) { return Array<Net>(lanes, [](std::int64_t) { return Net(); }); }

Tensor loss_of(Net& net, const Tensor& x, const Tensor& y) { return F::cross_entropy(net->forward(x), y); }

std::pair<Tensor, Tensor> batch(int step) {
  auto random = hfta::base::seeded_generator(static_cast<std::uint64_t>(100 + step));
  return {torch::randn({7, 11}, random), torch::randint(5, {7}, random)};
}

std::vector<Tensor> state_of(const hfta::lanes::ArrayBase& array, std::int64_t lane) {
  std::vector<Tensor> tensors;
  for (const auto& t : array.lane_parameters(lane)) tensors.push_back(t.detach().clone());
  for (const auto& t : array.lane_buffers(lane)) tensors.push_back(t.clone());
  return tensors;
}

struct Way {
  std::int64_t width, workers;
};
class RecordedStepTest : public ::testing::TestWithParam<Way> {
 protected:
  /// Runs whose bits are compared must compute the same way: no lowering is timed.
  hfta::plan::Plan plan() const { return {.width = GetParam().width, .workers = GetParam().workers, .measures_lowerings = false}; }
};

TEST_P(RecordedStepTest, TwentyStepsEqualPlainLibTorch) {  // contract 1, case A26
  auto array = nets();
  hfta::optim::Adam adam(array, {.lr = kRates});
  auto step = hfta::record(array, adam, loss_of, {}, plan());
  std::vector<Tensor> losses;
  std::vector<std::pair<Tensor, Tensor>> batches;
  for (int i = 0; i < 20; ++i) {
    batches.push_back(batch(i));
    losses.push_back(step(batches[i].first, batches[i].second));
  }
  const auto held_out = batch(50).first;
  for (std::int64_t lane = 0; lane < kLanes; ++lane) {
    auto generator = hfta::base::seeded_generator(static_cast<std::uint64_t>(lane));
    Net net{nullptr};
    {
      const hfta::base::DefaultGeneratorScope scope(generator);
      net = Net();
    }
    torch::optim::Adam solo(net->parameters(), torch::optim::AdamOptions(kRates[lane]));
    const hfta::base::IntraOpThreads threads(1);
    const hfta::program::LaneRandom random(generator);
    for (int i = 0; i < 20; ++i) {
      solo.zero_grad();
      auto loss = loss_of(net, batches[i].first, batches[i].second);
      loss.backward();
      solo.step();
      ASSERT_TRUE(close(losses[i][lane], loss.detach(), tolerance(torch::kFloat, 10))) << "lane " << lane << ", step " << i;
    }
    auto got = array.lane(lane).net();
    array.eval();
    net->eval();
    EXPECT_TRUE(close(got->forward(held_out).detach(), net->forward(held_out).detach(), tolerance(torch::kFloat, 10), 10)) << "outputs of lane " << lane;
    array.train();
  }
}

TEST_P(RecordedStepTest, PoisonedLaneChangesNoBitOfTheOthers) {  // contract 2
  auto how = plan();  // which lowering is faster may differ from one timing to the next: all runs take the first one's
  const auto run = [&](double poison, double rate) {
    auto array = nets();
    auto rates = kRates;
    rates[1] = rate;
    hfta::optim::Adam adam(array, {.lr = rates});
    auto step = hfta::record(array, adam, loss_of, {}, how);
    for (int i = 0; i < 6; ++i) {
      if (i == 3) {
        const at::NoGradGuard no_grad;
        array.lane_parameters(1)[0].mul_(poison);
      }
      const auto [x, y] = batch(i);
      step(x, y);
    }
    how = step->plan();
    std::vector<std::vector<Tensor>> states;
    for (const std::int64_t lane : {0, 2, 3}) states.push_back(state_of(array, lane));
    return states;
  };
  const auto healthy = run(1, kRates[1]);
  for (const auto& sick : {run(std::nan(""), kRates[1]), run(1, 1e30)})
    for (std::size_t i = 0; i < healthy.size(); ++i)
      for (std::size_t k = 0; k < healthy[i].size(); ++k) EXPECT_TRUE(same_bits(sick[i][k], healthy[i][k])) << "lane " << i << ", tensor " << k;
}

TEST_P(RecordedStepTest, DroppingAndAddingLanesKeepsTheRest) {  // contracts 2 and 3
  auto whole = nets(), changing = nets();
  hfta::optim::Adam a(whole, {.lr = 0.01}), b(changing, {.lr = 0.01});
  auto step_a = hfta::record(whole, a, loss_of, {}, plan());
  auto step_b = hfta::record(changing, b, loss_of, {}, plan());
  for (int i = 0; i < 8; ++i) {
    if (i == 3) changing.keep({3, 0});
    if (i == 5) changing.append({77});
    const auto [x, y] = batch(i);
    step_a(x, y);
    EXPECT_EQ(step_b(x, y).size(0), changing.lanes());
  }
  const auto kept = state_of(changing, 0), same = state_of(whole, 3);
  for (std::size_t k = 0; k < kept.size(); ++k) {
    if (GetParam().width == 1) {
      EXPECT_TRUE(same_bits(kept[k], same[k])) << "tensor " << k;
    } else {
      EXPECT_TRUE(close(kept[k], same[k], {1e-2, 2e-3})) << "tensor " << k;
    }
  }
}

TEST_P(RecordedStepTest, ClipAndAccumulationEqualPlainSteps) {
  const hfta::train::StepOptions options{.max_norm = hfta::optim::PerLane({0.1, 0.5, 100, 0.01}), .accumulate = 2};
  auto recorded = nets(), eager = nets();
  hfta::optim::SGD a(recorded, {.lr = 0.1, .momentum = 0.9}), b(eager, {.lr = 0.1, .momentum = 0.9});
  auto step_a = hfta::record(recorded, a, loss_of, options, plan());
  auto step_b = hfta::plain(eager, b, loss_of, options, {.intra_op_threads = 1, .recorded = false});
  for (int i = 0; i < 6; ++i) {
    const auto [x, y] = batch(i);
    ASSERT_TRUE(close(step_a(x, y), step_b(x, y), tolerance(torch::kFloat, 10)));
  }
  for (std::int64_t lane = 0; lane < kLanes; ++lane) {
    const auto got = state_of(recorded, lane), expected = state_of(eager, lane);
    for (std::size_t k = 0; k < got.size(); ++k) EXPECT_TRUE(close(got[k], expected[k], tolerance(torch::kFloat, 10))) << "lane " << lane << ", tensor " << k;
  }
}

TEST_P(RecordedStepTest, ParameterThatIsFrozenInOneLaneIsLeftAloneThereWhereGradientsAreSummed) {
  const auto updated = [&](const auto& make) {
    auto array = nets();
    hfta::optim::SGD sgd(array, {.lr = 0.1, .momentum = 0.9, .weight_decay = 0.1});
    auto step = make(array, sgd);
    std::vector<Tensor> frozen;
    for (int i = 0; i < 8; ++i) {
      if (i == 4) {
        frozen = state_of(array, 1);
        array.lane(1).net()->one->weight.requires_grad_(false);
      }
      const auto [x, y] = batch(i);
      step(x, y);
    }
    EXPECT_TRUE(same_bits(state_of(array, 1)[0], frozen[0])) << "neither decay nor momentum moves it";
    EXPECT_FALSE(same_bits(state_of(array, 1)[1], frozen[1]));
    std::vector<Tensor> all;
    for (std::int64_t lane = 0; lane < kLanes; ++lane)
      for (const auto& tensor : state_of(array, lane)) all.push_back(tensor);
    return all;
  };
  const auto got = updated([&](auto& array, auto& sgd) { return hfta::record(array, sgd, loss_of, {.accumulate = 2}, plan()); });
  const auto expected = updated([&](auto& array, auto& sgd) { return hfta::plain(array, sgd, loss_of, {.accumulate = 2}, {.intra_op_threads = 1, .recorded = false}); });
  for (std::size_t k = 0; k < got.size(); ++k) EXPECT_TRUE(close(got[k], expected[k], tolerance(torch::kFloat, 10))) << "tensor " << k;
}

TEST_P(RecordedStepTest, TwoArraysInOneStepUpdateTheOptimizersOnly) {
  const auto against = [](Net& g, Net& d, const Tensor& x, const Tensor&) { return F::softplus(d->forward(g->one(x).narrow(1, 0, 11))).mean(); };
  auto g = nets(), d = nets(), g2 = nets(), d2 = nets();
  hfta::optim::Adam a(d, {.lr = kRates}), b(d2, {.lr = kRates});
  auto step = hfta::record(std::tie(g, d), a, against, {}, plan());
  auto twin = hfta::plain(std::tie(g2, d2), b, against, {}, {.intra_op_threads = 1, .recorded = false});
  std::vector<Tensor> before = state_of(g, 2);
  for (int i = 0; i < 4; ++i) {
    const auto [x, y] = batch(i);
    ASSERT_TRUE(close(step(x, y), twin(x, y), tolerance(torch::kFloat, 10)));
  }
  const auto after = state_of(g, 2), got = state_of(d, 2), expected = state_of(d2, 2);
  for (std::size_t k = 0; k < before.size(); ++k) EXPECT_TRUE(same_bits(after[k], before[k]));
  for (std::size_t k = 0; k < got.size(); ++k) EXPECT_TRUE(close(got[k], expected[k], tolerance(torch::kFloat, 10))) << "tensor " << k;
}

TEST_P(RecordedStepTest, PerLaneInputsAndExtras) {
  auto array = nets();
  hfta::optim::SGD sgd(array, {.lr = 0.0});
  auto step = hfta::record(array, sgd, [](Net& net, const Tensor& x, const Tensor& y) {
    const auto logits = net->two(net->one(x));
    return std::pair(F::cross_entropy(logits, y), logits);
  }, {}, plan());
  const auto x = torch::randn({kLanes, 7, 11}), y = batch(0).second;
  const auto output = step(hfta::per_lane(x), y);
  ASSERT_EQ(output.extras.size(), 1);
  for (std::int64_t lane = 0; lane < kLanes; ++lane) {
    auto net = array.lane(lane).net();
    EXPECT_TRUE(close(output.extras[0][lane], net->two(net->one(x[lane])).detach())) << "lane " << lane;
  }
}

TEST_P(RecordedStepTest, GradientsLeftFromBeforeAreNeitherUsedNorLost) {  // answer d
  auto array = nets(), clean = nets();
  for (std::int64_t lane = 0; lane < kLanes; ++lane)
    for (auto p : array.lane_parameters(lane)) p.mutable_grad() = torch::full_like(p, 7);
  hfta::optim::SGD a(array, {.lr = 0.1}), b(clean, {.lr = 0.1});
  auto step_a = hfta::record(array, a, loss_of, {}, plan());
  auto step_b = hfta::record(clean, b, loss_of, {}, plan());
  const auto [x, y] = batch(0);
  step_a(x, y), step_b(x, y);
  for (std::int64_t lane = 0; lane < kLanes; ++lane)
    for (std::size_t k = 0; k < array.parameters().size(); ++k) {
      EXPECT_TRUE(same_bits(array.lane_parameters(lane)[k].detach(), clean.lane_parameters(lane)[k].detach()));
      EXPECT_TRUE(same_bits(array.lane_parameters(lane)[k].grad(), torch::full_like(array.lane_parameters(lane)[k].detach(), 7)));
    }
}

TEST_P(RecordedStepTest, MisuseIsToldAtOnce) {
  auto array = nets();
  hfta::optim::SGD sgd(array, {.lr = 0.1});
  auto step = hfta::record(array, sgd, loss_of, {}, plan());
  EXPECT_THROW(step(hfta::per_lane(torch::randn({kLanes + 1, 7, 11})), batch(0).second), hfta::InvalidArgument);
  auto vector_loss = hfta::record(array, sgd, [](Net& net, const Tensor& x, const Tensor&) { return net->one(x); }, {}, plan());
  EXPECT_THROW(vector_loss(batch(0).first, batch(0).second), hfta::InvalidArgument);
}

INSTANTIATE_TEST_SUITE_P(Ways, RecordedStepTest, ::testing::Values(Way{1, 1}, Way{1, 2}, Way{3, 1}, Way{4, 2}),
                         [](const ::testing::TestParamInfo<Way>& way) { return "Width" + std::to_string(way.param.width) + "Workers" + std::to_string(way.param.workers); });

}  // namespace recorded_step_test
