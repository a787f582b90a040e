#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace hfta::plan {

/// The middle value (mean of the middle two); infinite for no values.
double median(std::vector<double> values);
/// The middle of measurements of milliseconds: those given, and as many more as they take to add up to 15 ms, 10 in all and at least 1.
double middle_ms(const std::function<double()>& measure, std::vector<double> measured = {});

/// Something to time, under a name for people.
struct Variant {
  std::string name;                       ///< "alone", "array".
  std::function<void()> run;              ///< One repeat: all its work is done when it returns.
};

struct ThroughputOptions {
  std::int64_t repeats = 9;               ///< Interleaved: every variant once, then again.
  std::int64_t warm_up = 1;               ///< Repeats before those that count.
  double budget_seconds = 60;             ///< Ends after at least 3 repeats.
  std::function<double()> clock{};        ///< Seconds; the process's steady clock where empty.
};

struct VariantTime {
  std::string name;
  std::vector<double> ms{};               ///< Of each repeat.

  double median_ms() const { return median(ms); }
  double spread() const;                  ///< (upper quartile - lower quartile) / median.
};

/// Times of variants that ran in turn on the same machine at the same time.
struct Throughput {
  std::vector<VariantTime> variants{};

  /// How many times as fast `name` is as `base`: median over the repeats of the ratio within a repeat, so that a slow moment of
  /// the machine cancels. @throws InvalidArgument for an unknown name, listing the known ones.
  double ratio(const std::string& name, const std::string& base) const;
  const VariantTime& variant(const std::string& name) const;
  /// "array 4.1 ms, alone 12.3 ms (3.0 times as fast; 9 repeats, spread 4 %)", against the first variant.
  std::string describe() const;
};

/// Runs the variants in turn. @throws InvalidArgument for none, or two of one name.
Throughput compare(const std::vector<Variant>& variants, const ThroughputOptions& options = {});

}  // namespace hfta::plan
