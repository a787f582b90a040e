#include <functional>
#include <tuple>

#include "tests/optim/models.h"

namespace hfta::test {
namespace update_test {

using lanes::ArrayBase;
using optim::UpdateLowering;

constexpr std::int64_t kLanes = 4;
const std::vector<double> kRates{0.01, 0.1, 0.003, 0.05}, kDecays{0.0, 0.1, 0.01, 0.3};

/// PyTorch's Adadelta, which LibTorch does not have.
struct SoloAdadelta {
  std::vector<torch::Tensor> parameters, squares, deltas;
  double lr, rho, eps, decay;

  void step() {
    torch::NoGradGuard no_grad;
    squares.resize(parameters.size()), deltas.resize(parameters.size());
    for (std::size_t p = 0; p < parameters.size(); ++p) {
      auto gradient = parameters[p].grad();
      if (!gradient.defined()) continue;
      if (!squares[p].defined()) squares[p] = torch::zeros_like(parameters[p]), deltas[p] = torch::zeros_like(parameters[p]);
      if (decay != 0) gradient = gradient.add(parameters[p], decay);
      squares[p].mul_(rho).addcmul_(gradient, gradient, 1 - rho);
      const auto delta = deltas[p].add(eps).sqrt_().div_(squares[p].add(eps).sqrt_()).mul_(gradient);
      deltas[p].mul_(rho).addcmul_(delta, delta, 1 - rho);
      parameters[p].add_(delta, -lr);
    }
  }
};

using Step = std::function<void()>;

/// An optimizer of an array and, for each lane, the optimizer of a lone model.
struct Case {
  std::string name;
  std::function<std::unique_ptr<optim::Optimizer>(ArrayBase&)> array;
  std::function<Step(std::vector<torch::Tensor>, std::size_t lane)> solo;
  bool bit_equal = true;  ///< With our kernels on the CPU.
  double gradient_factor = 1;
};

template <typename Optimizer>
Step keep(std::shared_ptr<Optimizer> optimizer) {
  return [optimizer] { optimizer->step(); };
}

Step solo_adam(std::vector<torch::Tensor> parameters, torch::optim::AdamOptions options) {
  return keep(std::make_shared<torch::optim::Adam>(std::move(parameters), options));
}

std::vector<Case> cases() {
  using namespace torch::optim;
  return {
      {"sgd", [](ArrayBase& a) { return std::make_unique<optim::SGD>(a, optim::SGDOptions{.lr = kRates, .weight_decay = kDecays}); },
       [](auto p, std::size_t l) { return keep(std::make_shared<SGD>(p, SGDOptions(kRates[l]).weight_decay(kDecays[l]))); }},
      {"sgd_momentum",
       [](ArrayBase& a) { return std::make_unique<optim::SGD>(a, optim::SGDOptions{.lr = kRates, .momentum = {0.9, 0.0, 0.5, 0.99}, .dampening = {0, 0, 0.2, 0.1}, .weight_decay = kDecays}); },
       [](auto p, std::size_t l) {
         const double momentum[]{0.9, 0.0, 0.5, 0.99}, dampening[]{0, 0, 0.2, 0.1};
         return keep(std::make_shared<SGD>(p, SGDOptions(kRates[l]).momentum(momentum[l]).dampening(dampening[l]).weight_decay(kDecays[l])));
       }},
      {"sgd_nesterov",
       [](ArrayBase& a) { return std::make_unique<optim::SGD>(a, optim::SGDOptions{.lr = kRates, .momentum = {0.9, 0.8, 0.5, 0.99}, .weight_decay = 0.01, .nesterov = true}); },
       [](auto p, std::size_t l) {
         const double momentum[]{0.9, 0.8, 0.5, 0.99};
         return keep(std::make_shared<SGD>(p, SGDOptions(kRates[l]).momentum(momentum[l]).weight_decay(0.01).nesterov(true)));
       }},
      {"sgd_maximize", [](ArrayBase& a) { return std::make_unique<optim::SGD>(a, optim::SGDOptions{.lr = kRates, .momentum = 0.9, .weight_decay = kDecays, .maximize = true}); },
       [](auto p, std::size_t l) { return keep(std::make_shared<SGD>(p, SGDOptions(kRates[l]).momentum(0.9).weight_decay(kDecays[l]))); }, true, -1},
      {"adam", [](ArrayBase& a) { return std::make_unique<optim::Adam>(a, optim::AdamOptions{.lr = kRates}); },
       [](auto p, std::size_t l) { return solo_adam(p, AdamOptions(kRates[l])); }},
      {"adam_all",
       [](ArrayBase& a) {
         return std::make_unique<optim::Adam>(a, optim::AdamOptions{.lr = kRates, .beta1 = {0.9, 0.8, 0, 0.95}, .beta2 = {0.999, 0.9, 0.99, 0.5}, .eps = {1e-8, 1e-3, 1e-5, 0.1}, .weight_decay = kDecays});
       },
       [](auto p, std::size_t l) {
         const double beta1[]{0.9, 0.8, 0, 0.95}, beta2[]{0.999, 0.9, 0.99, 0.5}, eps[]{1e-8, 1e-3, 1e-5, 0.1};
         return solo_adam(p, AdamOptions(kRates[l]).betas({beta1[l], beta2[l]}).eps(eps[l]).weight_decay(kDecays[l]));
       }},
      {"adam_amsgrad", [](ArrayBase& a) { return std::make_unique<optim::Adam>(a, optim::AdamOptions{.lr = kRates, .beta2 = 0.9, .weight_decay = kDecays, .amsgrad = true}); },
       [](auto p, std::size_t l) { return solo_adam(p, AdamOptions(kRates[l]).betas({0.9, 0.9}).weight_decay(kDecays[l]).amsgrad(true)); }},
      {"adam_maximize", [](ArrayBase& a) { return std::make_unique<optim::Adam>(a, optim::AdamOptions{.lr = kRates, .weight_decay = kDecays, .maximize = true}); },
       [](auto p, std::size_t l) { return solo_adam(p, AdamOptions(kRates[l]).weight_decay(kDecays[l])); }, true, -1},
      {"adamw", [](ArrayBase& a) { return std::make_unique<optim::AdamW>(a, optim::AdamWOptions{.lr = kRates, .weight_decay = kDecays}); },
       [](auto p, std::size_t l) { return keep(std::make_shared<AdamW>(p, AdamWOptions(kRates[l]).weight_decay(kDecays[l]))); }},
      {"adamw_amsgrad", [](ArrayBase& a) { return std::make_unique<optim::AdamW>(a, optim::AdamWOptions{.lr = kRates, .amsgrad = true}); },
       [](auto p, std::size_t l) { return keep(std::make_shared<AdamW>(p, AdamWOptions(kRates[l]).amsgrad(true))); }},
      {"adadelta", [](ArrayBase& a) { return std::make_unique<optim::Adadelta>(a, optim::AdadeltaOptions{.lr = kRates, .rho = {0.9, 0.5, 0.95, 0.99}, .eps = 1e-6, .weight_decay = kDecays}); },
       [](auto p, std::size_t l) {
         const double rho[]{0.9, 0.5, 0.95, 0.99};
         return keep(std::make_shared<SoloAdadelta>(SoloAdadelta{p, {}, {}, kRates[l], rho[l], 1e-6, kDecays[l]}));
       },
       false},
  };
}

class UpdateTest : public ::testing::TestWithParam<std::tuple<std::size_t, torch::ScalarType, std::int64_t, UpdateLowering>> {};

TEST_P(UpdateTest, TwentyStepsEqualThoseOfLoneModels) {
  const auto [index, type, width, lowering] = GetParam();
  const auto all = cases();
  const auto& c = all[index];
  auto array = odd_array(kLanes, type);
  array.to(device());
  const auto optimizer = c.array(array);
  optimizer->use(lowering);
  std::vector<std::vector<torch::Tensor>> solo;
  std::vector<Step> steps;
  for (std::int64_t lane = 0; lane < kLanes; ++lane) {
    solo.push_back(solo_parameters(array, lane));
    steps.push_back(c.solo(solo.back(), static_cast<std::size_t>(lane)));
  }
  torch::manual_seed(7);
  for (int step = 0; step < 20; ++step) {
    const auto gradients = random_gradients(array);
    update_in_groups(*optimizer, gradients, width);
    for (std::int64_t lane = 0; lane < kLanes; ++lane) {
      give_gradients(solo[lane], gradients, lane, c.gradient_factor);
      steps[lane]();
    }
  }
  const bool bits = c.bit_equal && device().is_cpu() && lowering == UpdateLowering::Rows;
  for (std::int64_t lane = 0; lane < kLanes; ++lane) {
    EXPECT_EQ(optimizer->steps(lane), 20);
    for (std::size_t p = 0; p < solo[lane].size(); ++p) {
      const auto& got = array.lane_parameters(lane)[p];
      EXPECT_TRUE(bits ? same_bits(got, solo[lane][p]) : close(got, solo[lane][p], tolerance(type, 10)))
          << c.name << ", lane " << lane << ", " << array.parameters()[p].name;
    }
  }
}

std::string name_of(const ::testing::TestParamInfo<UpdateTest::ParamType>& info) {
  const auto [index, type, width, lowering] = info.param;
  return cases()[index].name + (type == torch::kFloat ? "_float_" : "_double_") + std::to_string(width) + (lowering == UpdateLowering::Rows ? "_rows" : "_stacked");
}

INSTANTIATE_TEST_SUITE_P(AllOptimizers, UpdateTest,
                         ::testing::Combine(::testing::Range<std::size_t>(0, 11), ::testing::Values(torch::kFloat, torch::kDouble), ::testing::Values(1, 3),
                                            ::testing::ValuesIn(optim::kUpdateLowerings)),
                         name_of);

TEST(UpdateCasesTest, AreAllInstantiated) { EXPECT_EQ(cases().size(), 11u); }

/// Where gradients are zero from some step on the first moments decay to denormals, which our kernel computes in a way of their own.
TEST(UpdateNumbersTest, MomentsThatDecayToDenormalsKeepLibTorchsBits) {
  const std::vector<double> beta1{0.9, 0.5, 0.97, 0.0}, eps{1e-8, 1e-8, 1e-30, 0};
  for (const bool amsgrad : {false, true}) {
    torch::manual_seed(3);
    auto array = odd_array(kLanes);
    std::vector<torch::Tensor> sizes;  // of each gradient: live, never more than a denormal, or dead
    {
      const torch::NoGradGuard no_grad;
      for (const auto& p : array.parameters()) {
        const auto kind = torch::randint(0, 4, p.tensor.sizes());
        sizes.push_back(torch::where(kind == 0, 1.0F, torch::where(kind == 1, 1e-39F, 0.0F)));
        p.tensor.mul_(torch::where(torch::rand(p.tensor.sizes()) < 0.2, 0.0F, torch::where(torch::rand(p.tensor.sizes()) < 0.2, 1e-33F, 1.0F)));
      }
    }
    optim::Adam adam(array, {.lr = kRates, .beta1 = beta1, .eps = eps, .amsgrad = amsgrad});
    std::vector<std::vector<torch::Tensor>> solo;
    std::vector<Step> steps;
    for (std::size_t lane = 0; lane < kLanes; ++lane) {
      solo.push_back(solo_parameters(array, static_cast<std::int64_t>(lane)));
      steps.push_back(solo_adam(solo.back(), torch::optim::AdamOptions(kRates[lane]).betas({beta1[lane], 0.999}).eps(eps[lane]).amsgrad(amsgrad)));
    }
    for (int step = 0; step < 1100; ++step) {
      auto gradients = random_gradients(array);
      const bool all = step < 3 || step > 1090;
      for (std::size_t p = 0; p < gradients.size(); ++p)
        if (gradients[p].defined() && !all) gradients[p].mul_(sizes[p]);
      adam.update(0, kLanes, gradients);
      for (std::int64_t lane = 0; lane < kLanes; ++lane) {
        give_gradients(solo[lane], gradients, lane);
        steps[lane]();
        for (std::size_t p = 0; (step % 50 == 0 || all) && p < solo[lane].size(); ++p)
          ASSERT_TRUE(same_bits(array.lane_parameters(lane)[p], solo[lane][p])) << "step " << step << ", lane " << lane << ", " << array.parameters()[p].name;
      }
    }
  }
}

/// Numbers of all kinds: gradients that die, denormal ones, second moments from 2^-140 to beyond the largest float, NaN.
TEST(UpdateNumbersTest, FreeRootsAreWithinAnUlp) {
  auto exact = odd_array(kLanes), free = odd_array(kLanes);
  const auto stacks = [](ArrayBase& array) {
    std::vector<torch::Tensor> trained;
    for (const auto& p : array.parameters())
      if (p.trainable) trained.push_back(p.tensor.detach());
    return trained;
  };
  const auto right = stacks(exact), got = stacks(free);
  const optim::AdamOptions options{.lr = kRates, .eps = {1e-8, 1e-3, 1e-30, 0.1}, .weight_decay = kDecays};
  optim::Adam a(exact, options), b(free, options);
  torch::manual_seed(3);
  const double scales[]{1, 1e-3, 1e-18, 1e-21, 1e18, 1e21, 0};
  for (int step = 0; step < 200; ++step) {
    auto gradients = random_gradients(exact);
    for (auto& g : gradients)
      if (step > 100 && g.defined()) g.mul_(scales[step % 7]);
    if (step == 190)
      for (auto& g : gradients)
        if (g.defined()) g.select(0, 1).fill_(std::numeric_limits<float>::quiet_NaN());
    for (std::size_t p = 0; p < right.size(); ++p) got[p].copy_(right[p]);
    a.update(0, kLanes, gradients);
    b.update(0, kLanes, gradients, {.rounds_freely = true});
    for (std::size_t p = 0; p < right.size(); ++p) ASSERT_TRUE(torch::allclose(got[p], right[p], 3e-7, 5e-8, /*equal_nan=*/true)) << "step " << step << ", parameter " << p;
  }
  for (const auto& p : right) EXPECT_TRUE(p.select(0, 1).isnan().all().item<bool>() && p.select(0, 0).isfinite().all().item<bool>());
}

struct OneWeightImpl : torch::nn::Module {
  OneWeightImpl() { w = register_parameter("w", torch::ones({1}, torch::kDouble)); }
  torch::Tensor w;
};
TORCH_MODULE(OneWeight);

/// Three steps of the loss w^2 / 2, whose gradient is w.
torch::Tensor three_steps(Array<OneWeight>& array, optim::Optimizer& optimizer, UpdateLowering lowering) {
  optimizer.use(lowering);
  for (int step = 0; step < 3; ++step) {
    for (std::int64_t lane = 0; lane < array.lanes(); ++lane) (array.lane(lane)->w.square().sum() / 2).backward();
    optimizer.step();
    optimizer.zero_grad();
  }
  return array.parameters()[0].tensor.detach().flatten().clone();
}

TEST(UpdateNumbersTest, AreThoseOfCaseA18) {  // case A18
  for (const auto lowering : optim::kUpdateLowerings) {
    Array<OneWeight> array(3, [](std::int64_t) { return OneWeight(); });
    optim::Adam adam(array, {.lr = {0.1, 0.01, 0.001}, .eps = 1e-8});
    EXPECT_TRUE(close(three_steps(array, adam, lowering), torch::tensor({0.701586274504, 0.970010099529, 0.997000096080}, torch::kDouble), {0, 1e-12}));
    Array<OneWeight> second(2, [](std::int64_t) { return OneWeight(); });
    optim::AdamW adamw(second, {.lr = {0.1, 0.01}, .weight_decay = {0.1, 0.5}});
    EXPECT_TRUE(close(three_steps(second, adamw, lowering), torch::tensor({0.675101223189, 0.955240143580}, torch::kDouble), {0, 1e-12}));
  }
}

/// Parameters of few digits go through LibTorch's operators, which keep the numbers per lane in float.
TEST(UpdateTypesTest, HalfPrecisionIsUpdatedToo) {
  for (const auto type : {torch::kBFloat16, torch::kHalf}) {
    auto array = odd_array(2, type);
    array.to(device());
    optim::Adam adam(array, {.lr = {0.01, 0.1}, .eps = 1e-3, .weight_decay = 0.1});  // 1e-8 is 0 in half: PyTorch divides 0 by 0
    std::vector<std::vector<torch::Tensor>> solo;
    std::vector<Step> steps;
    for (std::size_t lane = 0; lane < 2; ++lane) {
      solo.push_back(solo_parameters(array, static_cast<std::int64_t>(lane)));
      steps.push_back(solo_adam(solo.back(), torch::optim::AdamOptions(lane ? 0.1 : 0.01).eps(1e-3).weight_decay(0.1)));
    }
    torch::manual_seed(7);
    for (int step = 0; step < 5; ++step) {
      const auto gradients = random_gradients(array);
      adam.update(0, 2, gradients);
      for (std::int64_t lane = 0; lane < 2; ++lane) give_gradients(solo[lane], gradients, lane), steps[lane]();
    }
    for (std::int64_t lane = 0; lane < 2; ++lane)
      for (std::size_t p = 0; p < solo[lane].size(); ++p) EXPECT_TRUE(close(array.lane_parameters(lane)[p], solo[lane][p])) << array.parameters()[p].name;
  }
}

}  // namespace update_test
}  // namespace hfta::test
