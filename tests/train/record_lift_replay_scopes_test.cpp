// What surrounds a step while it is recorded, and what hangs on its tensors; the names are those of the list of known breakages.
#include <ATen/autocast_mode.h>
#include <torch/csrc/autograd/variable.h>

#include <gmock/gmock.h>

#include "hfta/base/error.h"
#include "tests/train/lanes_against_solo.h"

namespace record_lift_replay_scopes_test {

using at::Tensor;
using hfta::Array;
using hfta::test::close;
using hfta::test::expect_lanes_equal_solo;
using hfta::test::kLanes;
using hfta::test::Loss;
namespace nn = torch::nn;
namespace F = torch::nn::functional;

struct PairImpl : nn::Module {
  nn::Linear one{register_module("one", nn::Linear(12, 5))}, two{register_module("two", nn::Linear(5, 5))};
};
TORCH_MODULE(Pair);

Pair build(std::int64_t) { return Pair(); }
Tensor loss_of(Pair& net, const Tensor& x, const Tensor& y) { return F::cross_entropy(net->two(torch::tanh(net->one(x))).to(torch::kFloat), y); }

/// A region of autocast that keeps casts of weights until it is left.
struct Region {
  Region() { at::autocast::set_autocast_dtype(at::kCPU, at::kBFloat16), at::autocast::set_autocast_enabled(at::kCPU, true); }
  ~Region() { at::autocast::clear_cache(), at::autocast::set_autocast_enabled(at::kCPU, false); }
};

TEST(RecordLiftReplayScopesTest, AnswerCRegionAroundRecordWithAWarmCacheCastsAtEachReplay) {
  for (const std::int64_t width : {std::int64_t{1}, kLanes}) {
    Array<Pair> array(kLanes, build);
    const auto step = hfta::test::loss_and_gradients<Pair>(array, loss_of);
    hfta::train::RecordedFunction recorded({&array}, step, {.width = width});
    for (int i = 0; i < 3; ++i) {
      const auto x = torch::randn({6, 12}, hfta::base::seeded_generator(static_cast<std::uint64_t>(i))), y = torch::arange(6).remainder(5);
      std::vector<std::vector<Tensor>> got(kLanes), expected(kLanes);
      {
        const Region region;
        if (i == 0)
          for (std::int64_t lane = 0; lane < kLanes; ++lane) array.lane(lane)->one(x), array.lane(lane)->two(array.lane(lane)->one(x));  // casts are kept from here on
        recorded.run(std::vector<hfta::train::Input>{{x}, {y}}, [&](std::int64_t first, std::int64_t lanes, std::span<const Tensor> results) {
          for (std::int64_t lane = 0; lane < lanes; ++lane)
            for (const auto& result : results) got[first + lane].push_back(result[lane].clone());
        });
      }
      for (std::int64_t lane = 0; lane < kLanes; ++lane) {
        const Region region;
        expected[lane] = step(lane, std::vector<Tensor>{x, y});
      }
      const at::NoGradGuard no_grad;
      for (std::int64_t lane = 0; lane < kLanes; ++lane)
        for (std::size_t k = 0; k < expected[lane].size(); ++k) EXPECT_TRUE(close(got[lane][k], expected[lane][k], hfta::test::tolerance(torch::kFloat, 300))) << k;
      for (const auto& stack : array.parameters()) stack.tensor.detach().mul_(1.5);  // what a kept cast would not notice
    }
  }
}

struct Halves : torch::autograd::PostAccumulateGradHook {
  void operator()(const torch::autograd::Variable& parameter) override {
    const at::NoGradGuard no_grad;
    parameter.mutable_grad().mul_(0.5);
  }
};

TEST(RecordLiftReplayScopesTest, AnswerEHooksOfParameters) {
  const auto with_hooks = [](std::int64_t) {
    Pair net;
    net->one->weight.register_hook([](const Tensor& gradient) { return gradient * 3; });
    torch::autograd::impl::set_post_acc_grad_hooks(net->two->weight, std::make_unique<Halves>());
    return net;
  };
  for (const std::int64_t width : {std::int64_t{1}, kLanes}) expect_lanes_equal_solo<Pair>(with_hooks, loss_of, {.width = width});
}

TEST(RecordLiftReplayScopesTest, Row4ConjugateBitsOfAGroup) {
  expect_lanes_equal_solo<Pair>(build, [](Pair& net, const Tensor& x, const Tensor& y) {
    const auto z = torch::complex(net->one(x), net->two(net->one(x)));
    return F::cross_entropy(torch::real(z * z.conj() + z.conj() * 2), y);
  }, {.width = kLanes});
}

TEST(RecordLiftReplayScopesTest, AnswerHMoreThatDependsOnDataIsRefusedByName) {
  const std::vector<std::pair<const char*, Loss<Pair>>> steps{
      {"aten::allclose", [](Pair& net, const Tensor& x, const Tensor&) { return net->one(x).mean() * (x.allclose(x * 2) ? 2 : 3); }},
      {"aten::unique_consecutive", [](Pair& net, const Tensor& x, const Tensor& y) { return net->one(x).mean() * std::get<0>(at::unique_consecutive(y)).size(0); }},
      {"aten::unique_dim", [](Pair& net, const Tensor& x, const Tensor& y) { return net->one(x).mean() * std::get<0>(at::unique_dim(y, 0)).size(0); }},
      {"aten::repeat_interleave.Tensor", [](Pair& net, const Tensor& x, const Tensor& y) { return net->one(x).mean() * at::repeat_interleave(y).size(0); }},
      {"reads a value on the host", [](Pair& net, const Tensor& x, const Tensor& y) { return (loss_of(net, x, y) > 1).item<bool>() ? net->one(x).mean() : loss_of(net, x, y); }},
  };
  for (const auto& [name, step] : steps) {
    Array<Pair> array(kLanes, build);
    hfta::train::RecordedFunction recorded({&array}, hfta::test::loss_and_gradients<Pair>(array, step), {.width = kLanes});
    try {
      recorded.run(std::vector<hfta::train::Input>{{torch::randn({6, 12})}, {torch::arange(6).remainder(5)}}, [](auto, auto, auto) {});
      ADD_FAILURE() << name << " was not refused";
    } catch (const hfta::Unsupported& error) {
      EXPECT_THAT(error.what(), ::testing::HasSubstr(name));
    }
  }
}

}  // namespace record_lift_replay_scopes_test
