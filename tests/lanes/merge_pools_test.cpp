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

}  // namespace
}  // namespace hfta::test
