#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace hfta::train {

/// Names and values of an epoch: "loss" (mean of the training loss over the epoch's items) and the metrics.
using Metrics = std::map<std::string, double>;

enum class LaneState {
  Running,
  Finished,  ///< Trained all epochs.
  Stopped,   ///< Stopped early, by request or by the early stop rule.
  Failed,    ///< Its loss became NaN.
};

/// "running", "finished", "stopped", "failed".
const char* name_of(LaneState state);
/// The way back. @throws InvalidArgument listing the known names.
LaneState lane_state_of(const std::string& name);

/// What is kept of a lane, by the index it began with, also when its weights are gone.
struct LaneRecord {
  std::int64_t id = 0;
  LaneState state = LaneState::Running;
  std::string reason{};            ///< Why it stopped or failed.
  std::vector<Metrics> epochs{};   ///< One entry per epoch that it trained in, the one in which it failed included.

  bool is_running() const { return state == LaneState::Running; }
};

/// Stops a lane whose metric has not got better for `patience` epochs. NaN is never better.
struct EarlyStop {
  std::string metric = "loss";
  std::int64_t patience = 5;
  double least_change = 0;  ///< Less than this is no improvement.
  bool maximize = false;
};

/// Whether the rule stops the lane now; depends on its epochs alone. Epochs without the metric do not count.
bool stops(const EarlyStop& rule, const LaneRecord& lane);

}  // namespace hfta::train
