#pragma once

#include <string>

#include "hfta/tune/study.h"

namespace hfta::tune {

/// The study as one JSON document: `{"format": 1, "study", "directions", "best", "user_attributes", "trials": [{"number", "state", "values",
/// "parameters", "intermediate_values": {step: value}, "user_attributes", "system_attributes", "started", "completed"}]}`.
/// Valid JSON: a number that is not finite is the text "NaN", "Infinity" or "-Infinity", which `float()` and `Number()` read.
/// "best" is the number of the best trial, null where there is none. Times are UTC, ISO 8601.
std::string export_json(const Study& study);

}  // namespace hfta::tune
