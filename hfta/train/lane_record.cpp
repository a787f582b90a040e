#include "hfta/train/lane_record.h"

#include <array>
#include <limits>
#include <string_view>
#include <utility>

#include "hfta/base/error.h"

namespace hfta::train {
namespace {

constexpr std::array<std::pair<LaneState, const char*>, 4> kNames{{{LaneState::Running, "running"},
                                                                  {LaneState::Finished, "finished"},
                                                                  {LaneState::Stopped, "stopped"},
                                                                  {LaneState::Failed, "failed"}}};

}  // namespace

const char* name_of(LaneState state) {
  for (const auto& [value, name] : kNames)
    if (value == state) return name;
  return "unknown";
}

LaneState lane_state_of(const std::string& name) {
  for (const auto& [value, known] : kNames)
    if (known == name) return value;
  throw InvalidArgument("train::LaneState: expected one of running, finished, stopped, failed, got \"" + name + "\"");
}

bool stops(const EarlyStop& rule, const LaneRecord& lane) {
  double best = -std::numeric_limits<double>::infinity();
  std::int64_t waiting = 0;
  bool first = true;
  for (const auto& epoch : lane.epochs) {
    const auto found = epoch.find(rule.metric);
    if (found == epoch.end()) continue;
    const double value = rule.maximize ? found->second : -found->second;
    const bool better = first ? value == value : value > best + rule.least_change;
    if (better) best = value, first = false, waiting = 0;
    else ++waiting;
  }
  return waiting >= rule.patience;
}

}  // namespace hfta::train
