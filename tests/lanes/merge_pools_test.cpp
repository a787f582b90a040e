#include <gmock/gmock.h>

#include "hfta/lanes/merge.h"
#include "tests/program/solo.h"
#include "tests/support.h"

namespace hfta::test {
namespace {

using ::testing::Contains;
using ::testing::Not;
namespace nn = torch::nn;

struct SmallNetImpl : nn::Module {
  nn::Conv2d one{register_module("one", nn::Conv2d(nn::Conv2dOptions(2, 5, 3).padding(1)))}, two{register_module("two", nn::Conv2d(5, 3, 2))};
};
TORCH_MODULE(SmallNet);

using Forward = std::function<at::Tensor(SmallNet&, const at::Tensor&)>;

/// The merged program's nodes in text, after its replay on other data had the bits of the plain step.
std::string merged_and_checked(const Forward& forward, at::ScalarType type = at::kFloat, const std::vector<std::int64_t>& sizes = {7, 2, 9, 10}, bool spoiled = false) {
  torch::manual_seed(3);
  Solo<SmallNet> solo{SmallNet(), [&](SmallNet& net, const auto& in) { return forward(net, in[0]).square().sum(); }};
  solo.net->to(type);
  const auto program = lanes::merged(program::without_dead_nodes(solo.record({torch::randn(sizes, type)}).program));
  auto executable = executable_of(program);
  auto other = torch::randn(sizes, type);
  if (spoiled) other[3][1][4][4] = std::nan("");
  const auto plain = solo.plain({other});
  solo.bind(executable, {other});
  executable.spoil_memory();
  executable.run();
  const auto text = to_string(program);
  for (std::size_t r = 0; r < plain.size(); ++r) {
    if (!plain[r].defined()) continue;
    EXPECT_TRUE(same_bits(executable.result(r), plain[r])) << r << '\n' << text;
  }
  return text;
}

at::Tensor pooled(const at::Tensor& x) { return torch::max_pool2d(torch::relu(x), 2); }

/// @param first "hfta::rectified", or "hfta::convolution_rectified" where the convolution is merged too
void expect_merged(const std::string& text, const std::string& first = "hfta::convolution_rectified") {
  for (const auto* rest : {"_max_pool2d(", "_max_pool2d_backward("}) EXPECT_THAT(text, ::testing::HasSubstr(first + rest));
  for (const auto* gone : {"aten::relu", "aten::max_pool2d_with_indices", "aten::threshold_backward"}) EXPECT_THAT(text, Not(::testing::HasSubstr(gone)));
}
void expect_apart(const std::string& text) {
  EXPECT_THAT(text, Not(::testing::HasSubstr("rectified_max_pool2d")));
  EXPECT_THAT(text, ::testing::HasSubstr("aten::relu"));
}

TEST(MergePoolsTest, ConvolutionReluPoolingAndTheirGradientsAreTwoNodes) {
  for (const auto type : {at::kFloat, at::kDouble})
    for (const bool spoiled : {false, true}) {
      expect_merged(merged_and_checked([](SmallNet& net, const auto& x) { return pooled(net->two(pooled(net->one(x)))); }, type, {7, 2, 9, 10}, spoiled));
      expect_merged(merged_and_checked([](SmallNet& net, const auto& x) {
        auto y = net->one(x);
        return torch::max_pool2d(torch::relu_(y), 2);
      }, type, {7, 2, 9, 10}, spoiled));
    }
}

TEST(MergePoolsTest, WhatSomebodyElseReadsStaysAsItIs) {
  expect_apart(merged_and_checked([](SmallNet& net, const auto& x) {
    const auto y = torch::relu(net->one(x));
    return torch::max_pool2d(y, 2).sum() + 0.1 * y.sum();
  }));
  expect_apart(merged_and_checked([](SmallNet& net, const auto& x) {
    auto y = net->one(x);
    const auto z = torch::max_pool2d(torch::relu_(y), 2);
    return z.sum() + y.mean();
  }));
  expect_apart(merged_and_checked([](SmallNet& net, const auto& x) {
    const auto [y, indices] = torch::max_pool2d_with_indices(torch::relu(net->one(x)), 2);
    return y * indices;
  }));
  // Before it is overwritten anybody may read what goes into a ReLU.
  expect_merged(merged_and_checked([](SmallNet& net, const auto& x) {
    auto y = net->one(x);
    const auto before = y.mean();
    return torch::max_pool2d(torch::relu_(y), 2).sum() + before;
  }), "hfta::rectified");
  expect_merged(merged_and_checked([](SmallNet& net, const auto& x) {
    const auto y = net->one(x);
    return pooled(y).sum() + y.mean();
  }), "hfta::rectified");
  expect_merged(merged_and_checked([](SmallNet& net, const auto& x) { return pooled(net->two(torch::tanh(net->one(x))) * 2); }), "hfta::rectified");
}

TEST(MergePoolsTest, OtherWindowsAndLayoutsStayAsTheyAre) {
  using F = nn::functional::MaxPool2dFuncOptions;
  for (const auto& options : {F(3).stride(2), F(2).stride(1), F({2, 1}), F(2).padding(1), F(2).dilation(2), F(2).ceil_mode(true)})
    expect_apart(merged_and_checked([&](SmallNet& net, const auto& x) { return nn::functional::max_pool2d(torch::relu(net->one(x)), options); }));
  expect_merged(merged_and_checked([](SmallNet& net, const auto& x) { return nn::functional::max_pool2d(torch::relu(net->one(x)), F(2).ceil_mode(true)); }, at::kFloat, {3, 2, 8, 6}));
  expect_apart(merged_and_checked([](SmallNet& net, const auto& x) { return pooled(net->one(x).contiguous(at::MemoryFormat::ChannelsLast)); }));
  expect_apart(merged_and_checked([](SmallNet& net, const auto& x) { return torch::max_pool2d(torch::threshold(net->one(x), 0.5, 0), 2) + torch::relu(x.sum()); }));
}

using Evaluation = std::function<std::vector<at::Tensor>(SmallNet&, const at::Tensor&)>;

/// The merged program of a function without gradients in text, after its replay on other data had the bits of the plain results.
std::string evaluated_and_checked(const Evaluation& function, at::ScalarType type = at::kFloat, bool spoiled = false) {
  const torch::NoGradGuard no_grad;
  torch::manual_seed(3);
  Solo<SmallNet> solo{SmallNet(), {}};
  solo.net->to(type);
  const std::vector<std::int64_t> sizes{7, 2, 9, 10};
  const auto input = torch::randn(sizes, type);
  program::RecordOptions how;
  for (const auto& tensor : solo.state()) how.regions.push_back({tensor.detach(), program::Origin::State, static_cast<std::int64_t>(how.regions.size())});
  how.regions.push_back({input, program::Origin::Input, 0});
  Recorder recorder(std::move(how));
  std::vector<at::Tensor> results;
  recorder.run([&] { results = function(solo.net, input); });
  for (const auto& result : results) recorder.add_result(result);
  const auto program = lanes::merged(program::without_dead_nodes(recorder.finish().program));
  auto executable = executable_of(program);
  auto other = torch::randn(sizes, type);
  if (spoiled) other[3][1][4][4] = std::nan("");
  const auto plain = function(solo.net, other);
  solo.bind(executable, {other});
  executable.spoil_memory();
  executable.run();
  const auto text = to_string(program);
  for (std::size_t r = 0; r < plain.size(); ++r) EXPECT_TRUE(same_bits(executable.result(r), plain[r])) << r << '\n' << text;
  return text;
}

void expect_merged_forward(const std::string& text, const std::string& op) {
  EXPECT_THAT(text, ::testing::HasSubstr(op + "("));
  for (const auto* gone : {"aten::relu", "aten::max_pool2d_with_indices", "_backward"}) EXPECT_THAT(text, Not(::testing::HasSubstr(gone)));
}

TEST(MergePoolsTest, AnEvaluationIsMergedAsTheForwardOfAStepIs) {
  for (const auto type : {at::kFloat, at::kDouble})
    for (const bool spoiled : {false, true}) {
      const auto both = evaluated_and_checked([](SmallNet& net, const auto& x) { return std::vector{pooled(net->two(pooled(net->one(x))))}; }, type, spoiled);
      expect_merged_forward(both, "hfta::convolution_rectified_max_pool2d");
      EXPECT_THAT(both, Not(::testing::HasSubstr("aten::convolution")));
      const auto in_place = [](SmallNet& net, const auto& x) {
        auto y = net->one(x);
        return std::vector{torch::max_pool2d(torch::relu_(y), 2)};
      };
      expect_merged_forward(evaluated_and_checked(in_place, type, spoiled), "hfta::convolution_rectified_max_pool2d");
      expect_merged_forward(evaluated_and_checked([](SmallNet&, const auto& x) { return std::vector{pooled(x * 2)}; }, type, spoiled), "hfta::rectified_max_pool2d");
    }
}

TEST(MergePoolsTest, WhatAnEvaluationReturnsOrReadsTwiceStaysAsItIs) {
  expect_apart(evaluated_and_checked([](SmallNet& net, const auto& x) {
    const auto y = torch::relu(net->one(x));
    return std::vector{torch::max_pool2d(y, 2), y};
  }));
  expect_apart(evaluated_and_checked([](SmallNet& net, const auto& x) {
    const auto y = torch::relu(net->one(x));
    return std::vector{torch::max_pool2d(y, 2), torch::avg_pool2d(y, 2)};
  }));
  expect_apart(evaluated_and_checked([](SmallNet& net, const auto& x) {
    const auto [y, indices] = torch::max_pool2d_with_indices(torch::relu(net->one(x)), 2);
    return std::vector{y, indices};
  }));
  expect_apart(evaluated_and_checked([](SmallNet& net, const auto& x) {
    auto y = net->one(x);
    const auto view = y[2];  // shows what is rectified in place
    return std::vector{torch::max_pool2d(torch::relu_(y), 2), view};
  }));
  // The convolution's own result is asked for: the ReLU and the pooling behind it are one all the same.
  expect_merged_forward(evaluated_and_checked([](SmallNet& net, const auto& x) {
    const auto y = net->one(x);
    return std::vector{pooled(y), y};
  }), "hfta::rectified_max_pool2d");
  // The pooled images are returned and read again.
  expect_merged_forward(evaluated_and_checked([](SmallNet& net, const auto& x) {
    const auto y = pooled(net->one(x));
    return std::vector{y, pooled(net->two(y)), y.sum()};
  }), "hfta::convolution_rectified_max_pool2d");
}

}  // namespace
}  // namespace hfta::test
