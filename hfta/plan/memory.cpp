#include "hfta/plan/memory.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>

namespace hfta::plan {
namespace {

std::int64_t at_work(const MemoryProfile& profile, const Plan& plan, std::int64_t bytes_per_lane) {
  const std::int64_t lanes = std::min(plan.width * plan.workers, profile.lanes);
  return std::llround(kActivationFactor * static_cast<double>(lanes) * static_cast<double>(bytes_per_lane));
}

}  // namespace

std::int64_t peak_bytes(const MemoryProfile& profile, const Plan& plan) {
  return profile.lanes * profile.state_bytes_per_lane +
         at_work(profile, plan, profile.activation_bytes_per_lane + profile.gradient_bytes_per_lane);
}

std::int64_t peak_bytes_accumulating(const MemoryProfile& profile, const Plan& plan) {
  return profile.lanes * (profile.state_bytes_per_lane + profile.gradient_bytes_per_lane) +
         at_work(profile, plan, profile.activation_bytes_per_lane + profile.gradient_bytes_per_lane);
}

std::string readable_bytes(std::int64_t bytes) {
  constexpr std::array kUnits{"KiB", "MiB", "GiB", "TiB"};
  if (bytes < 1024) return std::to_string(bytes) + " bytes";
  double value = static_cast<double>(bytes) / 1024;
  std::size_t unit = 0;
  for (; value >= 1024 && unit + 1 < kUnits.size(); ++unit) value /= 1024;
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.1f %s", value, kUnits[unit]);
  return text.data();
}

}  // namespace hfta::plan
