#include "tests/ops/rule_check.h"

namespace hfta::test {
namespace {

/// Width, dtype.
class ElementwiseTest : public ::testing::TestWithParam<std::tuple<std::int64_t, torch::ScalarType>> {
 protected:
  void SetUp() override { torch::manual_seed(5); }
  std::int64_t lanes_ = std::get<0>(GetParam());
  torch::TensorOptions options_ = torch::TensorOptions().dtype(std::get<1>(GetParam())).device(device());

  torch::Tensor stacked(std::vector<std::int64_t> sizes) const {
    sizes.insert(sizes.begin(), lanes_);
    return torch::randn(sizes, options_);
  }
  ops::LaneValue some(double first, double step) const {
    std::vector<double> values;
    for (std::int64_t lane = 0; lane < lanes_; ++lane) values.push_back(first + step * static_cast<double>(lane));
    return numbers(values);
  }
  void check(const char* name, const char* overload, const std::vector<ops::LaneValue>& arguments) const {
    check_rule(std::string("aten::") + name, overload, lanes_, arguments, {.factor = 10});
  }
};

TEST_P(ElementwiseTest, InPlaceOperatorsWithoutABatchingRuleEqualTheLanesAlone) {
  for (const auto& self : {per_lane(stacked({3, 4})), per_lane_at(stacked({3, 4}), 2)}) {
    for (const auto& other : {per_lane(stacked({3, 4})), per_lane(stacked({4})), shared(torch::randn({3, 1}, options_)), per_lane(stacked({}))}) {
      check("addcmul_", "", {self, other, per_lane(stacked({3, 4})), plain(0.5)});
      check("addcdiv_", "", {self, shared(torch::randn({4}, options_)), other, plain(2)});
      check("clamp_", "Tensor", {self, other, plain(c10::IValue())});
      check("fmod_", "Tensor", {self, other});
      check("gt_", "Tensor", {self, other});
    }
    check("clamp_", "", {self, plain(-0.2), plain(0.3)});
    check("lerp_", "Scalar", {self, per_lane(stacked({3, 4})), plain(0.3)});
    check("gelu_", "", {self, plain("none")});
  }
}

TEST_P(ElementwiseTest, MaskedFillTakesAValuePerLane) {
  const auto mask = torch::randn({3, 4}) > 0;
  for (const auto& value : {per_lane(stacked({})), shared(torch::randn({}, options_)), per_lane(stacked({}).to(torch::kDouble))})
    for (const auto& where : {shared(mask), per_lane(stacked({4}) > 0)})
      for (const char* name : {"masked_fill", "masked_fill_"}) check(name, "Tensor", {per_lane(stacked({3, 4})), where, value});
}

TEST_P(ElementwiseTest, NumbersPerLaneEqualTheLanesAlone) {
  const auto self = per_lane(stacked({3, 4})), moved = per_lane_at(stacked({3, 4}), 1), other = per_lane(stacked({4})), one = plain(1);
  const auto number = some(0.3, 0.4), second = some(0.7, 0.2);
  for (const auto& x : {self, moved, per_lane(stacked({}))}) {
    for (const char* name : {"add", "add_", "sub", "sub_", "rsub"}) {
      check(name, "Scalar", {x, number, one});
      check(name, "Scalar", {x, plain(2), second});
    }
    for (const char* name : {"mul", "mul_", "div", "div_", "remainder", "fmod", "remainder_", "fmod_", "eq", "ne", "lt", "le", "gt_", "ge_"}) check(name, "Scalar", {x, number});
    check("clamp", "", {x, plain(c10::IValue()), number});
    check("clamp_", "", {x, plain(-0.5), number});
    check("clamp_min", "", {x, number});
    check("threshold", "", {x, number, second});
    check("leaky_relu", "", {x, number});
    check("leaky_relu_", "", {x, number});
    check("elu", "", {x, number, plain(1.1), second});
    check("softplus", "", {x, number, plain(1.5)});
    check("hardshrink", "", {x, number});
    check("softshrink", "", {x, number});
    check("fill", "Scalar", {x, number});
    check("fill_", "Scalar", {x, number});
    check("full_like", "", {x, number, plain(c10::IValue()), plain(c10::IValue()), plain(c10::IValue()), plain(c10::IValue()), plain(c10::IValue())});
  }
  check("add", "Tensor", {self, other, number});
  check("sub_", "Tensor", {self, other, number});
  check("lerp", "Scalar", {self, moved, number});
  check("addcmul_", "", {self, other, moved, number});
  check("addcdiv", "", {self, other, moved, number});
  check("pow", "Tensor_Scalar", {per_lane(stacked({3, 4}).abs()), number});
  check("pow_", "Scalar", {per_lane(stacked({3, 4}).abs()), number});
  check("pow", "Scalar", {number, self});
  check("masked_fill", "Scalar", {self, shared(torch::randn({4}) > 0), number});
  check("full", "", {integers({3, 4}), number, plain(std::get<1>(GetParam())), plain(c10::IValue()), plain(c10::IValue()), plain(c10::IValue())});
  check("scalar_tensor", "", {number, plain(std::get<1>(GetParam())), plain(c10::IValue()), plain(c10::IValue()), plain(c10::IValue())});
}

TEST_P(ElementwiseTest, GradientsWithNumbersPerLaneEqualTheLanesAlone) {
  const auto grad = per_lane(stacked({3, 4})), self = per_lane_at(stacked({3, 4}), 2), number = some(0.3, 0.4), second = some(0.7, 0.2);
  check("threshold_backward", "", {grad, self, number});
  check("hardtanh_backward", "", {grad, self, plain(-0.5), number});
  check("leaky_relu_backward", "", {grad, self, number, plain(false)});
  for (const bool result : {false, true}) check("elu_backward", "", {grad, number, plain(1.1), second, plain(result), self});
  check("softplus_backward", "", {grad, self, number, plain(1.5)});
  check("hardshrink_backward", "", {grad, self, number});
  check("softshrink_backward", "", {grad, self, number});
}

INSTANTIATE_TEST_SUITE_P(Widths, ElementwiseTest, ::testing::Combine(::testing::Values(1, 3), ::testing::Values(torch::kFloat, torch::kDouble)));

TEST(NumberPromotionTest, NumbersDoNotPromoteWithinACategory) {
  const auto integer = per_lane(torch::arange(12, torch::kInt).view({3, 4})), half = per_lane(torch::randn({3, 4}).to(torch::kBFloat16));
  check_rule("aten::add", "Scalar", 3, {integer, numbers({1, 2, 3}), plain(1)});
  check_rule("aten::mul", "Scalar", 3, {integer, numbers({0.5, 1.5, 2.5})});
  check_rule("aten::mul", "Scalar", 3, {half, numbers({0.3, 1.7, 2.9})});
  check_rule("aten::div_", "Scalar", 3, {half, numbers({0.3, 1.7, 2.9})});
  check_rule("aten::gt", "Scalar", 3, {integer, numbers({0.5, 5.5, 9.5})});
  check_rule("aten::fill_", "Scalar", 3, {integer, numbers({4, 5, 6})});
}

}  // namespace
}  // namespace hfta::test
