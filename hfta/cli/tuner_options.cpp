#include "hfta/cli/tuner_options.h"

#include <algorithm>

#include "hfta/base/threads.h"
#include "hfta/cli/interrupt.h"

namespace hfta::cli {
namespace {

constexpr std::int64_t kMostLanes = 64;

/// A plan of which the file fixes a part; nothing where it fixes none.
std::optional<plan::Plan> fixed_plan(const StudyFile& file, std::int64_t lanes) {
  const auto& section = file.plan;
  if (!section.width && !section.workers && !section.threads) return std::nullopt;
  const bool is_cpu = section.device == "cpu";
  const auto cores = is_cpu ? base::cores() : 1;
  plan::Plan plan;
  plan.workers = section.workers ? *section.workers : section.threads ? std::max<std::int64_t>(1, cores / *section.threads) : cores;
  plan.intra_op_threads = static_cast<int>(section.threads ? *section.threads : std::max<std::int64_t>(1, cores / plan.workers));
  plan.width = section.width ? *section.width : (lanes + plan.workers - 1) / plan.workers;
  plan.recorded = section.recorded.value_or(true);
  plan.measures_lowerings = section.lowerings == "timed";
  plan.device = section.device;
  plan.precision = section.precision;
  return plan;
}

}  // namespace

std::string metric_key(const StudyFile& file) { return file.study.metric == "loss" ? "validation_loss" : "accuracy"; }

tune::TunerOptions tuner_options(const StudyFile& file, const std::string& folder) {
  tune::TunerOptions options;
  options.folder = folder;
  options.metric = metric_key(file);
  options.seed = file.study.seed;
  options.lanes = file.study.lanes.value_or(kMostLanes);
  options.epochs = file.study.epochs;
  options.checkpoint_every = file.output.checkpoint_every;
  if (file.study.patience) options.early_stop = train::EarlyStop{options.metric, *file.study.patience, file.study.min_delta, file.study.maximize};
  options.keeps_weights = file.output.weights != "none";
  options.plan = fixed_plan(file, options.lanes);
  options.tries_recorded = file.plan.recorded.value_or(true);
  options.tries_plain = !file.plan.recorded.value_or(false);
  options.measures_lowerings = file.plan.lowerings == "timed";
  options.interrupt = &Interrupts::count();
  return options;
}

}  // namespace hfta::cli
