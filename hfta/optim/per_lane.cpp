#include "hfta/optim/per_lane.h"

#include <limits>

#include "hfta/base/error.h"

namespace hfta::optim {

std::vector<double> PerLane::of_lanes(std::int64_t lanes, const std::string& what) const {
  if (!per_lane_) return std::vector<double>(static_cast<std::size_t>(lanes), values_[0]);
  HFTA_CHECK(static_cast<std::int64_t>(values_.size()) == lanes, what, ": expected one value or ", lanes, " (one per lane), got ", values_.size());
  return values_;
}

double PerLane::of_new_lane() const { return per_lane_ ? std::numeric_limits<double>::quiet_NaN() : values_[0]; }

}  // namespace hfta::optim
