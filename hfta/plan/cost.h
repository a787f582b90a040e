#pragma once

#include <cstdint>

#include "hfta/plan/plan.h"

namespace hfta::plan {

/// What a training step of one lane asks of the machine, taken from its recorded program; the update is not in it.
struct StepProfile {
  std::int64_t lanes = 1;
  std::int64_t nodes = 0;    ///< Operators called.
  double flops = 0;          ///< Of products and convolutions.
  double moved_bytes = 0;    ///< Read and written by the operators.
  double made_bytes = 0;     ///< Of what they make.
  double state_bytes = 0;    ///< Weights, buffers and optimizer state.

  bool operator==(const StepProfile&) const = default;
};

/// What a core does, roughly, fitted to the rows of `tests/plan/timings.json`: only the order of plans depends on it, and the search
/// calibrates it by what it measures.
struct CoreRates {
  double node_us = 1.7;                 ///< Calling an operator of a recorded step, without its kernel.
  double lane_node_us = 0.17;           ///< A further lane in an operator.
  double plain_node_us = 8;             ///< Calling one in a plain step, with autograd.
  double flops = 66e9;                  ///< A second, in products.
  double bytes = 56e9;                  ///< A second, read or written by operators, within caches.
  double cache_bytes = 10 * (1 << 20);  ///< What a group makes and updates from which on its kernels slow down.
  double slow = 0.035;                  ///< By how much, for each doubling.
  double thread_gain = 0.3;             ///< What a further intra-op thread adds, where there is enough to share.
  double shared_us = 34;                ///< A kernel's time from which on threads share it.
};

/// Milliseconds of a step of all lanes by the plan. Groups run in rounds on the workers; a group costs its operators' calls, its products
/// and what it moves, the more the less of it fits into caches: so the width has an inside optimum.
double predicted_ms(const StepProfile& profile, const Plan& plan, const CoreRates& rates = {});

}  // namespace hfta::plan
