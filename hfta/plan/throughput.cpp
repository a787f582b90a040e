#include "hfta/plan/throughput.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <set>

#include "hfta/base/error.h"
#include "hfta/plan/measure.h"

namespace hfta::plan {
namespace {

constexpr std::int64_t kLeastRepeats = 3;

}  // namespace

double median(std::vector<double> values) {
  if (values.empty()) return std::numeric_limits<double>::infinity();
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  if (values.size() % 2 == 1) return *middle;
  return (*std::max_element(values.begin(), middle) + *middle) / 2;
}

double middle_ms(const std::function<double()>& measure, std::vector<double> measured) {
  constexpr double kEnoughMs = 15;  // A shorter measurement is mostly the clock and the scheduler.
  constexpr std::size_t kMost = 10;
  double total = std::accumulate(measured.begin(), measured.end(), 0.0);
  while (measured.empty() || (total < kEnoughMs && measured.size() < kMost)) {
    measured.push_back(measure());
    total += measured.back();
  }
  return median(std::move(measured));
}

double VariantTime::spread() const {
  if (ms.empty()) return 0;
  auto sorted = ms;
  std::sort(sorted.begin(), sorted.end());
  return (sorted[sorted.size() * 3 / 4] - sorted[sorted.size() / 4]) / median_ms();
}

const VariantTime& Throughput::variant(const std::string& name) const {
  std::string known;
  for (const auto& variant : variants) {
    if (variant.name == name) return variant;
    known += (known.empty() ? "" : ", ") + variant.name;
  }
  throw InvalidArgument("plan::Throughput: expected one of " + known + ", got \"" + name + "\"");
}

double Throughput::ratio(const std::string& name, const std::string& base) const {
  const auto &fast = variant(name).ms, &slow = variant(base).ms;
  std::vector<double> ratios;
  for (std::size_t i = 0; i < std::min(fast.size(), slow.size()); ++i) ratios.push_back(slow[i] / fast[i]);
  return median(ratios);
}

std::string Throughput::describe() const {
  std::string text;
  double widest = 0;
  for (const auto& variant : variants) {
    const bool first = &variant == &variants[0];
    text += (first ? "" : ", ") + variant.name + " " + short_number(variant.median_ms()) + " ms";
    if (!first) text += " (" + short_number(ratio(variant.name, variants[0].name)) + " times as fast)";
    widest = std::max(widest, variant.spread());
  }
  const auto repeats = variants.empty() ? 0 : variants[0].ms.size();
  return text + "; medians of " + std::to_string(repeats) + " interleaved repeats, spread up to " + short_number(100 * widest, "%.0f") + " %";
}

Throughput compare(const std::vector<Variant>& variants, const ThroughputOptions& options) {
  HFTA_CHECK(!variants.empty(), "plan::compare: expected at least 1 variant, got none");
  std::set<std::string> names;
  for (const auto& variant : variants)
    HFTA_CHECK(names.insert(variant.name).second, "plan::compare: expected different names, got \"", variant.name, "\" twice");
  const auto clock = options.clock ? options.clock : steady_seconds;
  const double start = clock();
  Throughput result;
  for (const auto& variant : variants) result.variants.push_back({variant.name});
  for (std::int64_t repeat = -options.warm_up; repeat < options.repeats; ++repeat) {
    if (repeat >= kLeastRepeats && clock() - start >= options.budget_seconds) break;
    for (std::size_t i = 0; i < variants.size(); ++i) {
      const double before = clock();
      variants[i].run();
      if (repeat >= 0) result.variants[i].ms.push_back((clock() - before) * 1e3);
    }
  }
  return result;
}

}  // namespace hfta::plan
