#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "hfta/tune/value.h"

namespace hfta::tune {

/// One of some values; a chosen one is kept as its index.
struct CategoricalDistribution {
  std::vector<Value> choices{};
  bool operator==(const CategoricalDistribution&) const = default;
};

/// A number between two bounds, both included.
struct FloatDistribution {
  double low = 0, high = 0;
  bool log = false;              ///< Even on a log scale; the bounds are the values, not exponents.
  std::optional<double> step{};  ///< Only `low + k * step`.
  bool operator==(const FloatDistribution&) const = default;
};

/// A whole number between two bounds, both included.
struct IntDistribution {
  std::int64_t low = 0, high = 0;
  bool log = false;
  std::int64_t step = 1;
  bool operator==(const IntDistribution&) const = default;
};

/// What a parameter's value is drawn from: Optuna's three kinds.
using Distribution = std::variant<CategoricalDistribution, FloatDistribution, IntDistribution>;

inline Distribution choice(std::vector<Value> choices) { return CategoricalDistribution{std::move(choices)}; }
inline Distribution uniform(double low, double high) { return FloatDistribution{.low = low, .high = high}; }
inline Distribution loguniform(double low, double high) { return FloatDistribution{.low = low, .high = high, .log = true}; }
inline Distribution quniform(double low, double high, double step) { return FloatDistribution{.low = low, .high = high, .step = step}; }
inline Distribution integer(std::int64_t low, std::int64_t high, std::int64_t step = 1) { return IntDistribution{.low = low, .high = high, .step = step}; }
inline Distribution logint(std::int64_t low, std::int64_t high) { return IntDistribution{.low = low, .high = high, .log = true}; }

/// The distribution with `high` lowered to the last value that a step reaches, as Optuna does.
/// @throws InvalidArgument naming the parameter when it holds no value: low > high, a log scale from 0, nan, equal choices.
Distribution validated(const Distribution& distribution, const std::string& parameter);

/// For people: `uniform(-10, 10)`, `loguniform(1e-05, 0.1)`, `quniform(0, 1, 0.25)`, `int(1, 8)`, `int(1, 8, log)`, `choice("adam", 1)`.
std::string describe(const Distribution& distribution);
/// Exactly what `optuna.distributions.distribution_to_json` writes.
std::string to_json(const Distribution& distribution);
/// Reads that, the names of older Optuna releases included. @throws InvalidArgument for anything else.
Distribution distribution_from_json(const std::string& text);

/// The value that Optuna's internal number stands for. @throws InvalidArgument for an index that is no choice.
Value value(const Distribution& distribution, double internal);
/// The way back; nothing when the value lies outside.
std::optional<double> internal(const Distribution& distribution, const Value& value);
bool contains(const Distribution& distribution, double internal);

/// How many values there are; nothing for a continuous range.
std::optional<std::uint64_t> points(const Distribution& distribution);
/// Internal number of value `index` of those, in rising order (choices: as given).
double point(const Distribution& distribution, std::uint64_t index);
/// Which of those values the number is; nothing when outside or continuous.
std::optional<std::uint64_t> point_index(const Distribution& distribution, double internal);

}  // namespace hfta::tune
