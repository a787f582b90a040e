#include "tests/ops/rule_check.h"

#include <algorithm>

#include "hfta/base/generator.h"
#include "hfta/ops/looped.h"

namespace hfta::test {
namespace {

using ops::LaneTensor;
using ops::LaneValue;

torch::Tensor copy_of(const torch::Tensor& tensor) {
  if (!tensor.defined()) return tensor;
  const bool overlapping = std::any_of(tensor.strides().begin(), tensor.strides().end(), [](auto stride) { return stride == 0; });
  return overlapping ? tensor.clone() : torch::empty_strided(tensor.sizes(), tensor.strides(), tensor.options()).copy_(tensor);
}

LaneValue copy_of(const LaneValue& value) {
  if (const auto* tensor = std::get_if<LaneTensor>(&value)) return LaneTensor{copy_of(tensor->tensor), tensor->axis};
  if (const auto* list = std::get_if<std::vector<LaneTensor>>(&value)) {
    auto copies = *list;
    for (auto& tensor : copies) tensor.tensor = copy_of(tensor.tensor);
    return copies;
  }
  if (const auto* list = std::get_if<std::vector<std::optional<LaneTensor>>>(&value)) {
    auto copies = *list;
    for (auto& tensor : copies)
      if (tensor) tensor->tensor = copy_of(tensor->tensor);
    return copies;
  }
  return value;
}

std::vector<LaneValue> copy_of(const std::vector<LaneValue>& values) {
  std::vector<LaneValue> copies;
  for (const auto& value : values) copies.push_back(copy_of(value));
  return copies;
}

/// Tensors of one lane, in order; absent ones undefined.
std::vector<torch::Tensor> tensors_of(const LaneValue& value, std::int64_t lane) {
  if (const auto* tensor = std::get_if<LaneTensor>(&value)) return {ops::lane_of(*tensor, lane)};
  if (const auto* list = std::get_if<std::vector<LaneTensor>>(&value)) {
    std::vector<torch::Tensor> tensors;
    for (const auto& tensor : *list) tensors.push_back(ops::lane_of(tensor, lane));
    return tensors;
  }
  return {torch::Tensor()};
}

std::vector<torch::Tensor> tensors_of(const c10::IValue& value) {
  if (value.isTensor()) return {value.toTensor()};
  if (value.isTensorList()) return value.toTensorVector();
  return {torch::Tensor()};
}

::testing::AssertionResult agree(const torch::Tensor& got, const torch::Tensor& expected, const RuleCheck& options) {
  if (!expected.defined()) return close(got, expected);
  if (options.same_bits || !expected.is_floating_point()) return same_bits(got, expected);
  const double scale = expected.numel() ? std::max(1.0, expected.abs().max().to(torch::kDouble).item<double>()) : 1.0;
  return close(got, expected, tolerance(expected.scalar_type(), options.factor), std::isfinite(scale) ? scale : 1.0);
}

struct Checker {
  c10::OperatorHandle op;
  std::int64_t lanes;
  const RuleCheck& options;
  std::string where;

  void compare(const std::vector<LaneValue>& results, const std::vector<LaneValue>& used, const std::vector<LaneValue>& original) const {
    ASSERT_EQ(results.size(), op.schema().returns().size()) << where;
    for (std::int64_t lane = 0; lane < lanes; ++lane) {
      auto stack = ops::lane_arguments(op, original, lane);
      for (auto& value : stack)  // a lane alone has dense memory of its own
        if (value.isTensor() && value.toTensor().defined()) {
          const auto& slice = value.toTensor();
          value = slice.clone(slice.is_non_overlapping_and_dense() ? at::MemoryFormat::Preserve : at::MemoryFormat::Contiguous);
        }
      const auto arguments = stack;
      {
        base::DefaultGeneratorScope scope(base::seeded_generator(static_cast<std::uint64_t>(lane + 40)));
        op.callBoxed(stack);
      }
      for (std::size_t r = 0; r < results.size(); ++r) {
        if (std::count(options.unchecked.begin(), options.unchecked.end(), static_cast<int>(r))) continue;
        const auto got = tensors_of(results[r], lane), expected = tensors_of(stack[r]);
        ASSERT_EQ(got.size(), expected.size());
        for (std::size_t i = 0; i < got.size(); ++i) EXPECT_TRUE(agree(got[i], expected[i], options)) << where << ", lane " << lane << ", result " << r;
      }
      for (std::size_t a = 0; a < arguments.size(); ++a) {
        if (!arguments[a].isTensor() || !arguments[a].toTensor().defined()) continue;
        EXPECT_TRUE(agree(tensors_of(used[a], lane)[0], arguments[a].toTensor(), options)) << where << ", lane " << lane << ", argument " << a;
      }
    }
  }
};

}  // namespace

std::vector<std::string> check_rule(const std::string& name, const std::string& overload, std::int64_t lanes, const std::vector<LaneValue>& arguments,
                                    const RuleCheck& options) {
  torch::NoGradGuard no_grad;
  const auto op = c10::Dispatcher::singleton().findSchemaOrThrow(name.c_str(), overload.c_str());
  const auto* rules = ops::find_rules(op.operator_name());
  std::vector<std::string> taken;
  if (!rules) {
    ADD_FAILURE() << "no rules for " << name << "." << overload;
    return taken;
  }
  for (const auto& lowering : rules->lowerings) {
    if (lowering.cpu_only && !device().is_cpu()) continue;
    std::vector<at::Generator> generators;
    for (std::int64_t lane = 0; lane < lanes; ++lane) generators.push_back(base::seeded_generator(static_cast<std::uint64_t>(lane + 40), device()));
    const auto used = copy_of(arguments);
    const auto results = lowering.rule({lanes, generators}, used);
    if (!results) continue;
    taken.emplace_back(lowering.name);
    Checker{op, lanes, options, name + ": " + std::string(lowering.name)}.compare(*results, used, arguments);
  }
  EXPECT_FALSE(taken.empty()) << "no lowering of " << name << " takes these arguments";
  return taken;
}

}  // namespace hfta::test
