#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "hfta/tune/distribution.h"

namespace hfta::tune {

/// A parameter of a trial: its value as Optuna stores it, with what it was drawn from.
struct Parameter {
  std::string name;
  Distribution distribution;
  double internal = 0;  ///< The number; for a choice its index.

  Value value() const { return tune::value(distribution, internal); }
  bool operator==(const Parameter&) const = default;
};

/// Parameters in the order in which they were drawn.
using Parameters = std::vector<Parameter>;

/// The parameter of that name; null when there is none.
const Parameter* find(const Parameters& parameters, std::string_view name);

/// Optuna's five states.
enum class TrialState {
  Running,
  Complete,  ///< Has its values.
  Pruned,    ///< Stopped early.
  Fail,      ///< Raised, was killed, or ended with NaN.
  Waiting,   ///< Put in the queue, not begun.
};

/// Optuna's name: "RUNNING". @throws InvalidArgument for one that is none.
std::string_view to_text(TrialState state);
TrialState trial_state(std::string_view text);
inline bool is_finished(TrialState state) { return state != TrialState::Running && state != TrialState::Waiting; }

using Time = std::chrono::time_point<std::chrono::system_clock, std::chrono::microseconds>;

/// A trial as it stands in the study: plain data.
struct Trial {
  std::int64_t number = 0;
  TrialState state = TrialState::Running;
  Parameters parameters{};
  std::vector<double> values{};                           ///< One per direction; empty until complete.
  std::map<std::int64_t, double> intermediate{};          ///< Step -> value, NaN and infinities included.
  std::map<std::string, std::string> user_attributes{};   ///< Key -> JSON.
  std::map<std::string, std::string> system_attributes{};
  std::optional<Time> started{}, completed{};
};

enum class Direction { Minimize, Maximize };

/// Optuna's name: "MINIMIZE". @throws InvalidArgument for one that is none.
std::string_view to_text(Direction direction);
Direction direction(std::string_view text);

/// The complete trial with the best value, the earliest of equals; nothing when none is complete (an empty study, one that only gave NaN).
/// Infinities count as values, as in Optuna.
std::optional<Trial> best(std::span<const Trial> trials, Direction direction);

/// Names of all parameters, in the order in which they first appear: the columns of a table of trials.
std::vector<std::string> parameter_names(std::span<const Trial> trials);

}  // namespace hfta::tune
