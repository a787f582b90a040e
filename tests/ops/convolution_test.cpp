#include "hfta/ops/convolution.h"

#include <gmock/gmock.h>

#include "tests/ops/lane_cases.h"

namespace hfta::test {
namespace convolution_test {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::Not;
using Sizes = std::vector<std::int64_t>;

/// A convolution of one lane: shapes and options.
struct Case {
  std::string name;
  Sizes input, weight;
  ops::ConvolutionOptions options;
};

std::vector<Case> cases() {
  return {
      {"Conv1d", {2, 3, 11}, {5, 3, 4}, {.stride = {2}, .padding = {1}, .dilation = {1}}},
      {"Conv2d", {2, 3, 9, 7}, {5, 3, 3, 2}, {.stride = {2, 1}, .padding = {1, 0}, .dilation = {1, 2}, .output_padding = {0, 0}}},
      {"Conv3d", {2, 3, 5, 6, 4}, {4, 3, 2, 3, 1}, {.stride = {1, 2, 1}, .padding = {0, 1, 0}, .dilation = {1, 1, 1}, .output_padding = {0, 0, 0}}},
      {"Groups", {2, 4, 9, 7}, {6, 2, 3, 3}, {.stride = {1, 1}, .padding = {1, 1}, .dilation = {1, 1}, .output_padding = {0, 0}, .groups = 2}},
      {"Depthwise", {2, 3, 9, 7}, {3, 1, 3, 3}, {.stride = {1, 1}, .padding = {1, 1}, .dilation = {1, 1}, .output_padding = {0, 0}, .groups = 3}},
      {"Transposed1d", {2, 3, 6}, {3, 5, 4}, {.stride = {3}, .padding = {1}, .dilation = {1}, .transposed = true, .output_padding = {2}}},
      {"Transposed2d", {2, 3, 5, 4}, {3, 5, 3, 2}, {.stride = {2, 1}, .padding = {1, 0}, .dilation = {1, 1}, .transposed = true, .output_padding = {1, 0}}},
      {"TransposedGroups", {2, 4, 5, 4}, {4, 3, 3, 3}, {.stride = {2, 2}, .padding = {1, 1}, .dilation = {1, 1}, .transposed = true, .output_padding = {0, 0}, .groups = 2}},
      {"Direct", {3, 3, 14, 9}, {11, 3, 3, 5}, {.stride = {1, 1}, .padding = {1, 2}, .dilation = {1, 1}, .output_padding = {0, 0}}},
      {"DirectWide", {5, 2, 5, 40}, {3, 2, 2, 7}, {.stride = {1, 1}, .padding = {0, 0}, .dilation = {1, 1}, .output_padding = {0, 0}}},
      {"Samples", {19, 2, 7, 6}, {6, 2, 5, 4}, {.stride = {1, 1}, .padding = {2, 1}, .dilation = {1, 1}, .output_padding = {0, 0}}},
      {"Winograd", {3, 17, 7, 9}, {19, 17, 3, 3}, {.stride = {1, 1}, .padding = {1, 2}, .dilation = {1, 1}, .output_padding = {0, 0}}},
      {"WinogradDilated", {2, 3, 9, 8}, {4, 3, 3, 3}, {.stride = {1, 1}, .padding = {1, 1}, .dilation = {2, 1}, .output_padding = {0, 0}}},
      {"OneByOne1d", {2, 3, 11}, {5, 3, 1}, {}},
      {"OneByOne2d", {2, 6, 2, 1}, {5, 6, 1, 1}, {.stride = {1, 1}, .padding = {0, 0}, .dilation = {1, 1}, .output_padding = {0, 0}}},
      {"OneByOne3d", {2, 3, 3, 2, 4}, {5, 3, 1, 1, 1}, {.stride = {1, 1, 1}, .padding = {0, 0, 0}, .dilation = {1, 1, 1}, .output_padding = {0, 0, 0}}},
      {"OneByOneTransposed", {2, 3, 4, 5}, {3, 5, 1, 1}, {.stride = {1, 1}, .padding = {0, 0}, .dilation = {1, 1}, .transposed = true, .output_padding = {0, 0}}},
      {"OneByOneStrided", {2, 3, 4, 5}, {5, 3, 1, 1}, {.stride = {2, 2}, .padding = {0, 0}, .dilation = {1, 1}, .output_padding = {0, 0}}},
  };
}

/// Shapes, width, dtype, position of the input's lane axis.
using Parameters = std::tuple<Case, std::int64_t, torch::ScalarType, std::int64_t>;

class ConvolutionTest : public ::testing::TestWithParam<Parameters> {
 protected:
  void SetUp() override {
    torch::manual_seed(11);
    at::set_num_threads(1);  // tiny shapes: threads would only wait for each other
  }
  const Case& shapes() const { return std::get<0>(GetParam()); }
  std::int64_t lanes() const { return std::get<1>(GetParam()); }
  torch::ScalarType type() const { return std::get<2>(GetParam()); }
  std::int64_t axis() const { return std::get<3>(GetParam()); }

