#pragma once

#include <optional>
#include <string>
#include <vector>

#include "hfta/tune/tuner.h"

namespace hfta::tune {

/// Which trials train together and how, kept in the study so that a resumed sweep builds the same arrays and runs them by the same plans.
class Ledger {
 public:
  explicit Ledger(Study& study);

  /// Trial numbers by lane, one entry per array so far; an array keeps trials that have ended.
  const std::vector<std::vector<std::int64_t>>& arrays() const { return arrays_; }
  /// Adds arrays, all or none.
  void add(const std::vector<std::vector<std::int64_t>>& arrays);
  /// Whether a trial has an array.
  bool has(std::int64_t trial) const;

  std::optional<ArrayPlan> plan(std::size_t array) const;
  void set_plan(std::size_t array, const ArrayPlan& plan);

 private:
  Study& study_;
  std::vector<std::vector<std::int64_t>> arrays_;
};

/// The plans of a study's arrays, those that have one.
std::vector<std::pair<std::vector<std::int64_t>, ArrayPlan>> array_plans(const Study& study);

}  // namespace hfta::tune
