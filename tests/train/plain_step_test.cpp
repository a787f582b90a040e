#include "hfta/train/plain_step.h"

#include <ATen/autocast_mode.h>
#include <gmock/gmock.h>

#include <limits>

#include "tests/train/models.h"

namespace plain_step_test {

using namespace hfta::test;
using hfta::per_lane;
using hfta::optim::Adam;
using hfta::optim::SGD;

hfta::Array<Net> nets(std::int64_t lanes) {
  return hfta::Array<Net>(lanes, [](std::int64_t) { return Net(); });
}
hfta::plan::Plan workers(std::int64_t count) { return {.workers = count, .recorded = false}; }

const std::vector<double> kRates{1e-2, 3e-3, 1e-3, 3e-2, 5e-3};

// Contract 1: bit-equal to a solo run at the same intra-op threads, whatever the workers.
class PlainStepTest : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Workers, PlainStepTest, ::testing::Values(1, 2));

TEST_P(PlainStepTest, LaneEqualsItsSoloRunForTwentySteps) {
  const Data data;
  auto array = nets(5);
  Adam adam(array, {.lr = kRates, .weight_decay = 1e-3});
  auto step = hfta::plain(array, adam, loss_of, {}, workers(GetParam()));
  std::vector<torch::Tensor> losses;
  for (std::size_t i = 0; i < data.x.size(); ++i) losses.push_back(step(data.x[i], data.y[i]));
  const hfta::base::IntraOpThreads one(1);
  for (std::int64_t lane = 0; lane < 5; ++lane) {
    SoloRun solo(lane);
    solo.use(std::make_unique<torch::optim::Adam>(solo.net->parameters(), torch::optim::AdamOptions(kRates[lane]).weight_decay(1e-3)));
    for (std::size_t i = 0; i < data.x.size(); ++i) EXPECT_TRUE(same_bits(losses[i][lane], solo.step(data.x[i], data.y[i]))) << "lane " << lane << " step " << i;
    expect_same_bits(state_of(*array.module(lane)), state_of(*solo.net), "lane " + std::to_string(lane));
    EXPECT_EQ(adam.steps(lane), 20);
  }
}

TEST_P(PlainStepTest, ClippedLaneEqualsItsSoloRun) {
  const Data data(3);
  auto array = nets(3);
  SGD sgd(array, {.lr = 0.1, .momentum = 0.9});
  auto step = hfta::plain(array, sgd, loss_of, {.max_norm = std::vector<double>{0.1, 1e9, 0.5}}, workers(GetParam()));
  for (std::size_t i = 0; i < data.x.size(); ++i) step(data.x[i], data.y[i]);
  const std::vector<double> norms{0.1, 1e9, 0.5};
  for (std::int64_t lane = 0; lane < 3; ++lane) {
    SoloRun solo(lane);
    solo.use(std::make_unique<torch::optim::SGD>(solo.net->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9)));
    for (std::size_t i = 0; i < data.x.size(); ++i) solo.step(data.x[i], data.y[i], norms[lane]);
    const auto got = state_of(*array.module(lane)), expected = state_of(*solo.net);
    for (std::size_t i = 0; i < got.size(); ++i) EXPECT_TRUE(close(got[i], expected[i])) << "lane " << lane << " tensor " << i;
  }
}

TEST_P(PlainStepTest, AccumulationUpdatesWithTheSumOfGradients) {
  const Data data(4);
  auto array = nets(3);
  SGD sgd(array, {.lr = 0.05});
  auto step = hfta::plain(array, sgd, loss_of, {.accumulate = 2}, workers(GetParam()));
  const hfta::base::IntraOpThreads one(1);
  const auto before = state_of(*array.module(1))[0];
  step(data.x[0], data.y[0]);
  EXPECT_EQ(step->pending(), 1);
  EXPECT_TRUE(same_bits(state_of(*array.module(1))[0], before)) << "no update before the second call";
  for (std::size_t i = 1; i < 4; ++i) step(data.x[i], data.y[i]);
  EXPECT_EQ(step->pending(), 0);
  EXPECT_EQ(sgd.steps(1), 2);
  for (std::int64_t lane = 0; lane < 3; ++lane) {
    SoloRun solo(lane);
    torch::optim::SGD by(solo.net->parameters(), torch::optim::SGDOptions(0.05));
    for (std::size_t i = 0; i < 4; i += 2) {
      by.zero_grad();
      loss_of(solo.net, data.x[i], data.y[i]).backward();
      loss_of(solo.net, data.x[i + 1], data.y[i + 1]).backward();
      by.step();
    }
    expect_same_bits(state_of(*array.module(lane)), state_of(*solo.net), "lane " + std::to_string(lane));
  }
}

