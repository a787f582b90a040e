#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "hfta/tune/value.h"

// JSON as Python's `json` module writes and reads it: the study's file is shared with Optuna. For sources only.
namespace hfta::tune {

using Json = nlohmann::ordered_json;

/// As Python's `json.dumps`: `{"a": 1, "b": [0.1, 1e-05, NaN]}`, ASCII only.
std::string python_json(const Json& json);
/// The same for people's files: indented by two, and valid JSON: NaN and infinities become the texts "NaN", "Infinity", "-Infinity".
std::string strict_json(const Json& json);
/// Reads what `json.dumps` wrote. The bare words NaN, Infinity and -Infinity, which are no JSON, become numbers.
/// @throws InvalidArgument naming `what` for anything else that is no JSON.
Json parse_json(std::string_view text, const std::string& what);

Json json_of(const Value& value);
/// @throws InvalidArgument naming `what` for a list or an object.
Value value_of(const Json& json, const std::string& what);

}  // namespace hfta::tune
