#include "benchmarks/ops/rule_bench.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Parallel.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/grad_mode.h>
#include <benchmark/benchmark.h>

#include <functional>
#include <map>
#include <memory>
#include <optional>

#include "hfta/base/error.h"
#include "hfta/base/memory.h"
#include "hfta/lanes/lane_calls.h"
#include "hfta/ops/rule.h"

namespace hfta::bench {
namespace {

ops::LaneValue lane_value(const c10::IValue& value, bool per_lane) {
  if (!value.isTensor() || !value.toTensor().defined()) return value;
  return ops::LaneTensor{value.toTensor(), per_lane ? std::optional<std::int64_t>(0) : std::nullopt};
}

void run_alone(const c10::OperatorHandle& op, const RuleCase& rule_case) {
  for (std::int64_t lane = 0; lane < rule_case.lanes; ++lane) {
    torch::jit::Stack stack;
    for (std::size_t i = 0; i < rule_case.arguments.size(); ++i) {
      const auto& argument = rule_case.arguments[i];
      stack.push_back(rule_case.per_lane[i] ? c10::IValue(argument.toTensor().select(0, lane)) : argument);
    }
    op.callBoxed(stack);
    benchmark::DoNotOptimize(stack.data());
  }
}

/// A generator for each lane, of rules that draw.
const std::vector<at::Generator>& generators(std::int64_t lanes) {
  static std::map<std::int64_t, std::vector<at::Generator>> of_lanes;
  auto& some = of_lanes[lanes];
  while (static_cast<std::int64_t>(some.size()) < lanes) some.push_back(at::make_generator<at::CPUGeneratorImpl>(some.size()));
  return some;
}

class Scope {
 public:
  explicit Scope(bool grad_mode) : grad_mode_(grad_mode) {
    base::keep_freed_memory();  // as training does: else large results are paid for in page faults
    at::set_num_threads(1);
  }

 private:
  at::AutoGradMode grad_mode_;
  at::AutoDispatchBelowADInplaceOrView below_autograd_;
};

c10::OperatorHandle operator_of(const std::string& op) {
  const auto dot = op.rfind('.');
  const auto overload = dot == std::string::npos ? std::string() : op.substr(dot + 1);
  return c10::Dispatcher::singleton().findSchemaOrThrow(op.substr(0, dot).c_str(), overload.c_str());
}

void add_benchmark(const std::string& name, bool grad_mode, std::function<void()> body) {
  benchmark::RegisterBenchmark(name.c_str(), [grad_mode, body = std::move(body)](benchmark::State& state) {
    const Scope scope(grad_mode);
    for (auto _ : state) body();
  })->Unit(benchmark::kMicrosecond);
}

}  // namespace

void add_rule_case(RuleCase given) {
  const auto rule_case = std::make_shared<const RuleCase>(std::move(given));
  const auto prefix = rule_case->op + "/" + rule_case->name + "/x" + std::to_string(rule_case->lanes) + "/";
  const auto op = operator_of(rule_case->op);
  add_benchmark(prefix + "alone", rule_case->grad_mode, [=] { run_alone(op, *rule_case); });
  std::vector<ops::LaneValue> values;
  for (std::size_t i = 0; i < rule_case->arguments.size(); ++i) values.push_back(lane_value(rule_case->arguments[i], rule_case->per_lane[i]));
  const auto* rules = ops::find_rules(op.operator_name());
  if (rules == nullptr) {
    HFTA_CHECK(lanes::has_batching_rule(op), "ops_bench: expected an operator with a rule of its own or of LibTorch's batching, got ", rule_case->op);
    const program::Node node{.op = op, .inputs = {}, .outputs = {}, .grad_mode = rule_case->grad_mode, .rewinds_to = {}};
    return add_benchmark(prefix + "batching", rule_case->grad_mode, [=] { benchmark::DoNotOptimize(lanes::call_batched(node, values, rule_case->lanes)); });
  }
  for (const auto& lowering : rules->lowerings) {
    const Scope scope(rule_case->grad_mode);
    if (!lowering.rule({rule_case->lanes, generators(rule_case->lanes)}, values)) continue;
    add_benchmark(prefix + std::string(lowering.name), rule_case->grad_mode, [=, rule = lowering.rule] {
      benchmark::DoNotOptimize(rule({rule_case->lanes, generators(rule_case->lanes)}, values));
    });
  }
}

}  // namespace hfta::bench
