#include "hfta/ops/max_pool2d.h"

#include <limits>

#include "tests/ops/lane_cases.h"

namespace hfta::test {
namespace {

using Sizes = std::vector<std::int64_t>;

struct Pool {
  std::string name;
  Sizes input, kernel, stride, padding{0}, dilation{1};
  bool ceil_mode = false;
};

std::vector<Pool> pools() {
  return {
      {"Pairs", {2, 3, 28, 28}, {2, 2}, {2, 2}},
      {"PairsShort", {5, 1, 14, 14}, {2}, {}},
      {"PairsTiny", {2, 3, 4, 2}, {2}, {2}},
      {"PairsOdd", {3, 2, 9, 21}, {2}, {2}},
      {"PairsCeil", {3, 2, 9, 21}, {2}, {2}, {0}, {1}, true},
      {"Padded", {2, 3, 13, 22}, {3}, {2}, {1}},
      {"PaddedCeil", {2, 3, 12, 20}, {3, 3}, {2, 2}, {1, 1}, {1, 1}, true},
      {"Dense", {2, 3, 11, 17}, {3}, {1}},
      {"Overlapping", {2, 3, 20, 40}, {3}, {2}},
      {"Rectangle", {2, 3, 11, 37}, {3, 2}, {1, 2}, {1, 0}},
      {"Dilated", {2, 3, 15, 33}, {3, 2}, {2, 1}, {1, 1}, {2, 3}},
      {"WideStride", {2, 3, 15, 64}, {2, 3}, {3, 5}, {0, 1}},
      {"Whole", {2, 3, 7, 7}, {7}, {7}},
      {"OneByOne", {2, 3, 5, 9}, {1}, {1}},
      {"Unbatched", {3, 12, 18}, {2}, {2}},
      {"OneRow", {4, 2, 1, 50}, {1, 3}, {1, 2}},
      {"Empty", {0, 3, 8, 8}, {2}, {2}},
  };
}

class MaxPool2dTest : public ::testing::TestWithParam<std::tuple<Pool, torch::ScalarType>> {
 protected:
  void SetUp() override { torch::manual_seed(13); }
  const Pool& pool() const { return std::get<0>(GetParam()); }
  torch::ScalarType type() const { return std::get<1>(GetParam()); }