  std::vector<LaneArgument> inputs() const { return both(shapes().input, axis(), false); }
  std::vector<LaneArgument> weights() const { return both(shapes().weight, 0, true); }
  std::vector<LaneArgument> both(const Sizes& sizes, std::int64_t lane_axis, bool padded) const {
    return {random_shared(sizes, type()), random_lanes(lanes(), sizes, type(), lane_axis, padded)};
  }
  /// Of the absolute tolerance: transforms round at the scale of a result, a sum of so many numbers, also where it is near zero.
  double scale() const { return shapes().name == "Winograd" ? 10 * std::sqrt(static_cast<double>(shapes().weight[1] * 9)) : 10; }
  std::int64_t out_channels() const {
    return shapes().options.transposed ? shapes().weight[1] * shapes().options.groups : shapes().weight[0];
  }
  std::vector<LaneArgument> options() const {
    const auto& o = shapes().options;
    return {same(o.stride), same(o.padding), same(o.dilation), same(o.transposed), same(o.output_padding), same(o.groups)};
  }
  Sizes output_sizes() const {
    const auto& o = shapes().options;
    return torch::convolution(torch::zeros(shapes().input), torch::zeros(shapes().weight), {}, o.stride, o.padding, o.dilation, o.transposed,
                              o.output_padding, o.groups).sizes().vec();
  }
};

std::vector<LaneArgument> joined(std::vector<LaneArgument> first, const std::vector<LaneArgument>& second) {
  first.insert(first.end(), second.begin(), second.end());
  return first;
}

TEST_P(ConvolutionTest, OutputsEqualTheLanesAlone) {
  const auto none = same(c10::IValue());
  for (const auto& input : inputs()) {
    for (const auto& weight : weights()) {
      for (const auto& bias : {none, random_shared({out_channels()}, type()), random_lanes(lanes(), {out_channels()}, type(), 0, true)}) {
        const auto took = expect_lanes_equal_alone("aten::convolution", lanes(), joined({input, weight, bias}, options()), "", scale());
        EXPECT_THAT(took, Contains("looped"));
        EXPECT_THAT(took, Contains("grouped"));
        const bool wide = !input.axis && weight.axis && shapes().options.groups == 1;
        EXPECT_EQ(std::ranges::count(took, "wide"), wide ? 1 : 0);
        EXPECT_EQ(std::ranges::count(took, "folded"), input.axis && !weight.axis && !bias.axis ? 1 : 0);
      }
    }
  }
}

TEST_P(ConvolutionTest, GradientsEqualTheLanesAlone) {
  const auto sizes = output_sizes();
  for (const auto& grad : both(sizes, axis(), false)) {
    for (const auto& input : inputs()) {
      for (const auto& weight : weights()) {
        for (const auto& mask : std::vector<std::vector<bool>>{{true, true, true}, {false, true, true}, {true, false, false}, {false, true, false}}) {
          c10::List<bool> wanted;
          for (const bool entry : mask) wanted.push_back(entry);
          const auto bias_sizes = mask[2] ? c10::IValue(Sizes{out_channels()}) : c10::IValue();
          auto arguments = joined(joined({grad, input, weight, same(bias_sizes)}, options()), {same(wanted)});
          const auto took = expect_lanes_equal_alone("aten::convolution_backward", lanes(), arguments, "", 10 * scale());
          EXPECT_THAT(took, Contains("looped"));
          const bool wide = !input.axis && shapes().options.groups == 1 && !mask[0];
          EXPECT_EQ(std::ranges::count(took, "wide"), wide ? 1 : 0);
          EXPECT_EQ(std::ranges::count(took, "folded"), !weight.axis && !mask[1] && !mask[2] ? 1 : 0);
        }
      }
    }
  }
}

TEST_P(ConvolutionTest, KernelsOfSizeOneAreProducts) {
  const auto took = expect_lanes_equal_alone("aten::convolution", lanes(), joined({inputs()[1], weights()[1], same(c10::IValue())}, options()), "", scale());
  const bool one = shapes().name.starts_with("OneByOne") && shapes().name != "OneByOneStrided";
  EXPECT_EQ(std::ranges::count(took, "product"), one ? 1 : 0);
}

TEST_P(ConvolutionTest, ImagesAtStrideOneHaveAKernelOfOurs) {
  const auto took = expect_lanes_equal_alone("aten::convolution", lanes(), joined({inputs()[1], weights()[1], same(c10::IValue())}, options()), "", scale());
  const auto& o = shapes().options;
  const auto one = [](const auto& values) { return std::ranges::all_of(values, [](auto v) { return v == 1; }); };
  const bool fits = shapes().input.size() == 4 && o.groups == 1 && !o.transposed && one(o.stride) && one(o.dilation);
  EXPECT_EQ(std::ranges::count(took, "direct"), fits ? 1 : 0);
}

TEST_P(ConvolutionTest, FloatsUnderThreeByThreeAtStrideOneHaveFewerProducts) {
  const auto took = expect_lanes_equal_alone("aten::convolution", lanes(), joined({inputs()[1], weights()[1], same(c10::IValue())}, options()), "", scale());
  const bool fits = type() == torch::kFloat && (shapes().name == "Winograd");
  EXPECT_EQ(std::ranges::count(took, "winograd"), fits ? 1 : 0);
}

TEST_P(ConvolutionTest, FloatsAtStrideOneGoAcrossSamples) {
  const auto took = expect_lanes_equal_alone("aten::convolution", lanes(), joined({inputs()[1], weights()[1], same(c10::IValue())}, options()), "", scale());
  EXPECT_EQ(std::ranges::count(took, "samples"), type() == torch::kFloat ? std::ranges::count(took, "direct") : 0);
}

TEST_P(ConvolutionTest, PoolingBehindItEqualsTheLanesAlone) {
  if (shapes().input.size() != 4) return;
  auto sizes = output_sizes();
  const Sizes plane{sizes[2], sizes[3]};
  for (const auto d : {2, 3}) sizes[d] /= 2;
  std::vector<torch::Tensor> places;
  for (std::int64_t lane = 0; lane < lanes(); ++lane) places.push_back(torch::randint(5, sizes, torch::kByte));
  for (const auto& input : inputs())
    for (const auto& bias : {same(c10::IValue()), random_lanes(lanes(), {out_channels()}, type(), 0, true)}) {
      const auto all = joined({input, weights()[1], bias}, options());
      auto took = expect_lanes_equal_alone("hfta::convolution_rectified_max_pool2d", lanes(), all, "", scale());
      EXPECT_EQ(std::ranges::count(took, "samples"), type() == torch::kFloat ? std::ranges::count(took, "direct") : 0);
      for (const bool of_input : {true, false}) {
        const auto gradients = joined({random_lanes(lanes(), sizes, type(), axis(), false), per_lane(places, 0), input, weights()[1], same(Sizes{out_channels()})}, options());
        took = expect_lanes_equal_alone("hfta::convolution_rectified_max_pool2d_backward", lanes(),
                                        joined(gradients, {same(c10::List<bool>({of_input, true, true})), same(plane)}), "", 10 * scale());
        EXPECT_THAT(took, Contains("looped"));
      }
    }
}

INSTANTIATE_TEST_SUITE_P(Cases, ConvolutionTest,
                         ::testing::Combine(::testing::ValuesIn(cases()), ::testing::Values(1, 3), ::testing::Values(torch::kFloat, torch::kDouble),
                                            ::testing::Values(0, 1)),
                         [](const auto& info) {
                           return std::get<0>(info.param).name + "x" + std::to_string(std::get<1>(info.param)) +
                                  (std::get<2>(info.param) == torch::kFloat ? "Float" : "Double") + "Axis" + std::to_string(std::get<3>(info.param));
                         });

TEST(ConvolutionRulesTest, ChannelsLastImagesEqualTheLanesAlone) {
  torch::manual_seed(3);
  std::vector<torch::Tensor> images;
  for (int lane = 0; lane < 3; ++lane) images.push_back(torch::randn({2, 3, 6, 5}));
  auto physical = torch::stack(images).permute({0, 1, 3, 4, 2}).contiguous().permute({0, 1, 4, 2, 3});
  const ops::LaneTensor input{physical, 0}, weight{torch::randn({3, 4, 3, 3, 3}), 0};
  for (const auto lowering : {ops::ConvolutionLowering::Looped, ops::ConvolutionLowering::Grouped}) {
    const auto result = ops::convolution(input, weight, std::nullopt, {.stride = {1, 1}, .padding = {1, 1}, .dilation = {1, 1}, .output_padding = {0, 0}}, 3, lowering);
    ASSERT_TRUE(result);
    for (int lane = 0; lane < 3; ++lane)
      EXPECT_TRUE(close(ops::lane_of(*result, lane), torch::conv2d(images[lane], weight.tensor[lane], {}, 1, 1)));
  }
}

TEST(ConvolutionRulesTest, OneLaneLoopedHasTheBitsOfTheLaneAlone) {
  torch::manual_seed(5);
  const auto image = torch::randn({4, 3, 9, 9}), weight = torch::randn({6, 3, 3, 3});
  const auto result = ops::convolution({image, std::nullopt}, {weight.unsqueeze(0), 0}, std::nullopt, {}, 1, ops::ConvolutionLowering::Looped);
  ASSERT_TRUE(result);
  EXPECT_TRUE(same_bits(ops::lane_of(*result, 0), torch::conv2d(image, weight)));
}

/// More images than are framed in one go, and blocks of outputs of every size.
TEST(ConvolutionRulesTest, DirectKernelEqualsLibTorchs) {
  torch::manual_seed(6);
  for (const auto type : {torch::kFloat, torch::kDouble}) {
    for (std::int64_t kernel = 1; kernel <= 7; ++kernel) {
      for (const std::int64_t outputs : {1, 2, 4, 6, 7, 17}) {
        const auto image = torch::randn({40, 9, 12, 13}, type), weight = torch::randn({outputs, 9, 2, kernel}, type), bias = torch::randn({outputs}, type);
        const ops::ConvolutionOptions options{.stride = {1, 1}, .padding = {1, kernel / 2}, .dilation = {1, 1}, .output_padding = {0, 0}};
        const auto result = ops::convolution({image, std::nullopt}, {weight.unsqueeze(0), 0}, ops::LaneTensor{bias.unsqueeze(0), 0}, options, 1, ops::ConvolutionLowering::Direct);
        ASSERT_TRUE(result);
        const auto expected = torch::convolution(image, weight, bias, options.stride, options.padding, options.dilation, false, {0, 0}, 1);
        EXPECT_TRUE(close(ops::lane_of(*result, 0), expected, tolerance(type, 10)));
        const auto grad = torch::randn_like(expected);
        const auto got = ops::convolution_backward({grad.unsqueeze(0), 0}, {image, std::nullopt}, {weight.unsqueeze(0), 0}, options, {true, true, true}, 1,
                                                   ops::ConvolutionLowering::Direct);
        ASSERT_TRUE(got);
        const auto [x, w, b] = at::convolution_backward(grad, image, weight, at::IntArrayRef{outputs}, options.stride, options.padding, options.dilation, false, {0, 0}, 1, {true, true, true});
        EXPECT_TRUE(close(ops::lane_of(*(*got)[0], 0), x, tolerance(type, 10)));
        EXPECT_TRUE(close(ops::lane_of(*(*got)[1], 0), w, tolerance(type, 100)));
        EXPECT_TRUE(close(ops::lane_of(*(*got)[2], 0), b, tolerance(type, 100)));
      }
    }
  }
}

at::Tensor difference(const at::Tensor& got, const at::Tensor& expected) { return (got.to(at::kDouble) - expected).abs().max() / expected.square().mean().sqrt(); }

/// More tiles than are computed in one go, panels of every width, odd sizes, and threads that share a lane: as near to the float64 result as
/// LibTorch's own float32 one is, within a factor that the transforms cost.
TEST(ConvolutionRulesTest, WinogradIsNearTheExactResult) {
  struct Shape {
    std::int64_t images, channels, outputs, height, width, padding[2];
  };
  torch::manual_seed(8);
  for (const int threads : {1, 2}) {
    at::set_num_threads(threads);
    for (const auto& s : {Shape{2, 1, 1, 3, 3, {0, 0}}, Shape{5, 16, 32, 14, 14, {1, 1}}, Shape{3, 70, 116, 5, 33, {2, 0}}, Shape{4, 256, 144, 4, 4, {1, 1}}, Shape{9, 33, 64, 32, 31, {0, 1}}}) {
      const auto image = torch::randn({s.images, s.channels, s.height, s.width}), weight = torch::randn({s.outputs, s.channels, 3, 3}), bias = torch::randn({s.outputs});
      const ops::ConvolutionOptions o{.stride = {1, 1}, .padding = {s.padding[0], s.padding[1]}, .dilation = {1, 1}, .output_padding = {0, 0}};
      const auto result = ops::convolution({image, std::nullopt}, {weight.unsqueeze(0), 0}, ops::LaneTensor{bias.unsqueeze(0), 0}, o, 1, ops::ConvolutionLowering::Winograd);
      ASSERT_TRUE(result);
      const auto exact = torch::convolution(image.to(torch::kDouble), weight.to(torch::kDouble), bias.to(torch::kDouble), o.stride, o.padding, o.dilation, false, {0, 0}, 1);
      EXPECT_LT(difference(ops::lane_of(*result, 0), exact).item<double>(), 5e-6);
      const auto grad = torch::randn(exact.sizes());
      const auto got = ops::convolution_backward({grad.unsqueeze(0), 0}, {image, std::nullopt}, {weight.unsqueeze(0), 0}, o, {true, true, true}, 1, ops::ConvolutionLowering::Winograd);
      ASSERT_TRUE(got);
      const auto [x, w, b] = at::convolution_backward(grad.to(torch::kDouble), image.to(torch::kDouble), weight.to(torch::kDouble), at::IntArrayRef{s.outputs}, o.stride, o.padding, o.dilation, false, {0, 0}, 1, {true, true, true});
      EXPECT_LT(difference(ops::lane_of(*(*got)[0], 0), x).item<double>(), 5e-6);
      EXPECT_LT(difference(ops::lane_of(*(*got)[1], 0), w).item<double>(), 1e-5);
      EXPECT_LT(difference(ops::lane_of(*(*got)[2], 0), b).item<double>(), 1e-5);
    }
  }
  at::set_num_threads(1);
}

TEST(ConvolutionRulesTest, WinogradKeepsALanesInfinityToItself) {
  torch::manual_seed(9);
  auto images = torch::randn({3, 2, 5, 8, 7}), weights = torch::randn({3, 6, 5, 3, 3});
  const ops::ConvolutionOptions o{.stride = {1, 1}, .padding = {1, 1}, .dilation = {1, 1}, .output_padding = {0, 0}};
  const auto run = [&] { return ops::convolution({images, 0}, {weights, 0}, std::nullopt, o, 3, ops::ConvolutionLowering::Winograd)->tensor.clone(); };
  const auto healthy = run();
  images[1].fill_(std::numeric_limits<float>::infinity());
  weights[1][0][0][0][0] = std::numeric_limits<float>::quiet_NaN();
  const auto sick = run();
  EXPECT_TRUE(same_bits(sick[0], healthy[0]));
  EXPECT_TRUE(same_bits(sick[2], healthy[2]));
  EXPECT_FALSE(sick[1].isfinite().any().item<bool>());
}

TEST(ConvolutionRulesTest, OtherArgumentsAreNotTaken) {
  const ops::LaneTensor image{torch::randn({2, 3, 9, 9}), std::nullopt}, weight{torch::randn({2, 3, 3, 3, 3}), 0}, flat{torch::randn({3, 3}), std::nullopt};
  for (const auto lowering : ops::kConvolutionLowerings) {
    EXPECT_FALSE(ops::convolution(flat, weight, std::nullopt, {}, 2, lowering));
    EXPECT_FALSE(ops::convolution(image, flat, std::nullopt, {}, 2, lowering));
    EXPECT_FALSE(ops::convolution(image, weight, flat, {}, 2, lowering));
    EXPECT_FALSE(ops::convolution_backward(flat, image, weight, {}, {true, true, true}, 2, lowering));
  }
  for (const auto* name : {"aten::convolution", "aten::convolution_backward"}) {
    for (const auto& lowering : ops::find_rules({name, ""})->lowerings) EXPECT_FALSE(lowering.rule({2, {}}, std::vector<ops::LaneValue>{image, weight}));
  }
}

}  // namespace convolution_test
}  // namespace hfta::test