// Contract 2.
TEST_P(PlainStepTest, NaNInOneLaneChangesNoBitOfTheOthers) {
  const Data data(6);
  const auto run = [&](bool poisoned) {
    auto array = nets(4);
    Adam adam(array, {.lr = poisoned ? std::vector<double>{1e-2, 1e-2, 1e38, 1e-2} : std::vector<double>{1e-2, 1e-2, 1e-2, 1e-2}});
    if (poisoned) {
      const torch::NoGradGuard no_grad;
      array.module(1)->parameters()[0].fill_(std::numeric_limits<float>::quiet_NaN());
    }
    auto step = hfta::plain(array, adam, loss_of, {.max_norm = 1.0}, workers(GetParam()));
    torch::Tensor losses;
    for (std::size_t i = 0; i < data.x.size(); ++i) losses = step(data.x[i], data.y[i]);
    EXPECT_EQ(losses[1].isnan().item<bool>(), poisoned);
    auto tensors = state_of(*array.module(0));
    for (const auto& tensor : state_of(*array.module(3))) tensors.push_back(tensor);
    tensors.push_back(losses[0]);
    return tensors;
  };
  expect_same_bits(run(true), run(false));
}

// Contracts 2 and 3: lanes may be dropped and moved, and draw the same masks wherever they are.
TEST_P(PlainStepTest, DroppingAndMovingLanesChangesNoBit) {
  const Data data(6);
  auto moved = nets(4);
  auto still = nets(4);
  Adam of_moved(moved, {.lr = std::vector<double>{1e-2, 2e-2, 3e-2, 4e-2}}), of_still(still, {.lr = std::vector<double>{1e-2, 2e-2, 3e-2, 4e-2}});
  auto step_moved = hfta::plain(moved, of_moved, loss_of, {}, workers(GetParam())), step_still = hfta::plain(still, of_still, loss_of, {}, workers(GetParam()));
  for (std::size_t i = 0; i < data.x.size(); ++i) {
    step_still(data.x[i], data.y[i]);
    step_moved(data.x[i], data.y[i]);
    if (i == 2) moved.keep({3, 1});
  }
  expect_same_bits(state_of(*moved.module(0)), state_of(*still.module(3)));
  expect_same_bits(state_of(*moved.module(1)), state_of(*still.module(1)));
}

TEST_P(PlainStepTest, PerLaneInputsAreTheLanesOwn) {
  const Data data(3);
  const auto x = torch::stack(data.x), y = torch::stack(data.y);
  auto array = nets(3);
  SGD sgd(array, {.lr = 0.05});
  auto step = hfta::plain(array, sgd, loss_of, {}, workers(GetParam()));
  const auto losses = step(per_lane(x), per_lane(y));
  const hfta::base::IntraOpThreads one(1);
  for (std::int64_t lane = 0; lane < 3; ++lane) {
    SoloRun solo(lane);
    solo.use(std::make_unique<torch::optim::SGD>(solo.net->parameters(), torch::optim::SGDOptions(0.05)));
    EXPECT_TRUE(same_bits(losses[lane], solo.step(data.x[lane], data.y[lane])));
    expect_same_bits(state_of(*array.module(lane)), state_of(*solo.net));
  }
}

