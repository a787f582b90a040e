// Runs the benchmarks, tells every lowering's time as a part of `alone`, and at the end the cases whose best lowering is slower.

#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstdio>
#include <limits>
#include <map>
#include <string>
#include <vector>

namespace {

constexpr double kNoise = 1.05;  // so much slower than `alone` is not told

struct Case {
  double alone = 0;
  std::map<std::string, double> lowerings;
};

class Reporter final : public benchmark::ConsoleReporter {
 public:
  void ReportRuns(const std::vector<Run>& runs) override {
    ConsoleReporter::ReportRuns(runs);
    for (const auto& run : runs) {
      if (run.error_occurred || run.run_type != Run::RT_Iteration) continue;
      const auto& name = run.run_name.function_name;
      const auto slash = name.rfind('/');
      const auto way = name.substr(slash + 1);
      auto& found = cases_[name.substr(0, slash)];
      auto& least = way == "alone" ? found.alone : found.lowerings.try_emplace(way, std::numeric_limits<double>::infinity()).first->second;
      const auto taken = run.GetAdjustedRealTime();
      least = least == 0 ? taken : std::min(least, taken);
    }
  }

  /// Worst first.
  void print_slower() const {
    std::vector<std::pair<double, std::string>> slower;
    std::size_t compared = 0;
    for (const auto& [name, one] : cases_) {
      if (one.alone == 0 || one.lowerings.empty()) continue;
      ++compared;
      const auto best = std::min_element(one.lowerings.begin(), one.lowerings.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
      if (best->second > kNoise * one.alone) slower.emplace_back(best->second / one.alone, name + ": " + best->first);
    }
    std::sort(slower.rbegin(), slower.rend());
    std::printf("\nof %zu cases %zu have no lowering as fast as alone\n", compared, slower.size());
    for (const auto& [ratio, name] : slower) std::printf("  SLOWER %.2f times as long as alone: %s\n", ratio, name.c_str());
    for (const auto& [name, one] : cases_)
      for (const auto& [way, taken] : one.lowerings)
        if (one.alone > 0 && taken > 2 * one.alone) std::printf("  a lowering that takes %.1f times as long as alone: %s/%s\n", taken / one.alone, name.c_str(), way.c_str());
  }

 private:
  std::map<std::string, Case> cases_;
};

}  // namespace

int main(int count, char** arguments) {
  benchmark::Initialize(&count, arguments);
  if (benchmark::ReportUnrecognizedArguments(count, arguments)) return 1;
  Reporter reporter;
  benchmark::RunSpecifiedBenchmarks(&reporter);
  reporter.print_slower();
  return 0;
}
