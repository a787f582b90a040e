#include "hfta/plan/cost.h"

#include <algorithm>
#include <cmath>

namespace hfta::plan {

double predicted_ms(const StepProfile& profile, const Plan& plan, const CoreRates& rates) {
  const auto fit = fitted(plan, profile.lanes);
  const double lanes = static_cast<double>(plan.recorded ? fit.width : 1), nodes = std::max(1.0, static_cast<double>(profile.nodes));
  const double units = std::ceil(static_cast<double>(profile.lanes) / lanes);
  const double rounds = std::ceil(units / static_cast<double>(fit.workers));
  const double working_set = std::max(1.0, lanes * (profile.made_bytes + profile.state_bytes));
  const double slower = 1 + rates.slow * std::max(0.0, std::log2(working_set / rates.cache_bytes));
  const double kernels = slower * lanes * 1e3 * (profile.flops / rates.flops + (profile.moved_bytes + 2 * profile.state_bytes) / rates.bytes);
  const double threads = static_cast<double>(fit.intra_op_threads);
  const double shared = threads > 1 ? std::min(1.0, 1e3 * kernels / nodes / rates.shared_us) : 0.0;
  const double calls = 1e-3 * nodes * (plan.recorded ? rates.node_us + rates.lane_node_us * (lanes - 1) : rates.plain_node_us);
  return rounds * (calls + kernels / (1 + shared * rates.thread_gain * (threads - 1)));
}

}  // namespace hfta::plan
