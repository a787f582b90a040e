#pragma once

#include <cstdint>
#include <string>
#include <variant>

namespace hfta::tune {

/// What a parameter can be: nothing, a boolean, a whole number, a number, or a text.
using Value = std::variant<std::monostate, bool, std::int64_t, double, std::string>;

/// As Python compares: `1`, `1.0` and `true` are equal, `"1"` is not.
bool same(const Value& a, const Value& b);
/// As Python's `json.dumps` writes it: `"adam"`, `1`, `0.1`, `1e-05`, `true`, `null`, `NaN`, `Infinity`.
/// @throws InvalidArgument for a text that is no UTF-8.
std::string to_json(const Value& value);
/// For people: as `to_json`, texts without quotes, whole numbers without `.0`.
std::string to_text(const Value& value);

}  // namespace hfta::tune