  /// Few different values, so that windows have ties, among them NaN and infinities.
  torch::Tensor hard_images() const {
    auto images = torch::randint(-2, 2, pool().input, torch::dtype(type()));
    images.masked_fill_(torch::rand(pool().input) < 0.05, std::numeric_limits<double>::quiet_NaN());
    images.masked_fill_(torch::rand(pool().input) < 0.3, -std::numeric_limits<double>::infinity());
    return images.masked_fill_(torch::rand(pool().input) < 0.05, std::numeric_limits<double>::infinity());
  }
  std::vector<c10::IValue> options() const { return {pool().kernel, pool().stride, pool().padding, pool().dilation, pool().ceil_mode}; }
  torch::jit::Stack call(const char* name, std::vector<c10::IValue> tensors, const std::vector<c10::IValue>& behind = {}) const {
    torch::jit::Stack stack(std::move(tensors));
    for (const auto& option : options()) stack.push_back(option);
    for (const auto& value : behind) stack.push_back(value);
    operator_named(name).callBoxed(stack);
    return stack;
  }
};

TEST_P(MaxPool2dTest, HasTheBitsOfLibTorch) {
  for (int threads : {1, 2}) {
    at::set_num_threads(threads);
    for (const auto& images : {torch::randn(pool().input, torch::dtype(type())), hard_images(), torch::full(pool().input, -INFINITY, torch::dtype(type()))}) {
      const auto got = call(ops::kMaxPool2d, {images}), want = call("aten::max_pool2d_with_indices", {images});
      EXPECT_TRUE(same_bits(got[0].toTensor(), want[0].toTensor()));
      EXPECT_TRUE(torch::equal(got[1].toTensor(), want[1].toTensor()));
      auto grad = torch::randn_like(want[0].toTensor());
      grad.masked_fill_(torch::rand_like(grad) < 0.2, -0.0);
      const auto got_grad = call(ops::kMaxPool2dBackward, {grad, images}, {want[1]})[0].toTensor();
      const auto want_grad = call("aten::max_pool2d_with_indices_backward", {grad, images}, {want[1]})[0].toTensor();
      EXPECT_TRUE(same_bits(got_grad, want_grad));
      EXPECT_TRUE(torch::equal(got_grad.signbit(), want_grad.signbit()));
    }
  }
  at::set_num_threads(1);
}

TEST_P(MaxPool2dTest, WritesIntoGivenMemory) {
  const auto images = hard_images();
  const auto want = call("aten::max_pool2d_with_indices", {images});
  const auto out = torch::full_like(want[0].toTensor(), 99), indices = torch::full_like(want[1].toTensor(), 99);
  auto stack = torch::jit::Stack{images};
  for (const auto& option : options()) stack.push_back(option);
  stack.insert(stack.end(), {out, indices});
  operator_named(ops::kMaxPool2d, "out").callBoxed(stack);
  EXPECT_TRUE(same_bits(out, want[0].toTensor()));
  EXPECT_TRUE(torch::equal(indices, want[1].toTensor()));

  const auto grad = torch::randn_like(out), grad_input = torch::full_like(images, 99);
  stack = {grad, images};
  for (const auto& option : options()) stack.push_back(option);
  stack.insert(stack.end(), {indices, grad_input});
  operator_named(ops::kMaxPool2dBackward, "grad_input").callBoxed(stack);
  EXPECT_TRUE(same_bits(grad_input, call("aten::max_pool2d_with_indices_backward", {grad, images}, {indices})[0].toTensor()));
}

INSTANTIATE_TEST_SUITE_P(Pools, MaxPool2dTest, ::testing::Combine(::testing::ValuesIn(pools()), ::testing::Values(torch::kFloat, torch::kDouble)),
                         [](const auto& info) { return std::get<0>(info.param).name + (std::get<1>(info.param) == torch::kFloat ? "Float" : "Double"); });

TEST(MaxPool2dRulesTest, ReadsNothingBehindTheLastPlane) {
  // The images end where their memory ends (seen by the address sanitizer), the value behind a row must not win.
  for (const int size : {2, 3, 5, 8, 16, 17}) {
    const auto images = torch::randn({3, 2, size, size});
    const auto [got, indices] = torch::max_pool2d_with_indices(images, {2, 2});
    torch::jit::Stack stack{images, Sizes{2}, Sizes{}, Sizes{0}, Sizes{1}, false};
    operator_named(ops::kMaxPool2d).callBoxed(stack);
    EXPECT_TRUE(same_bits(stack[0].toTensor(), got)) << size;
  }
}

TEST(MaxPool2dRulesTest, OtherLayoutsAndTypesGoToLibTorch) {
  const auto images = torch::randn({2, 5, 9, 8}).contiguous(at::MemoryFormat::ChannelsLast);
  for (const auto& input : {images, images.transpose(2, 3), images.to(torch::kBFloat16)}) {
    torch::jit::Stack stack{input, Sizes{2}, Sizes{}, Sizes{0}, Sizes{1}, false};
    operator_named(ops::kMaxPool2d).callBoxed(stack);
    const auto [want, indices] = torch::max_pool2d_with_indices(input, {2, 2});
    EXPECT_TRUE(same_bits(stack[0].toTensor(), want));
    EXPECT_EQ(stack[0].toTensor().strides(), want.strides());
    EXPECT_TRUE(torch::equal(stack[1].toTensor(), indices));
  }
}

TEST(MaxPool2dRulesTest, WrongOptionsAreRefused) {
  const auto call = [](torch::Tensor images, Sizes kernel, Sizes padding) {
    torch::jit::Stack stack{std::move(images), std::move(kernel), Sizes{}, std::move(padding), Sizes{1}, false};
    operator_named(ops::kMaxPool2d).callBoxed(stack);
  };
  EXPECT_THROW(call(torch::randn({2, 3, 8, 8}), {2, 2, 2}, {0}), std::exception);
  EXPECT_THROW(call(torch::randn({2, 3, 8, 8}), {2}, {2}), std::exception);
  EXPECT_THROW(call(torch::randn({2, 3, 1, 1}), {2}, {0}), std::exception);
  EXPECT_THROW(call(torch::randn({8, 8}), {2}, {0}), std::exception);
}

}  // namespace
}  // namespace hfta::test
