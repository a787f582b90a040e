#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

namespace hfta::optim {

/// A hyper-parameter: one number for all lanes, or one per lane.
class PerLane {
 public:
  PerLane(double value) : values_{value} {}                                            // NOLINT(google-explicit-constructor)
  PerLane(std::vector<double> values) : values_(std::move(values)), per_lane_(true) {}  // NOLINT(google-explicit-constructor)
  PerLane(std::initializer_list<double> values) : values_(values), per_lane_(true) {}

  bool is_per_lane() const { return per_lane_; }
  /// The number itself, or the list.
  const std::vector<double>& values() const { return values_; }
  /// One entry per lane. @throws InvalidArgument naming `what` when the count is not `lanes`.
  std::vector<double> of_lanes(std::int64_t lanes, const std::string& what) const;
  /// What a lane that is added later has: the one number, or NaN where there is a list (it must be set before it is used).
  double of_new_lane() const;

 private:
  std::vector<double> values_;
  bool per_lane_ = false;
};

}  // namespace hfta::optim
