#include "hfta/lanes/merge.h"

#include <gmock/gmock.h>

#include "tests/program/solo.h"

namespace hfta::test {
namespace {

using ::testing::Contains;
using ::testing::Not;
namespace nn = torch::nn;
namespace F = torch::nn::functional;

struct MlpImpl : nn::Module {
  nn::Linear one{register_module("one", nn::Linear(7, 20))}, two{register_module("two", nn::Linear(20, 18))}, three;
  explicit MlpImpl(std::int64_t classes) : three(register_module("three", nn::Linear(18, classes))) {}
  at::Tensor forward(const at::Tensor& x) { return three(torch::relu(two(torch::relu(one(x))))); }
};
TORCH_MODULE(Mlp);

std::vector<std::string> names(const Program& program) {
  std::vector<std::string> result;
  for (const auto& node : program.nodes) result.push_back(node.op.schema().name());
  return result;
}

/// The names of the merged program's nodes, after its replay on other data was compared with the plain step.
std::vector<std::string> merged_and_checked(std::int64_t classes, const std::function<at::Tensor(Mlp&, const std::vector<at::Tensor>&)>& loss, at::ScalarType type = at::kFloat,
                                            std::int64_t samples = 21) {
  torch::manual_seed(3);
  Solo<Mlp> solo{Mlp(classes), loss};
  solo.net->to(type);
  const auto inputs = [&] { return std::vector{torch::randn({samples, 7}, type) * 3, torch::randint(classes, {samples}), torch::rand({classes}, type) + 0.1}; };
  const auto program = lanes::merged(program::without_dead_nodes(solo.record(inputs()).program));
  auto executable = executable_of(program);
  const auto other = inputs();
  const auto plain = solo.plain(other);
  solo.bind(executable, other);
  executable.spoil_memory();
  executable.run();
  for (std::size_t r = 0; r < plain.size(); ++r)
    EXPECT_TRUE(at::allclose(executable.result(r), plain[r], type == at::kFloat ? 1e-4 : 1e-10, type == at::kFloat ? 1e-6 : 1e-12, true)) << r << '\n' << executable.result(r) << plain[r];
  return names(program);
}

TEST(MergeTest, AClassifiersStepIsAFewNodes) {
  for (const auto type : {at::kFloat, at::kDouble})
    for (const std::int64_t classes : {1, 2, 8, 10, 15})
      for (const std::int64_t samples : {1, 16, 21}) {
        const auto nodes = merged_and_checked(classes, [](Mlp& net, const auto& in) { return F::cross_entropy(net(in[0]), in[1]); }, type, samples);
        EXPECT_THAT(nodes, Contains("hfta::cross_entropy").Times(1));
        EXPECT_THAT(nodes, Contains("hfta::addmm_relu").Times(2));
        EXPECT_THAT(nodes, Contains("hfta::mm_gated").Times(2));
        for (const auto* gone : {"aten::_log_softmax", "aten::nll_loss_forward", "aten::nll_loss_backward", "aten::ones_like", "aten::relu", "aten::threshold_backward"})
          EXPECT_THAT(nodes, Not(Contains(gone)));
      }
}

TEST(MergeTest, WeightsSumsAndIgnoredTargetsCountAsAlone) {
  for (const bool sums : {false, true}) {
    auto options = F::CrossEntropyFuncOptions().ignore_index(3);
    if (sums) options.reduction(torch::kSum);
    EXPECT_THAT(merged_and_checked(10, [&](Mlp& net, const auto& in) { return F::cross_entropy(net(in[0]), in[1], options); }), Contains("hfta::cross_entropy"));
    EXPECT_THAT(merged_and_checked(10, [&](Mlp& net, const auto& in) { return F::cross_entropy(net(in[0]), in[1], F::CrossEntropyFuncOptions(options).weight(in[2])); }),
                Contains("hfta::cross_entropy"));
  }
  EXPECT_THAT(merged_and_checked(10, [](Mlp& net, const auto& in) { return F::cross_entropy(net(in[0]), torch::full_like(in[1], 3), F::CrossEntropyFuncOptions().ignore_index(3)); }),
              Contains("hfta::cross_entropy"));
}

TEST(MergeTest, WhatSomebodyElseReadsStaysAsItIs) {
  const auto many = merged_and_checked(40, [](Mlp& net, const auto& in) { return F::cross_entropy(net(in[0]), in[1]); });
  EXPECT_THAT(many, Not(Contains("hfta::cross_entropy")));
  const auto scaled = merged_and_checked(10, [](Mlp& net, const auto& in) { return F::cross_entropy(net(in[0]), in[1]) * 2; });
  EXPECT_THAT(scaled, Not(Contains("hfta::cross_entropy")));
  const auto read_again = merged_and_checked(10, [](Mlp& net, const auto& in) {
    const auto logs = torch::log_softmax(net(in[0]), 1);
    return F::nll_loss(logs, in[1]) + 0.1 * logs.square().mean();
  });
  EXPECT_THAT(read_again, Not(Contains("hfta::cross_entropy")));
  const auto sums_used = merged_and_checked(10, [](Mlp& net, const auto& in) {
    const auto sums = net->one(in[0]);
    return F::cross_entropy(net->three(torch::relu(net->two(torch::relu(sums) + sums))), in[1]);
  });
  EXPECT_THAT(sums_used, Contains("aten::relu").Times(1));
  const auto each = merged_and_checked(10, [](Mlp& net, const auto& in) { return F::cross_entropy(net(in[0]), in[1], F::CrossEntropyFuncOptions().reduction(torch::kNone)).sum(); });
  EXPECT_THAT(each, Not(Contains("hfta::cross_entropy")));
}

/// A function without gradients: hidden layers are one node each, and those that are returned as well.
TEST(MergeTest, AnEvaluationsLayersAreOneNodeEach) {
  const torch::NoGradGuard no_grad;
  torch::manual_seed(3);
  Solo<Mlp> solo{Mlp(10), {}};
  const auto input = torch::randn({21, 7}), other = torch::randn({21, 7});
  const auto function = [&](const at::Tensor& x) {
    const auto hidden = torch::relu(solo.net->one(x));
    return std::vector{solo.net->three(torch::relu(solo.net->two(hidden))), hidden};
  };
  program::RecordOptions how;
  for (const auto& tensor : solo.state()) how.regions.push_back({tensor.detach(), program::Origin::State, static_cast<std::int64_t>(how.regions.size())});
  how.regions.push_back({input, program::Origin::Input, 0});
  Recorder recorder(std::move(how));
  std::vector<at::Tensor> results;
  recorder.run([&] { results = function(input); });
  for (const auto& result : results) recorder.add_result(result);
  const auto program = lanes::merged(program::without_dead_nodes(recorder.finish().program));
  EXPECT_THAT(names(program), Contains("hfta::addmm_relu").Times(2));
  EXPECT_THAT(names(program), Not(Contains("aten::relu")));
  auto executable = executable_of(program);
  solo.bind(executable, {other});
  executable.spoil_memory();
  executable.run();
  const auto plain = function(other);
  for (std::size_t r = 0; r < plain.size(); ++r) EXPECT_TRUE(close(executable.result(r), plain[r])) << r;
}

TEST(MergeTest, ANaNAndATargetOutsideAreWhatTheyAreAlone) {
  torch::manual_seed(3);
  Solo<Mlp> solo{Mlp(10), [](Mlp& net, const auto& in) { return F::cross_entropy(net(in[0]), in[1]); }};
  const std::vector<at::Tensor> inputs{torch::randn({20, 7}), torch::randint(10, {20})};
  auto executable = executable_of(lanes::merged(program::without_dead_nodes(solo.record(inputs).program)));
  auto spoiled = std::vector{inputs[0].clone(), inputs[1].clone()};
  spoiled[0][5][2] = std::nan("");
  solo.bind(executable, spoiled);
  executable.run();
  const auto plain = solo.plain(spoiled);
  for (std::size_t r = 0; r < plain.size(); ++r) EXPECT_TRUE(at::allclose(executable.result(r), plain[r], 1e-4, 1e-6, true)) << r;
  spoiled[1][4] = 10;
  solo.bind(executable, spoiled);
  EXPECT_THROW(executable.run(), std::exception);
}

}  // namespace
}  // namespace hfta::test
