#include <limits>

#include "tests/ops/lane_cases.h"

namespace hfta::test {
namespace rectified_pool_test {

using Sizes = std::vector<std::int64_t>;

class RectifiedPoolTest : public ::testing::TestWithParam<std::tuple<Sizes, torch::ScalarType>> {
 protected:
  void SetUp() override { torch::manual_seed(14); }
  torch::ScalarType type() const { return std::get<1>(GetParam()); }
  const Sizes& sizes() const { return std::get<0>(GetParam()); }

  /// Ties, both zeros, NaN and infinities.
  torch::Tensor hard_images() const {
    auto images = torch::randint(-2, 2, sizes(), torch::dtype(type()));
    images.masked_fill_(torch::rand(sizes()) < 0.1, -0.0);
    images.masked_fill_(torch::rand(sizes()) < 0.05, std::numeric_limits<double>::quiet_NaN());
    images.masked_fill_(torch::rand(sizes()) < 0.1, -std::numeric_limits<double>::infinity());
    return images.masked_fill_(torch::rand(sizes()) < 0.05, std::numeric_limits<double>::infinity());
  }
};

TEST_P(RectifiedPoolTest, HasTheBitsOfTheOperatorsApart) {
  for (const int threads : {1, 2}) {
    at::set_num_threads(threads);
    for (const auto& images : {torch::randn(sizes(), torch::dtype(type())), hard_images(), torch::full(sizes(), -1.0, torch::dtype(type()))}) {
      const auto rectified = torch::relu(images);
      const auto [want, indices] = torch::max_pool2d_with_indices(rectified, {2, 2});
      torch::jit::Stack stack{images};
      operator_named("hfta::rectified_max_pool2d").callBoxed(stack);
      const auto got = stack[0].toTensor(), which = stack[1].toTensor();
      EXPECT_TRUE(same_bits(got, want));
      EXPECT_TRUE(torch::equal(got.signbit(), want.signbit()));
      auto grad = torch::randn_like(want);
      grad.masked_fill_(torch::rand_like(grad) < 0.2, -0.0);
      const auto want_grad = at::threshold_backward(at::max_pool2d_with_indices_backward(grad, rectified, {2, 2}, {2, 2}, {0, 0}, {1, 1}, false, indices), rectified, 0);
      const auto grad_input = torch::full_like(images, 99);
      stack = {grad, which, Sizes{images.size(-2), images.size(-1)}, grad_input};
      operator_named("hfta::rectified_max_pool2d_backward", "grad_input").callBoxed(stack);
      EXPECT_TRUE(same_bits(grad_input, want_grad));
    }
  }
  at::set_num_threads(1);
}

TEST_P(RectifiedPoolTest, LanesEqualTheLanesAlone) {
  if (sizes().size() != 4 || sizes()[0] == 0) return;
  for (const std::int64_t axis : {0, 2}) {
    EXPECT_FALSE(expect_lanes_equal_alone("hfta::rectified_max_pool2d", 3, {random_lanes(3, sizes(), type(), axis, false)}).empty());
    auto out = sizes();
    for (const auto d : {2, 3}) out[d] /= 2;
    const auto which = per_lane(torch::randint(5, {3, out[0], out[1], out[2], out[3]}, torch::kByte).unbind(), 0);
    EXPECT_FALSE(expect_lanes_equal_alone("hfta::rectified_max_pool2d_backward", 3, {random_lanes(3, out, type(), axis, false), which, same(Sizes{sizes()[2], sizes()[3]})}).empty());
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, RectifiedPoolTest,
                         ::testing::Combine(::testing::Values(Sizes{2, 3, 28, 28}, Sizes{5, 1, 14, 14}, Sizes{2, 3, 4, 2}, Sizes{3, 2, 9, 21}, Sizes{40, 33, 7, 6}, Sizes{3, 18, 17},
                                                              Sizes{4, 2, 2, 35}, Sizes{0, 3, 8, 8}),
                                            ::testing::Values(torch::kFloat, torch::kDouble)));

}  // namespace rectified_pool_test
}  // namespace hfta::test