TEST_P(PlainStepTest, SeveralArraysUpdateTheOptimizersOnly) {
  const auto linear = [](std::int64_t in, std::int64_t out) {
    return [=](std::int64_t) { return torch::nn::Linear(in, out); };
  };
  hfta::Array<torch::nn::Linear> g(3, linear(2, 4)), d(3, linear(4, 1));
  SGD of_d(d, {.lr = 0.1});
  auto step = hfta::plain(std::tie(g, d), of_d, [](torch::nn::Linear& g, torch::nn::Linear& d, const torch::Tensor& z) {
    const auto made = g->forward(z);
    return std::tuple(d->forward(made).pow(2).mean(), made);
  }, {}, workers(GetParam()));
  const auto z = torch::randn({5, 2});
  const auto g_before = g.parameters()[0].tensor.detach().clone();
  std::vector<torch::Tensor> expected;
  for (std::int64_t lane = 0; lane < 3; ++lane) {
    auto net = d.lane(lane, hfta::lanes::copy);
    const auto made = g.lane(lane)->forward(z).detach();
    net->forward(made).pow(2).mean().backward();
    expected.push_back((net->weight - 0.1 * net->weight.grad()).detach());
  }
  const auto output = step(z);
  EXPECT_TRUE(same_bits(g.parameters()[0].tensor, g_before));
  EXPECT_TRUE(close(d.parameters()[0].tensor.detach().contiguous(), torch::stack(expected)));
  EXPECT_EQ(output.extras[0].sizes(), (std::vector<std::int64_t>{3, 5, 4}));
  for (auto* array : {static_cast<hfta::lanes::ArrayBase*>(&g), static_cast<hfta::lanes::ArrayBase*>(&d)})
    for (std::int64_t lane = 0; lane < 3; ++lane)
      for (const auto& p : array->lane_parameters(lane)) EXPECT_FALSE(p.grad().defined()) << "no gradients are left behind";
}

// Case A15: the lane takes a branch of its own.
TEST_P(PlainStepTest, LaneSpecificBranchTrains) {
  auto array = nets(3);
  SGD sgd(array, {.lr = 0.1});
  const Data data(1);
  auto step = hfta::plain(array, sgd, [](Net& net, const torch::Tensor& x, const torch::Tensor& y, const torch::Tensor& letter) {
    return letter.item<std::int64_t>() == 1 ? loss_of(net, x, y) : 2 * loss_of(net, x, y);
  }, {}, workers(GetParam()));
  const auto losses = step(data.x[0], data.y[0], per_lane(torch::tensor({0, 1, 2})));
  for (std::int64_t lane = 0; lane < 3; ++lane) {
    SoloRun solo(lane);
    EXPECT_TRUE(close(losses[lane], loss_of(solo.net, data.x[0], data.y[0]).detach() * (lane == 1 ? 1 : 2)));
  }
}

// A buffer that user code rebinds leaves its row: plain steps put it back.
class ReboundImpl : public torch::nn::Module {
 public:
  ReboundImpl() : weight(register_parameter("weight", torch::ones({2}))), mean(&register_buffer("mean", torch::zeros({2}))) {}
  torch::Tensor forward(const torch::Tensor& x) {
    *mean = 0.5 * *mean + x.detach();
    return (weight * x + *mean).sum();
  }
  torch::Tensor weight;
  torch::Tensor* mean;
};
TORCH_MODULE(Rebound);

TEST_P(PlainStepTest, ReboundBufferIsPutBackIntoItsRow) {
  hfta::Array<Rebound> array(3, [](std::int64_t) { return Rebound(); });
  SGD sgd(array, {.lr = 0.1});
  auto step = hfta::plain(array, sgd, [](Rebound& net, const torch::Tensor& x) { return net->forward(x); }, {}, workers(GetParam()));
  const auto x = torch::tensor({{1.0F, 2.0F}, {3.0F, 4.0F}, {5.0F, 6.0F}});
  step(per_lane(x));
  step(per_lane(x));
  EXPECT_TRUE(same_bits(array.buffers()[0].tensor.contiguous(), 1.5 * x));
}

