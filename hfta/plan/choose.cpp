#include "hfta/plan/choose.h"

#include <ATen/Version.h>
#include <torch/version.h>

#include <algorithm>
#include <fstream>
#include <numeric>
#include <sstream>

#include "hfta/base/version.h"
#include "hfta/plan/cache.h"
#include "hfta/plan/measure.h"
#include "hfta/plan/throughput.h"

namespace hfta::plan {
namespace {

/// "Intel(R) Xeon(R) Processor, AVX512".
std::string processor() {
  std::ifstream in("/proc/cpuinfo");
  std::string model;
  for (std::string line; model.empty() && std::getline(in, line);)
    if (line.starts_with("model name")) model = line.substr(line.find(':') + 2);
  return model + ", " + at::get_cpu_capability();
}

bool is_same_way(const Plan& a, const Plan& b) {
  return a.width == b.width && a.workers == b.workers && a.intra_op_threads == b.intra_op_threads && a.recorded == b.recorded;
}

}  // namespace

std::string key_of(const SearchSpace& space, const Subject& subject) {
  std::ostringstream out;
  out << "hfta " << HFTA_VERSION << ", torch " << TORCH_VERSION << ", " << processor() << '\n'
      << space.lanes << " lanes, " << space.cores << " cores, " << space.device << ", " << space.precision << ", " << space.steps << " steps together, recorded " << space.recorded << ", plain " << space.plain << space.plain_workers
      << ", measures lowerings " << space.measures_lowerings << ", at most " << space.memory_limit_bytes << " bytes\n"
      << subject.key;
  return out.str();
}

namespace {

constexpr double kNotSlower = 1.05;
constexpr std::int64_t kProofRounds = 5;
constexpr double kProofSeconds = 0.3;  // No round but the first begins after it.
constexpr double kLongStepMs = 20;     // Some turns of the system's scheduler: threads wait little for each other beside a longer step.

SearchResult searched(const SearchSpace& space, const Subject& subject, const Measure& measure, SearchOptions how) {
  if (subject.profile && !how.predict) how.predict = [profile = *subject.profile](const Plan& plan) { return predicted_ms(profile, plan); };
  auto result = search(candidates(space), measure, how);
  result.profile = subject.profile;
  if (subject.complete) {
    const auto chosen = std::find_if(result.timings.begin(), result.timings.end(), [&](const Timing& timing) { return timing.plan == result.plan; });
    result.plan = subject.complete(result.plan);
    if (chosen != result.timings.end()) chosen->plan = result.plan;
  }
  return result;
}

/// Whether the plan is slower than plain steps of one model after the other, in turn, all rounds together. A measurement's middle, and the fastest
/// of a few, tell nothing of steps in which a worker waits for another that the system has put aside.
bool proves_slower(const SearchSpace& space, const Plan& plan, const Measure& measure, const SearchOptions& options) {
  const Plan alone{.recorded = false, .device = space.device, .precision = space.precision, .measures_lowerings = space.measures_lowerings};
  const auto clock = options.clock ? options.clock : steady_seconds;
  const auto start = clock();
  double plan_ms = 0, alone_ms = 0;
  try {
    for (std::int64_t round = 0; round < kProofRounds && (round == 0 || clock() - start < kProofSeconds); ++round) {
      plan_ms += measure(plan);
      alone_ms += measure(alone);
    }
  } catch (const std::exception&) {
    return false;  // the run will tell
  }
  return plan_ms > kNotSlower * alone_ms;
}

/// On a busy machine the threads of a plan wait for each other, whatever was measured in quiet moments or long ago: plans of a single thread wait
/// for nobody. That choice is not kept, since the machine will be quiet again.
SearchResult proven(SearchResult result, const SearchSpace& space, const Subject& subject, const Measure& measure, SearchOptions options) {
  const bool waits = result.plan.workers * result.plan.intra_op_threads > 1 && result.step_ms < kLongStepMs;
  if (!waits || !space.plain || !proves_slower(space, result.plan, measure, options)) return result;
  auto of_one_thread = space;
  of_one_thread.cores = 1;
  options.run_steps = 0;
  options.budget_seconds = std::min(options.budget_seconds, 1.0);
  auto again = searched(of_one_thread, subject, measure, options);
  again.explanation = "chosen again, since on this busy machine " + describe(result.plan) + " was slower than one model after the other: " + again.explanation;
  return again;
}

}  // namespace

SearchResult choose(const SearchSpace& space, const Subject& subject, const Measure& measure, const SearchOptions& options) {
  std::optional<Cache> cache;
  if (options.keeps && !subject.key.empty())
    if (const auto folder = Cache::default_folder()) cache.emplace(*folder);
  const auto key = cache ? key_of(space, subject) : std::string();
  if (cache)
    if (auto known = cache->find(key)) return proven(*std::move(known), space, subject, measure, options);
  auto result = searched(space, subject, measure, options);
  if (cache) cache->store(key, result);
  return proven(std::move(result), space, subject, measure, options);
}

std::string table(const SearchResult& result) {
  std::vector<std::size_t> order(result.timings.size());
  std::iota(order.begin(), order.end(), 0);
  const auto time = [&](std::size_t i) { return std::pair(result.timings[i].median_ms(), result.timings[i].predicted_ms); };
  std::stable_sort(order.begin(), order.end(), [&](auto a, auto b) { return time(a) < time(b); });
  std::string text;
  for (const auto i : order) {
    const auto& timing = result.timings[i];
    text += is_same_way(timing.plan, result.plan) ? "* " : "  ";
    text += describe(timing.plan) + ": ";
    const auto predicted = timing.predicted_ms > 0 ? "predicted " + short_number(timing.predicted_ms) + " ms" : std::string();
    if (!timing.error.empty()) text += "could not run: " + timing.error;
    else if (timing.is_pruned) text += "not timed, hopeless: " + predicted;
    else if (timing.step_ms.empty()) text += "not timed, the search's time was over" + (predicted.empty() ? "" : ": " + predicted);
    else text += short_number(timing.median_ms()) + " ms (timed " + std::to_string(timing.step_ms.size()) + (timing.step_ms.size() == 1 ? " time" : " times") + (predicted.empty() ? ")" : "; " + predicted + ")");
    text += '\n';
  }
  return text;
}

}  // namespace hfta::plan
