#include <gmock/gmock.h>

#include <limits>
#include <thread>

#include "hfta/base/error.h"
#include "tests/optim/models.h"

namespace hfta::test {
namespace {

using optim::UpdateLowering;

template <typename Call>
std::string error_of(const Call& call) {
  try {
    call();
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  return "no error";
}

/// Runs `steps` updates of all lanes with the gradients that the seed gives.
void run(optim::Optimizer& optimizer, std::uint64_t seed, int steps) {
  torch::manual_seed(seed);
  for (int step = 0; step < steps; ++step) optimizer.update(0, optimizer.array().lanes(), random_gradients(optimizer.array()));
}

std::vector<torch::Tensor> copies(const lanes::ArrayBase& array, std::int64_t lane) { return solo_parameters(array, lane); }

void expect_same(const std::vector<torch::Tensor>& got, const std::vector<torch::Tensor>& expected) {
  ASSERT_EQ(got.size(), expected.size());
  for (std::size_t p = 0; p < got.size(); ++p) EXPECT_TRUE(same_bits(got[p], expected[p])) << "parameter " << p;
}

TEST(OptimizerTest, TellsWhatIsWrong) {
  auto array = odd_array(3);
  EXPECT_EQ(error_of([&] { optim::Adam(array, {.lr = {0.1, 0.2}}); }), "optim::Adam: lr: expected one value or 3 (one per lane), got 2");
  EXPECT_EQ(error_of([&] { optim::Adam(array, {.lr = {0.1, -0.2, 0.3}}); }), "optim::Adam: expected lr of lane 1 at least 0, got -0.2");
  EXPECT_EQ(error_of([&] { optim::AdamW(array, {.beta1 = 1}); }), "optim::AdamW: expected beta1 of lane 0 in [0, 1), got 1");
  EXPECT_EQ(error_of([&] { optim::SGD(array, {.momentum = {0.9, 0, 0.9}, .nesterov = true}); }),
            "optim::SGD: expected a momentum and no dampening with nesterov, got momentum 0 and dampening 0 in lane 1");
  EXPECT_EQ(error_of([&] { optim::Adam(array, {.groups = {{.takes = {}, .hyper = {}}}}); }), "optim::Adam: expected parameter group 1 to say what it takes, got nothing");
  const auto takes_all = [](const std::string&, const at::Tensor&) { return true; };
  EXPECT_EQ(error_of([&] { optim::SGD(array, {.groups = {{.takes = takes_all, .hyper = {{"betas", 1}}}}}); }),
            "optim::SGD: expected one of lr, momentum, dampening, weight_decay, got \"betas\"");
  optim::Adam adam(array);
  EXPECT_EQ(error_of([&] { adam.get("rate", 0); }), "optim::Adam: expected one of lr, beta1, beta2, eps, weight_decay, got \"rate\"");
  EXPECT_EQ(error_of([&] { adam.set("lr", 3, 0.1); }), "optim::Adam: expected a lane from 0 to 2, got 3");
  EXPECT_EQ(error_of([&] { adam.set("lr", 0, 0.1, 1); }), "optim::Adam: expected a parameter group below 1, got 1");
  EXPECT_EQ(error_of([&] { adam.set("lr", 0, std::nan("")); }), "optim::Adam: expected lr of lane 0 at least 0, got nan");
  EXPECT_EQ(error_of([&] { adam.update(2, 2, {}); }), "optim::Adam: expected lanes within 0 to 2, got 2 from 2");
  EXPECT_EQ(error_of([&] { adam.update(0, 3, {}); }), "optim::Adam: expected one gradient for each of 6 parameters, got 0");
  auto gradients = random_gradients(array);
  gradients[1] = torch::zeros({3, 4});
  std::vector<torch::Tensor> before = copies(array, 0);
  const auto name = array.parameters()[1].name;
  EXPECT_EQ(error_of([&] { adam.update(0, 3, gradients); }),
            base::message("optim::Adam: expected the gradient of \"", name, "\" for 3 lanes of ", array.parameters()[1].tensor.sizes().slice(1), ", got [3, 4]"));
  gradients = random_gradients(array);
  gradients.back() = gradients.back().to_sparse();
  EXPECT_EQ(error_of([&] { adam.update(0, 3, gradients); }), "optim::Adam: expected a dense gradient of \"" + array.parameters().back().name + "\", got Sparse");
  expect_same(copies(array, 0), before);
}

TEST(OptimizerTest, HasItsNamesAndNumbers) {
  auto array = odd_array(3);
  optim::AdamW adamw(array, {.lr = {0.1, 0.2, 0.3}});
  EXPECT_EQ(adamw.name(), "AdamW");
  EXPECT_THAT(adamw.hyper_names(), ::testing::ElementsAre("lr", "beta1", "beta2", "eps", "weight_decay"));
  EXPECT_EQ(adamw.get("lr", 1), 0.2);
  EXPECT_EQ(adamw.get("weight_decay", 2), 0.01);
  adamw.set("lr", optim::PerLane{1, 2, 3});
  EXPECT_EQ(adamw.get("lr", 2), 3);
  EXPECT_EQ(adamw.groups(), 1u);
}

TEST(OptimizerTest, ChangesOfNumbersInMidRunEqualThoseOfALoneModel) {
  for (const auto lowering : optim::kUpdateLowerings) {
    auto array = odd_array(3, torch::kDouble);
    optim::Adam adam(array, {.lr = 0.1});
    adam.use(lowering);
    auto solo = solo_parameters(array, 1);
    torch::optim::Adam lone(solo, torch::optim::AdamOptions(0.1));
    torch::manual_seed(3);
    for (int step = 0; step < 9; ++step) {
      if (step == 4) {
        adam.set("lr", 1, 0.003);
        adam.set("weight_decay", 1, 0.2);
        auto& options = static_cast<torch::optim::AdamOptions&>(lone.param_groups()[0].options());
        options.lr(0.003).weight_decay(0.2);
      }
      const auto gradients = random_gradients(array);
      adam.update(0, 3, gradients);
      give_gradients(solo, gradients, 1);
      lone.step();
    }
    for (std::size_t p = 0; p < solo.size(); ++p) EXPECT_TRUE(close(array.lane_parameters(1)[p], solo[p]));
  }
}

TEST(OptimizerTest, MomentumSwitchedOnLaterStartsItsBufferThen) {
  auto array = odd_array(2);
  optim::SGD sgd(array, {.lr = 0.1});
  auto solo = solo_parameters(array, 1);
  torch::optim::SGD lone(solo, torch::optim::SGDOptions(0.1));
  torch::manual_seed(3);
  for (int step = 0; step < 6; ++step) {
    if (step == 2) {
      EXPECT_EQ(sgd.state_bytes(), 0);
      sgd.set("momentum", 1, 0.9);
      static_cast<torch::optim::SGDOptions&>(lone.param_groups()[0].options()).momentum(0.9);
    }
    const auto gradients = random_gradients(array);
    sgd.update(0, 2, gradients);
    give_gradients(solo, gradients, 1);
    lone.step();
  }
  for (std::size_t p = 0; p < solo.size(); ++p) EXPECT_TRUE(same_bits(array.lane_parameters(1)[p], solo[p]));
}

TEST(OptimizerTest, GroupsHaveNumbersOfTheirOwn) {
  auto array = odd_array(3, torch::kDouble);
  optim::AdamW adamw(array, {.lr = {0.1, 0.01, 0.05}, .weight_decay = {0.1, 0.3, 0.2}, .groups = {optim::without_decay()}});
  ASSERT_EQ(adamw.groups(), 2u);
  EXPECT_EQ(adamw.get("weight_decay", 1, 0), 0.3);
  EXPECT_EQ(adamw.get("weight_decay", 1, 1), 0);
  auto solo = solo_parameters(array, 1);
  std::vector<torch::Tensor> decayed, free;
  for (std::size_t p = 0; p < solo.size(); ++p) {
    const bool is_free = solo[p].dim() <= 1;
    EXPECT_EQ(adamw.group_of_parameters()[p], is_free ? 1u : 0u);
    (is_free ? free : decayed).push_back(solo[p]);
  }
  using torch::optim::AdamWOptions;
  torch::optim::AdamW lone({torch::optim::OptimizerParamGroup(decayed, std::make_unique<AdamWOptions>(AdamWOptions(0.01).weight_decay(0.3))),
                            torch::optim::OptimizerParamGroup(free, std::make_unique<AdamWOptions>(AdamWOptions(0.01).weight_decay(0)))},
                           AdamWOptions(0.01));
  torch::manual_seed(5);
  for (int step = 0; step < 5; ++step) {
    const auto gradients = random_gradients(array);
    adamw.update(0, 3, gradients);
    give_gradients(solo, gradients, 1);
    lone.step();
  }
  for (std::size_t p = 0; p < solo.size(); ++p) EXPECT_TRUE(same_bits(array.lane_parameters(1)[p], solo[p]));
}

/// Case C14.
TEST(OptimizerTest, ParametersWithoutAGradientAreSkippedAndStayWithoutState) {
  struct NetImpl : torch::nn::Module {
    NetImpl() {
      linear = register_module("linear", torch::nn::Linear(torch::nn::LinearOptions(27, 2).bias(false)));
      conv = register_module("conv", torch::nn::Conv2d(torch::nn::Conv2dOptions(2, 3, 3).bias(false)));
      unused = register_parameter("unused", torch::randn({4}));
      frozen = register_parameter("frozen", torch::randn({4}), false);
    }
    torch::Tensor forward(const torch::Tensor& x) { return linear(conv(x).flatten(1)).square().mean(); }
    torch::nn::Linear linear{nullptr};
    torch::nn::Conv2d conv{nullptr};
    torch::Tensor unused, frozen;
  };
  Array<std::shared_ptr<NetImpl>> array(2, [](std::int64_t) { return std::make_shared<NetImpl>(); });
  array.to(device());
  optim::Adam adam(array, {.lr = {0.1, 0.01}, .weight_decay = 0.1});
  const auto before = copies(array, 1);
  for (std::int64_t lane = 0; lane < 2; ++lane) array.lane(lane)->forward(torch::randn({4, 2, 5, 5}, device())).backward();
  adam.step();
  for (std::size_t p = 0; p < before.size(); ++p) {
    const auto& name = array.parameters()[p].name;
    const bool skipped = name == "unused" || name == "frozen";
    EXPECT_EQ(torch::equal(array.lane_parameters(1)[p], before[p]), skipped) << name;
    const auto state = adam.lane_state_dict(1).toGenericDict().at("state").toGenericDict();
    EXPECT_EQ(state.contains(static_cast<std::int64_t>(p)), !skipped) << name;
  }
}

TEST(OptimizerTest, ALaneWithoutAGradientIsSkipped) {
  auto array = odd_array(3);
  optim::SGD sgd(array, {.lr = 0.1, .momentum = 0.9, .weight_decay = 0.1});
  const auto before = copies(array, 1);
  for (const std::int64_t lane : {0, 2}) array.lane(lane)->first->weight.square().sum().backward();
  sgd.step();
  expect_same(copies(array, 1), before);
  EXPECT_EQ(sgd.steps(0), 1);
  EXPECT_EQ(sgd.steps(1), 0);
  EXPECT_FALSE(torch::equal(copies(array, 2)[0], before[0]));
}

TEST(OptimizerTest, ABackwardPassThroughOverwrittenParametersIsRefused) {
  auto array = odd_array(1);
  optim::SGD sgd(array, {.lr = 0.1});
  const auto loss = array.lane(0)->first->weight.square().sum();
  loss.backward({}, /*retain_graph=*/true);
  sgd.step();
  EXPECT_THROW(loss.backward(), c10::Error);
}

TEST(OptimizerTest, NaNInOneLaneChangesNoBitOfAnother) {
  for (const auto lowering : optim::kUpdateLowerings)
    for (const double poison : {std::nan(""), std::numeric_limits<double>::infinity()}) {
      std::vector<std::vector<torch::Tensor>> results;
      for (const bool poisoned : {false, true}) {
        auto array = odd_array(3);
        optim::Adam adam(array, {.lr = 0.1, .weight_decay = 0.1, .amsgrad = true});
        adam.use(lowering);
        torch::manual_seed(3);
        for (int step = 0; step < 4; ++step) {
          auto gradients = random_gradients(array);
          if (poisoned && step == 1)
            for (auto& g : gradients)
              if (g.defined()) g.select(0, 1).fill_(poison);
          adam.update(0, 3, gradients);
        }
        EXPECT_EQ(array.lane(1)->first->weight.isnan().any().item<bool>(), poisoned);
        results.push_back(copies(array, 0));
        for (auto& p : copies(array, 2)) results.back().push_back(p);
      }
      expect_same(results[1], results[0]);
    }
}

TEST(OptimizerTest, ScalesMultiplyTheGradients) {
  const std::vector<double> scales{0.25, 3};
  for (const auto lowering : optim::kUpdateLowerings) {
    auto scaled = odd_array(2, torch::kDouble), plain = odd_array(2, torch::kDouble);
    optim::Adam a(scaled, {.lr = 0.1, .weight_decay = 0.1}), b(plain, {.lr = 0.1, .weight_decay = 0.1});
    a.use(lowering);
    torch::manual_seed(3);
    for (int step = 0; step < 3; ++step) {
      auto gradients = random_gradients(scaled);
      a.update(0, 2, gradients, {.scales = scales});
      for (auto& g : gradients)
        if (g.defined()) g.select(0, 0).mul_(0.25), g.select(0, 1).mul_(3);
      b.update(0, 2, gradients);
    }
    for (std::int64_t lane = 0; lane < 2; ++lane)
      for (std::size_t p = 0; p < scaled.parameters().size(); ++p) EXPECT_TRUE(close(scaled.lane_parameters(lane)[p], plain.lane_parameters(lane)[p]));
  }
}

TEST(OptimizerTest, DisjointLanesMayBeUpdatedOnSeveralThreads) {
  auto alone = odd_array(8), together = odd_array(8);
  optim::Adam a(alone, {.lr = 0.1, .amsgrad = true}), b(together, {.lr = 0.1, .amsgrad = true});
  torch::manual_seed(3);
  for (int step = 0; step < 5; ++step) {
    const auto gradients = random_gradients(alone);
    a.update(0, 8, gradients);
    std::vector<std::thread> threads;
    for (std::int64_t first = 0; first < 8; first += 2) threads.emplace_back([&, first] { b.update(first, 2, lanes_of(gradients, first, 2)); });
    for (auto& thread : threads) thread.join();
  }
  for (std::int64_t lane = 0; lane < 8; ++lane) expect_same(copies(together, lane), copies(alone, lane));
}

TEST(OptimizerTest, GradientsMayLieInMemoryOtherwise) {
  auto array = odd_array(3), same = odd_array(3);
  optim::Adam a(array, {.lr = 0.1}), b(same, {.lr = 0.1});
  torch::manual_seed(3);
  for (int step = 0; step < 3; ++step) {
    auto gradients = random_gradients(array);
    a.update(0, 3, gradients);
    for (auto& g : gradients)
      if (g.defined() && g.dim() == 3) g = g.transpose(1, 2).contiguous().transpose(1, 2);
    gradients.back() = gradients.back().expand({3, -1, -1});
    update_in_groups(b, gradients, 2);
  }
  for (std::int64_t lane = 0; lane < 3; ++lane) expect_same(copies(same, lane), copies(array, lane));
}

TEST(OptimizerTest, StateMovesWithItsLane) {
  auto array = odd_array(4), whole = odd_array(4);
  optim::Adam adam(array, {.lr = {0.1, 0.2, 0.3, 0.4}}), reference(whole, {.lr = {0.1, 0.2, 0.3, 0.4}});
  run(adam, 3, 2), run(reference, 3, 2);
  array.keep({3, 1});
  EXPECT_EQ(adam.get("lr", 0), 0.4);
  EXPECT_EQ(adam.get("lr", 1), 0.2);
  torch::manual_seed(9);
  const auto gradients = random_gradients(whole);
  reference.update(0, 4, gradients);
  std::vector<torch::Tensor> kept;
  for (const auto& g : gradients) kept.push_back(g.defined() ? torch::stack({g[3], g[1]}) : g);
  adam.update(0, 2, kept);
  expect_same(copies(array, 0), copies(whole, 3));
  expect_same(copies(array, 1), copies(whole, 1));
  EXPECT_EQ(adam.steps(0), 3);
}

TEST(OptimizerTest, AnAddedLaneStartsFreshAndAsksForNumbersThatWereAList) {
  auto array = odd_array(2);
  optim::Adam adam(array, {.lr = {0.1, 0.2}, .weight_decay = 0.1});
  run(adam, 3, 2);
  array.append({7});
  EXPECT_TRUE(std::isnan(adam.get("lr", 2)));
  EXPECT_EQ(adam.get("weight_decay", 2), 0.1);
  EXPECT_EQ(adam.steps(2), 0);
  torch::manual_seed(5);
  const auto gradients = random_gradients(array);
  EXPECT_EQ(error_of([&] { adam.update(0, 3, gradients); }), "optim::Adam: expected lr to be set for added lane 2, got none");
  adam.set("lr", 2, 0.05);
  auto solo = solo_parameters(array, 2);
  torch::optim::Adam lone(solo, torch::optim::AdamOptions(0.05).weight_decay(0.1));
  give_gradients(solo, gradients, 2);
  lone.step();
  adam.update(0, 3, gradients);
  for (std::size_t p = 0; p < solo.size(); ++p) EXPECT_TRUE(same_bits(array.lane_parameters(2)[p], solo[p]));
}

TEST(OptimizerTest, ACopiedLaneGoesOnAsItsSource) {
  auto array = odd_array(3);
  optim::Adam adam(array, {.lr = {0.1, 0.2, 0.3}});
  run(adam, 3, 2);
  array.copy_lane(2, 0);
  EXPECT_EQ(adam.get("lr", 0), 0.3);
  torch::manual_seed(5);
  auto gradients = random_gradients(array);
  for (auto& g : gradients)
    if (g.defined()) g[0].copy_(g[2]);
  adam.update(0, 3, gradients);
  expect_same(copies(array, 0), copies(array, 2));
}

}  // namespace
}  // namespace hfta::test
