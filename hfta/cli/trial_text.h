#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "hfta/tune/trial.h"

// How trials are written for people and for machines. For sources only.
namespace hfta::cli {

/// "complete", "running", "pruned", "failed", "waiting".
std::string state_word(tune::TrialState state);
/// The value for people: four significant digits for a number drawn from a range, else as it is.
std::vector<std::pair<std::string, std::string>> parameter_texts(const tune::Trial& trial);
/// The trial as JSON; `weights` is null where no such file is.
nlohmann::ordered_json trial_json(const tune::Trial& trial, const std::string& weights);
/// Text of the user attribute; empty when there is none.
std::string attribute(const tune::Trial& trial, const std::string& key);
/// The trial's value; with none its last intermediate one, else nan.
double value_of(const tune::Trial& trial);

}  // namespace hfta::cli
