#include "hfta/tune/trial.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "hfta/base/error.h"

namespace hfta::tune {
namespace {

constexpr std::array<std::string_view, 5> kStates{"RUNNING", "COMPLETE", "PRUNED", "FAIL", "WAITING"};
constexpr std::array<std::string_view, 2> kDirections{"MINIMIZE", "MAXIMIZE"};

template <std::size_t n>
std::size_t index_of(const std::array<std::string_view, n>& names, std::string_view text, std::string_view what) {
  const auto at = std::find(names.begin(), names.end(), text);
  std::string known;
  if (at == names.end())
    for (const auto name : names) (known += known.empty() ? "" : ", ") += name;
  HFTA_CHECK(at != names.end(), "tune::Study: expected a ", what, " of ", known, ", got ", text);
  return static_cast<std::size_t>(at - names.begin());
}

}  // namespace

const Parameter* find(const Parameters& parameters, std::string_view name) {
  const auto at = std::find_if(parameters.begin(), parameters.end(), [name](const Parameter& p) { return p.name == name; });
  return at == parameters.end() ? nullptr : &*at;
}

std::string_view to_text(TrialState state) { return kStates[static_cast<std::size_t>(state)]; }
TrialState trial_state(std::string_view text) { return static_cast<TrialState>(index_of(kStates, text, "state")); }
std::string_view to_text(Direction direction) { return kDirections[static_cast<std::size_t>(direction)]; }
Direction direction(std::string_view text) { return static_cast<Direction>(index_of(kDirections, text, "direction")); }

std::optional<Trial> best(std::span<const Trial> trials, Direction direction) {
  const Trial* found = nullptr;
  for (const auto& trial : trials) {
    if (trial.state != TrialState::Complete || trial.values.size() != 1 || std::isnan(trial.values[0])) continue;
    const double value = trial.values[0];
    if (!found || (direction == Direction::Minimize ? value < found->values[0] : value > found->values[0])) found = &trial;
  }
  return found ? std::optional(*found) : std::nullopt;
}

std::vector<std::string> parameter_names(std::span<const Trial> trials) {
  std::vector<std::string> names;
  for (const auto& trial : trials)
    for (const auto& parameter : trial.parameters)
      if (std::find(names.begin(), names.end(), parameter.name) == names.end()) names.push_back(parameter.name);
  return names;
}

}  // namespace hfta::tune
