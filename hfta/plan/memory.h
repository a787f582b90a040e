#pragma once

#include <cstdint>
#include <string>

#include "hfta/plan/plan.h"

namespace hfta::plan {

/// What an array needs, in bytes, whatever the plan.
struct MemoryProfile {
  std::int64_t lanes = 1;
  std::int64_t state_bytes_per_lane = 0;       ///< Parameters, buffers and optimizer state of one lane.
  std::int64_t gradient_bytes_per_lane = 0;    ///< Gradients of one lane: live only while its group is at work.
  std::int64_t activation_bytes_per_lane = 0;  ///< What one model's step holds at its peak besides state and gradients.
};

/// How much more than the sum of its parts a step takes: rounding to pages, workspaces of kernels.
inline constexpr double kActivationFactor = 1.2;

/// Peak bytes of a training step: `lanes state + 1.2 workers width (activations + gradients)`.
std::int64_t peak_bytes(const MemoryProfile& profile, const Plan& plan);

/// The same kept between steps: gradients of all lanes stay where gradients are accumulated over calls.
std::int64_t peak_bytes_accumulating(const MemoryProfile& profile, const Plan& plan);

/// "1.4 GiB", "12.0 MiB", "640 bytes".
std::string readable_bytes(std::int64_t bytes);

}  // namespace hfta::plan
