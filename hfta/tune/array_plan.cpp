#include <algorithm>

#include "hfta/base/error.h"
#include "hfta/base/threads.h"
#include "hfta/plan/choose.h"
#include "hfta/plan/throughput.h"
#include "hfta/train/runner.h"
#include "hfta/tune/tuner.h"

namespace hfta::tune {
namespace {

train::TrainBatch first_batch(train::BatchSource& source) {
  source.begin_epoch(0);
  auto batch = source.next();
  HFTA_CHECK(batch, "tune::Tuner: expected at least one training batch, got none");
  return std::move(*batch);
}

train::Runner runner_of(TrialArray& array) { return {{array.array.get()}, *array.optimizer, array.step, array.step_options}; }

plan::SearchSpace space_of(const lanes::ArrayBase& array, const TunerOptions& options) {
  plan::SearchSpace space{.lanes = array.lanes(), .cores = array.device().is_cpu() ? base::cores() : 1, .recorded = options.tries_recorded, .plain = options.tries_plain};
  space.measures_lowerings = options.measures_lowerings;
  space.device = array.device().str();
  for (const auto& parameter : array.parameters())
    if (parameter.tensor.scalar_type() == at::kDouble) space.precision = "float64";
  return space;
}

/// The array against the faster way to train its models one after the other.
void compare(train::Runner& runner, const train::TrainBatch& batch, ArrayPlan& plan) {
  const auto measured = runner.throughput(batch.inputs, {.repeats = 5, .warm_up = 1, .budget_seconds = 5});
  plan.array_ms = measured.variant("array").median_ms();
  plan.alone_ms = 0;
  for (const auto& variant : measured.variants)
    if (variant.name != "array") plan.alone_ms = plan.alone_ms == 0 ? variant.median_ms() : std::min(plan.alone_ms, variant.median_ms());
  plan.throughput = measured.describe();
}

}  // namespace

ArrayPlan plan_array(TrialArray& array, const TunerOptions& options, const std::optional<plan::Plan>& known) {
  auto runner = runner_of(array);
  const auto batch = first_batch(*array.training);
  array.array->train(true);
  ArrayPlan planned;
  if (const auto& fixed = known ? known : options.plan) {
    planned.plan = plan::fitted(*fixed, array.array->lanes());
    const auto lanes = array.array->lanes();
    planned.explanation = (known ? "as before: " : planned.plan == *fixed ? "as asked: " : base::message("as asked, fitted to ", lanes, lanes == 1 ? " lane: " : " lanes: ")) + describe(planned.plan);
    runner.set_plan(planned.plan);
  } else {
    auto search = options.search;
    if (const auto batches = array.training->batches(); batches && search.run_steps == 0) search.run_steps = *batches * options.epochs;
    const auto found = runner.choose_plan(batch.inputs, space_of(*array.array, options), search);
    planned.plan = found.plan;
    planned.explanation = found.explanation;
    planned.candidates = plan::table(found);
  }
  if (options.measures_throughput) compare(runner, batch, planned);
  planned.report = runner.report();
  return planned;
}

plan::MemoryProfile memory_of(TrialArray& array) {
  auto runner = runner_of(array);
  array.array->train(true);
  return runner.memory_profile(first_batch(*array.training).inputs);
}

}  // namespace hfta::tune
