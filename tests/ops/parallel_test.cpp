#include "hfta/base/threads.h"
#include "hfta/ops/split_product_kernel.h"
#include "tests/ops/lane_cases.h"

// Kernels of this library on several threads: the bits of one thread, except sums over images, of which each thread has its own.

namespace hfta::test {
namespace parallel_test {

using Sizes = std::vector<std::int64_t>;
using torch::jit::Stack;

struct Kernel {
  std::string name, op;
  std::function<Stack(std::int64_t lanes)> arguments;
  bool sums_by_thread = false;  ///< Of one lane.
};

const c10::IValue none;

std::vector<Kernel> kernels() {
  const auto image = [](std::int64_t channels) { return torch::randn({67, channels, 12, 14}); };
  const auto images = [](std::int64_t lanes, std::int64_t channels) { return torch::randn({lanes, 67, channels, 12, 14}); };
  const auto weights = [](std::int64_t lanes) { return torch::randn({lanes, 7, 5, 3, 3}); };
  const Sizes one{1, 1}, size{12, 14};
  return {
      {"Samples", "hfta::sample_convolution", [=](auto n) { return Stack{image(5), weights(n), torch::randn({n, 7}), one, false}; }},
      {"SamplesPooled", "hfta::sample_convolution", [=](auto n) { return Stack{images(n, 5), weights(n), torch::randn({n, 7}), one, true}; }},
      {"SamplesBackward", "hfta::sample_convolution_backward", [=](auto n) { return Stack{images(n, 7), none, images(n, 5), weights(n), one, true, true}; }, true},
      {"Direct", "hfta::direct_convolution", [=](auto n) { return Stack{image(5), weights(n), torch::randn({n, 7}), one}; }},
      {"DirectInput", "hfta::direct_convolution_input", [=](auto n) { return Stack{images(n, 7), weights(n), one, size}; }},
      {"DirectWeight", "hfta::direct_convolution_weight", [=](auto n) { return Stack{images(n, 7), images(n, 5), one, Sizes{3, 3}}; }},
      {"Winograd", "hfta::winograd", [=](auto n) { return Stack{image(5), weights(n), torch::randn({n, 7}), one}; }},
      {"WinogradFewImages", "hfta::winograd", [=](auto n) { return Stack{image(64).narrow(0, 0, 2), torch::randn({n, 80, 64, 3, 3}), none, one}; }},
      {"WinogradInput", "hfta::winograd_input", [=](auto n) { return Stack{images(n, 7), weights(n), one, size}; }},
      {"WinogradWeight", "hfta::winograd_weight", [=](auto n) { return Stack{images(n, 7), images(n, 5), one}; }, true},
      {"Product", "hfta::unpacked_product", [=](auto n) { return Stack{torch::randn({67, 130}), torch::randn({n, 130, 140}), torch::randn({n, 140}), none, true, std::vector<std::int64_t>{n}}; }},
      {"ProductOfLanes", "hfta::unpacked_product", [=](auto n) { return Stack{torch::randn({n, 67, 130}), torch::randn({n, 130, 140}), none, none, false, std::vector<std::int64_t>{n}}; }},
      {"SplitProduct", "hfta::split_product", [=](auto n) { return Stack{torch::randn({67, 130}), torch::randn({n, 130, 140}), torch::randn({n, 140}), none, true, std::vector<std::int64_t>{n}}; }},
      {"SplitProductOfLanes", "hfta::split_product", [=](auto n) { return Stack{torch::randn({n, 67, 130}), torch::randn({n, 130, 140}), none, none, false, std::vector<std::int64_t>{n}}; }},
      {"MaxPool", "hfta::max_pool2d_with_indices", [=](auto n) { return Stack{images(n, 5).flatten(0, 1), Sizes{3, 3}, Sizes{2, 2}, Sizes{1, 1}, Sizes{1, 1}, false}; }},
      {"RectifiedPool", "hfta::rectified_max_pool2d", [=](auto n) { return Stack{images(n, 15)}; }},
      {"RectifiedPoolBackward", "hfta::rectified_max_pool2d_backward",
       [=](auto n) { return Stack{torch::randn({n, 67, 15, 6, 7}), torch::randint(5, {n, 67, 15, 6, 7}, torch::kByte), size}; }},
      {"Softmax", "hfta::log_softmax", [=](auto n) { return Stack{torch::randn({n, 5003, 7})}; }},
      {"CrossEntropy", "hfta::cross_entropy_rows", [=](auto n) { return Stack{torch::randn({n, 3001, 7}), torch::randint(7, {n, 3001}), none, 1, -100}; }},
      {"LayerNorm", "hfta::layer_norm", [=](auto n) { return Stack{torch::randn({n, 9, 11, 13}), torch::randn({n, 13}), torch::randn({n, 13}), std::vector<double>(n, 1e-5)}; }},
      {"Embedding", "hfta::embedding", [=](auto n) { return Stack{torch::randn({n, 19, 6}), torch::randint(19, {n, 77})}; }},
      {"EmbeddingBackward", "hfta::embedding_backward", [=](auto n) { return Stack{torch::randn({n, 77, 6}), torch::randint(19, {n, 77}), 19, 3, true}; }},
  };
}

class ParallelKernelTest : public ::testing::TestWithParam<Kernel> {
 protected:
  Stack run(Stack stack, int threads) const {
    const base::IntraOpThreads scope(threads);
    operator_named(GetParam().op.c_str()).callBoxed(stack);
    return stack;
  }
};

TEST_P(ParallelKernelTest, HasTheBitsOfOneThread) {
  if (GetParam().op == "hfta::split_product" && !ops::has_split_products()) GTEST_SKIP() << "no matrix unit";  // asks for it too
  const torch::NoGradGuard no_grad;
  torch::manual_seed(5);
  for (const std::int64_t lanes : {1, 2, 5}) {
    const auto arguments = GetParam().arguments(lanes);
    const auto alone = run(arguments, 1);
    for (const int threads : {2, 3})
      for (int repeat = 0; repeat < 3; ++repeat) {
        const auto got = run(arguments, threads);
        ASSERT_EQ(got.size(), alone.size());
        for (std::size_t r = 0; r < got.size(); ++r) {
          const auto &a = got[r].toTensor(), &b = alone[r].toTensor();
          const bool sums = GetParam().sums_by_thread && lanes == 1;
          EXPECT_TRUE(sums ? close(a, b, tolerance(torch::kFloat), 100) : same_bits(a, b)) << lanes << " lanes, " << threads << " threads, result " << r;
          EXPECT_TRUE(same_bits(a, run(arguments, threads)[r].toTensor())) << "another run";
        }
      }
  }
}

INSTANTIATE_TEST_SUITE_P(Kernels, ParallelKernelTest, ::testing::ValuesIn(kernels()), [](const auto& info) { return info.param.name; });

}  // namespace parallel_test
}  // namespace hfta::test