TEST(PlainTrainStepTest, FreeFunctionTrains) {
  const Data data(2);
  auto array = nets(3);
  Adam adam(array, {.lr = kRates[0]});
  const torch::Tensor first = hfta::train_step(array, adam, loss_of, data.x[0], data.y[0]);
  const auto second = hfta::train_step(array, adam, [](Net& net, const torch::Tensor& x, const torch::Tensor& y) {
    const auto out = net->forward(x);
    return std::pair(torch::nn::functional::cross_entropy(out, y), out);
  }, data.x[1], data.y[1]);
  SoloRun solo(2);
  solo.use(std::make_unique<torch::optim::Adam>(solo.net->parameters(), torch::optim::AdamOptions(kRates[0])));
  EXPECT_TRUE(close(first[2], solo.step(data.x[0], data.y[0])));
  EXPECT_TRUE(close(second.losses[2], solo.step(data.x[1], data.y[1])));
  EXPECT_EQ(second.extras[0].sizes(), (std::vector<std::int64_t>{3, 6, 5}));
  EXPECT_FALSE(second.extras[0].requires_grad());
}

TEST(PlainTrainStepTest, BackwardAddsToStackedGradientsThatStepUses) {
  const Data data(2);
  auto array = nets(3);
  SGD sgd(array, {.lr = 0.05});
  hfta::backward(array, loss_of, data.x[0], data.y[0]);
  const torch::Tensor losses = hfta::backward(array, loss_of, data.x[1], data.y[1]);
  for (std::size_t p = 0; p < array.parameters().size(); ++p) {
    const auto& stacked = array.parameters()[p];
    ASSERT_EQ(stacked.tensor.grad().defined(), stacked.trainable) << stacked.name;  // Case A20.
    EXPECT_TRUE(stacked.tensor.is_leaf());
  }
  sgd.step();
  for (std::int64_t lane = 0; lane < 3; ++lane) {
    SoloRun solo(lane);
    torch::optim::SGD by(solo.net->parameters(), torch::optim::SGDOptions(0.05));
    loss_of(solo.net, data.x[0], data.y[0]).backward();
    const auto loss = loss_of(solo.net, data.x[1], data.y[1]);
    loss.backward();
    by.step();
    EXPECT_TRUE(close(losses[lane], loss.detach()));
    const auto got = state_of(*array.module(lane)), expected = state_of(*solo.net);
    for (std::size_t i = 0; i < got.size(); ++i) EXPECT_TRUE(close(got[i], expected[i])) << i;
  }
  sgd.zero_grad();
  EXPECT_FALSE(array.parameters()[0].tensor.grad().defined());
}

TEST(PlainTrainStepTest, CallersGradModeIsNoMatterAndAutocastCountsOnWorkers) {
  auto array = nets(2);
  SGD sgd(array, {.lr = 0.05});
  const Data data(1);
  const torch::NoGradGuard no_grad;
  at::autocast::set_autocast_enabled(at::kCPU, true);
  std::atomic<int> bf16{0};
  hfta::base::Workers two(2, 1);
  const hfta::train::LaneStep step = [&](std::int64_t lane, std::span<const torch::Tensor> inputs) {
    const auto out = array.lane(lane)->forward(inputs[0]);
    bf16 += torch::linear(inputs[0], torch::ones({2, 5})).scalar_type() == torch::kBFloat16;
    return hfta::train::StepResult{out.to(torch::kFloat).sum()};
  };
  hfta::lanes::ArrayBase* const arrays[] = {&array};
  const hfta::train::Input inputs[] = {{data.x[0]}};
  hfta::train::train_step(arrays, sgd, step, inputs, {}, &two);
  at::autocast::set_autocast_enabled(at::kCPU, false);
  at::autocast::clear_cache();
  EXPECT_EQ(bf16, 2);
}

class MisuseTest : public ::testing::Test {
 protected:
  hfta::Array<Net> array_ = nets(3);
  SGD sgd_{array_, {.lr = 0.05}};
  Data data_{1};
};

