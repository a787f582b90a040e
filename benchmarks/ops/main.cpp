// Runs the benchmarks, in turn and several times each, tells the least time of every lowering beside that of `alone`, and at the end the
// cases in which no lowering is as fast.

#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstdio>
#include <limits>
#include <map>
#include <string>
#include <vector>

namespace {

constexpr double kNoise = 1.1;  // so many times as long as `alone` is not told

struct Case {
  double alone = 0;
  std::map<std::string, double> lowerings;
};

class Reporter final : public benchmark::BenchmarkReporter {
 public:
  bool ReportContext(const Context&) override { return true; }

  void ReportRuns(const std::vector<Run>& runs) override {
    double least = std::numeric_limits<double>::infinity();
    for (const auto& run : runs)
      if (run.run_type == Run::RT_Iteration) least = std::min(least, run.GetAdjustedRealTime());
    if (runs.empty() || runs[0].error_occurred || least == std::numeric_limits<double>::infinity()) return;
    const auto& name = runs[0].run_name.function_name;
    const auto slash = name.rfind('/');
    const auto way = name.substr(slash + 1);
    auto& found = cases_[name.substr(0, slash)];
    (way == "alone" ? found.alone : found.lowerings[way]) = least;
  }

  /// Every case, then those that are slower, worst first. Benchmarks end in any order, so nothing is told before.
  void Finalize() override {
    std::vector<std::pair<double, std::string>> slower;
    for (const auto& [name, one] : cases_) {
      std::printf("%s: alone %.1f us\n", name.c_str(), one.alone);
      double best = std::numeric_limits<double>::infinity();
      std::string best_name;
      for (const auto& [way, us] : one.lowerings) {
        std::printf("  %-12s %10.1f us  %6.2f of alone%s\n", way.c_str(), us, us / one.alone, us > kNoise * one.alone ? "  SLOWER" : "");
        if (us < best) best = us, best_name = way;
      }
      if (!best_name.empty() && best > kNoise * one.alone) slower.emplace_back(best / one.alone, name + "/" + best_name);
    }
    std::sort(slower.rbegin(), slower.rend());
    std::printf("\nIn %zu of %zu cases no lowering is as fast as the lanes alone, one after another:\n", slower.size(), cases_.size());
    for (const auto& [ratio, name] : slower) std::printf("  %5.2f  %s\n", ratio, name.c_str());
  }

 private:
  std::map<std::string, Case> cases_;
};

}  // namespace

int main(int count, char** arguments) {
  // Defaults come before the given options, which prevail.
  std::vector<std::string> defaults{"--benchmark_min_time=0.02", "--benchmark_repetitions=3", "--benchmark_enable_random_interleaving=true"};
  std::vector<char*> all{arguments[0]};
  for (auto& option : defaults) all.push_back(option.data());
  all.insert(all.end(), arguments + 1, arguments + count);
  int all_count = static_cast<int>(all.size());
  benchmark::Initialize(&all_count, all.data());
  if (benchmark::ReportUnrecognizedArguments(all_count, all.data())) return 1;
  Reporter reporter;
  benchmark::RunSpecifiedBenchmarks(&reporter);
  return 0;
}
