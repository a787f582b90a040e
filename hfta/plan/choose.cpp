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

SearchResult choose(const SearchSpace& space, const Subject& subject, const Measure& measure, const SearchOptions& options) {
  std::optional<Cache> cache;
  if (options.keeps && !subject.key.empty())
    if (const auto folder = Cache::default_folder()) cache.emplace(*folder);
  const auto key = cache ? key_of(space, subject) : std::string();
  if (cache)
    if (auto known = cache->find(key)) return *std::move(known);
  auto how = options;
  if (subject.profile && !how.predict) how.predict = [profile = *subject.profile](const Plan& plan) { return predicted_ms(profile, plan); };
  auto result = search(candidates(space), measure, how);
  result.profile = subject.profile;
  if (subject.complete) {
    const auto chosen = std::find_if(result.timings.begin(), result.timings.end(), [&](const Timing& timing) { return timing.plan == result.plan; });
    result.plan = subject.complete(result.plan);
    if (chosen != result.timings.end()) chosen->plan = result.plan;
  }
  if (cache) cache->store(key, result);
  return result;
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