TEST_F(MisuseTest, WrongInputsAreTold) {
  const auto step = [&](auto... inputs) { return error_of([&] { hfta::train_step(array_, sgd_, loss_of, inputs...); }); };
  EXPECT_EQ(step(per_lane(torch::zeros({2, 6, 1, 6, 5})), data_.y[0]), "train::train_step: expected per-lane input 0 of shape [3, ...], got [2, 6, 1, 6, 5]");
  EXPECT_EQ(step(data_.x[0], per_lane(torch::tensor(1))), "train::train_step: expected per-lane input 1 of shape [3, ...], got []");
  EXPECT_EQ(step(torch::Tensor(), data_.y[0]), "train::train_step: expected a tensor as input 0, got an undefined one");
  EXPECT_EQ(step(data_.x[0].to(torch::kMeta), data_.y[0]), "train::train_step: expected input 0 on cpu, got it on meta");
  auto plain = hfta::plain(array_, sgd_, loss_of);
  EXPECT_EQ(error_of([&] { plain(data_.x[0]); }), "train::train_step: expected 2 inputs as the function takes, got 1");
}

TEST_F(MisuseTest, LossThatIsNoScalarOrHasNoGradientIsTold) {
  const auto with = [&](auto fn) { return error_of([&] { hfta::train_step(array_, sgd_, fn, data_.x[0]); }); };
  EXPECT_EQ(with([](Net& net, const torch::Tensor& x) { return net->forward(x); }), "train::train_step: expected a scalar loss from lane 0, got shape [6, 5]");
  EXPECT_EQ(with([](Net&, const torch::Tensor& x) { return x.sum(); }),
            "train::train_step: expected a loss that depends on a trainable parameter from lane 0, got one without a gradient");
  EXPECT_EQ(with([](Net&, const torch::Tensor&) { return torch::Tensor(); }), "train::train_step: expected a loss from lane 0, got an undefined tensor");
}

TEST_F(MisuseTest, OptimizerOfAnotherArrayAndWrongCountsAreTold) {
  auto other = nets(3);
  auto two = nets(2);
  EXPECT_EQ(error_of([&] { hfta::train_step(other, sgd_, loss_of, data_.x[0], data_.y[0]); }),
            "train::train_step: expected an optimizer of this array, got another array's");
  EXPECT_EQ(error_of([&] { hfta::plain(std::tie(array_, two), sgd_, [](Net& a, Net&, const torch::Tensor& x) { return a->forward(x).sum(); }); }),
            "train::PlainStep: expected arrays of 3 lanes, got one of 2");
  EXPECT_THAT(error_of([&] { hfta::plain(array_, sgd_, loss_of, {.max_norm = std::vector<double>{1, 2}}); }), ::testing::HasSubstr("max_norm"));
  EXPECT_EQ(error_of([&] { hfta::plain(array_, sgd_, loss_of, {.accumulate = 0}); }), "train::PlainStep: expected accumulate of at least 1, got 0");
}

TEST_F(MisuseTest, HandleFromBeforeKeepIsTold) {
  const auto stale = array_.lane(2);
  const auto before = state_of(*array_.module(0));
  array_.keep({0, 2});
  EXPECT_THAT(error_of([&] { hfta::train_step(array_, sgd_, [&](Net&, const torch::Tensor& x) { return stale->forward(x).sum(); }, data_.x[0]); }),
              ::testing::StartsWith("train::train_step: lane 0: lanes::"));
  expect_same_bits(state_of(*array_.module(0)), before);
}

TEST_F(MisuseTest, ErrorsOfLibTorchNameTheLaneInOneLineAndOthersPass) {
  hfta::base::Workers two(2, 1);
  const std::string text = error_of([&] {
    hfta::train_step(array_, sgd_, [](Net& net, const torch::Tensor& x) { return net->forward(x).view({-1, 7}).sum(); }, data_.x[0]);
  });
  EXPECT_THAT(text, ::testing::MatchesRegex("train::train_step: lane [0-2]: shape '\\[-1, 7\\]' is invalid for input of size 30(\n.*)*"));
  EXPECT_THROW(hfta::train_step(array_, sgd_, [](Net&, const torch::Tensor&) -> torch::Tensor { throw std::domain_error("mine"); }, data_.x[0]), std::domain_error);
  for (const auto& p : array_.lane_parameters(0)) EXPECT_FALSE(p.grad().defined());
}

}  // namespace plain_step_test
