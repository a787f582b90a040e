#include "hfta/program/work.h"

#include <gtest/gtest.h>

#include "hfta/program/recorder.h"

namespace {

using at::Tensor;
using hfta::program::fingerprint;
using hfta::program::Origin;
using hfta::program::Program;
using hfta::program::work_of;

Program program_of(const std::vector<Tensor>& state, const std::function<void()>& run) {
  hfta::program::RecordOptions how;
  for (std::size_t k = 0; k < state.size(); ++k) how.regions.push_back({state[k], Origin::State, static_cast<std::int64_t>(k)});
  hfta::program::Recorder recorder(std::move(how));
  recorder.run(run);
  return recorder.finish().program;
}

TEST(WorkTest, ProductsAndConvolutionsAreCounted) {
  const torch::NoGradGuard no_grad;
  const auto x = torch::randn({5, 7}), w = torch::randn({7, 3}), b = torch::randn({3});
  const auto product = work_of(program_of({x, w, b}, [&] { torch::addmm(b, x, w); }));
  EXPECT_EQ(product.nodes, 1);
  EXPECT_EQ(product.flops, 2 * 5 * 7 * 3);
  EXPECT_EQ(product.moved_bytes, 4 * (5 * 7 + 7 * 3 + 3 + 5 * 3));
  EXPECT_EQ(product.made_bytes, 4 * 5 * 3);
  const auto images = torch::randn({2, 3, 8, 8}), kernel = torch::randn({4, 3, 3, 3});
  EXPECT_EQ(work_of(program_of({images, kernel}, [&] { torch::conv2d(images, kernel, {}, 1, 1); })).flops, 2 * (2 * 4 * 8 * 8) * (3 * 3 * 3));
}

TEST(WorkTest, BackwardOfAConvolutionCountsTwice) {
  const auto images = torch::randn({2, 3, 8, 8}).requires_grad_(), kernel = torch::randn({4, 3, 3, 3}).requires_grad_();
  const auto work = work_of(program_of({images, kernel}, [&] { torch::autograd::grad({torch::conv2d(images, kernel, {}, 1, 1).sum()}, {images, kernel}); }));
  EXPECT_EQ(work.flops, 3 * 2 * (2 * 4 * 8 * 8) * (3 * 3 * 3));
}

TEST(WorkTest, FingerprintTellsOperatorsAndShapesButNotNumbers) {
  const torch::NoGradGuard no_grad;
  const auto x = torch::randn({5, 7}), y = torch::randn({5, 6});
  const auto of = [](const Tensor& t, const std::function<void(const Tensor&)>& run) { return fingerprint(program_of({t}, [&] { run(t); })); };
  const auto leaky = of(x, [](const Tensor& t) { torch::leaky_relu(t, 0.1); });
  EXPECT_EQ(leaky, of(x, [](const Tensor& t) { torch::leaky_relu(t, 0.1); }));
  EXPECT_EQ(leaky, of(x, [](const Tensor& t) { torch::leaky_relu(t, 0.2); }));
  EXPECT_NE(leaky, of(y, [](const Tensor& t) { torch::leaky_relu(t, 0.1); }));
  EXPECT_NE(leaky, of(x, [](const Tensor& t) { torch::relu(t); }));
  EXPECT_NE(of(x, [](const Tensor& t) { t.sum(0); }), of(x, [](const Tensor& t) { t.sum(1); }));
}

}  // namespace
