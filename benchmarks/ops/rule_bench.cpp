#include "benchmarks/ops/rule_bench.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Parallel.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/grad_mode.h>
#include <benchmark/benchmark.h>

#include <map>
#include <memory>
#include <optional>

#include "hfta/base/memory.h"
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
  Scope() {
    base::keep_freed_memory();  // as training does: else large results are paid for in page faults
    at::set_num_threads(1);
  }

 private:
  at::NoGradGuard no_grad_;
  at::AutoDispatchBelowADInplaceOrView below_autograd_;
};

}  // namespace

void add_rule_case(RuleCase given) {
  const auto rule_case = std::make_shared<const RuleCase>(std::move(given));
  const auto prefix = rule_case->op + "/" + rule_case->name + "/x" + std::to_string(rule_case->lanes) + "/";
  const auto op = c10::Dispatcher::singleton().findSchemaOrThrow(rule_case->op.c_str(), "");
  benchmark::RegisterBenchmark((prefix + "alone").c_str(), [=](benchmark::State& state) {
    const Scope scope;
    for (auto _ : state) run_alone(op, *rule_case);
  })->Unit(benchmark::kMicrosecond);
  const auto* rules = ops::find_rules({rule_case->op, ""});
  if (rules == nullptr) return;
  std::vector<ops::LaneValue> values;
  for (std::size_t i = 0; i < rule_case->arguments.size(); ++i) values.push_back(lane_value(rule_case->arguments[i], rule_case->per_lane[i]));
  for (const auto& lowering : rules->lowerings) {
    const Scope scope;
    if (!lowering.rule({rule_case->lanes, generators(rule_case->lanes)}, values)) continue;
    benchmark::RegisterBenchmark((prefix + std::string(lowering.name)).c_str(), [=, rule = lowering.rule](benchmark::State& state) {
      const Scope inner;
      for (auto _ : state) benchmark::DoNotOptimize(rule({rule_case->lanes, generators(rule_case->lanes)}, values));
    })->Unit(benchmark::kMicrosecond);
  }
}

}  // namespace hfta::bench
