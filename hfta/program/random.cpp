#include "hfta/program/random.h"

#include <ATen/CPUGeneratorImpl.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "hfta/base/error.h"
#include "hfta/program/overloads.h"

namespace hfta::program {
namespace {

bool is_default(const at::Generator& generator) {
  return generator.device().is_cpu() && generator == at::detail::getDefaultCPUGenerator();
}

/// The overload with the same arguments and a generator: `rand` -> `rand.generator`, `randint.low` -> `randint.low_generator`.
std::optional<c10::OperatorHandle> twin_with_generator(const c10::OperatorHandle& op) {
  const auto& wanted = op.schema().arguments();
  for (const auto& candidate : overloads(op.schema().name())) {
    const auto& arguments = candidate.schema().arguments();
    if (arguments.size() != wanted.size() + 1 || !generator_argument(candidate)) continue;
    std::size_t i = 0;
    for (const auto& argument : arguments)
      if (i < wanted.size() && argument.name() == wanted[i].name() && *argument.type() == *wanted[i].type()) ++i;
    if (i == wanted.size()) return candidate;
  }
  return std::nullopt;
}

/// Tagged as random, but they draw nothing: the first answers how to compute, the second refuses dropout on the CPU.
constexpr std::array<std::string_view, 2> kDrawsNothing{"aten::_fused_sdp_choice", "aten::_scaled_dot_product_flash_attention_for_cpu"};

}  // namespace

bool is_random(const c10::OperatorHandle& op) {
  return op.hasTag(at::Tag::nondeterministic_seeded) &&
         std::find(kDrawsNothing.begin(), kDrawsNothing.end(), op.schema().name()) == kDrawsNothing.end();
}

std::optional<std::size_t> generator_argument(const c10::OperatorHandle& op) {
  const auto& arguments = op.schema().arguments();
  for (std::size_t i = 0; i < arguments.size(); ++i)
    if (arguments[i].name() == "generator") return i;
  return std::nullopt;
}

c10::OperatorHandle with_generator(const c10::OperatorHandle& op, torch::jit::Stack& stack, const at::Generator& generator) {
  if (const auto at = generator_argument(op)) {
    auto& argument = stack[stack.size() - op.schema().arguments().size() + *at];
    if (argument.isGenerator() && !is_default(argument.toGenerator()) && argument.toGenerator() != generator)
      throw Unsupported(base::message("program::random: expected random operators to draw from their lane's generator, got ",
                                      op.schema().operator_name(), " with a generator of the step's own"));
    argument = generator;
    return op;
  }
  const auto twin = twin_with_generator(op);
  if (!twin)
    throw Unsupported(base::message("program::random: expected random operators that can take a lane's generator, got ",
                                    op.schema().operator_name(), ", which cannot"));
  const auto& from = op.schema().arguments();
  const auto& to = twin->schema().arguments();
  const std::size_t base = stack.size() - from.size();
  torch::jit::Stack arguments;
  for (const auto& argument : to) {
    if (argument.name() == "generator") {
      arguments.emplace_back(generator);
      continue;
    }
    std::size_t i = 0;
    while (i < from.size() && from[i].name() != argument.name()) ++i;
    TORCH_INTERNAL_ASSERT(i < from.size(), twin->schema());
    arguments.push_back(stack[base + i]);
  }
  stack.resize(base);
  for (auto& argument : arguments) stack.push_back(std::move(argument));
  return *twin;
}

void LaneRandom::call(const c10::OperatorHandle& op, torch::jit::Stack& stack) {
  if (!is_random(op)) return op.callBoxed(stack);
  with_generator(op, stack, generator_).callBoxed(stack);
}

}  // namespace hfta::program
