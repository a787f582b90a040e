#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

namespace hfta::cli {

/// What a study file can write for an option: a scalar, or a list of whole numbers, numbers or texts.
using Value = std::variant<bool, std::int64_t, double, std::string, std::vector<std::int64_t>, std::vector<double>, std::vector<std::string>>;

/// As TOML writes it: `true`, `0.1`, `"adam"`, `[16, 32]`.
std::string written(const Value& value);
/// The shortest text that reads back as the same number: `0.001`, `1e-05`.
std::string written(double number);

/// ` (did you mean 'trials'?)` when one of the names is near, else nothing.
std::string suggestion(const std::string& name, const std::vector<std::string>& names);

}  // namespace hfta::cli
