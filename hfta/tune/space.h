#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "hfta/tune/distribution.h"
#include "hfta/tune/trial.h"

namespace hfta::tune {

/// Holds where an earlier parameter took one of some values.
struct Condition {
  std::string parameter;
  std::vector<Value> values;
};

/// A parameter of a space. Several may have one name where their conditions exclude each other.
struct Dimension {
  std::string name;
  Distribution distribution;
  std::optional<Condition> when{};
};

/// What is searched: parameters by name, each with its distribution.
class Space {
 public:
  /// @throws InvalidArgument, one line, for what cannot be searched: no parameter, low > high, a log scale from 0, nan, equal choices,
  /// a condition on what is not an earlier finite parameter.
  explicit Space(std::vector<Dimension> dimensions);

  const std::vector<Dimension>& dimensions() const { return dimensions_; }
  /// Points of the space; nothing when it is continuous (or has more than 2^64).
  std::optional<std::uint64_t> points() const;

  /// Parameters made by choosing an internal number for each dimension whose condition holds, in order.
  Parameters build(const std::function<double(std::size_t dimension)>& choose) const;
  /// Calls `visit` for each point of the grid with these values per dimension, the last dimension fastest, until it returns true.
  /// @returns whether it did.
  bool walk(const std::vector<std::vector<double>>& axes, const std::function<bool(const Parameters&)>& visit) const;
  /// How many points that grid has; nothing for more than 2^64.
  std::optional<std::uint64_t> grid_points(const std::vector<std::vector<double>>& axes) const;

  /// Equal for equal points and only for them; nothing for parameters that lie outside of the space.
  std::optional<std::string> key(const Parameters& parameters) const;

  /// What is kept in the study, and back.
  std::string to_json() const;
  static Space from_json(const std::string& text);

 private:
  bool holds(const Dimension& dimension, const Parameters& parameters) const;
  Parameter parameter(std::size_t dimension, double internal) const;
  bool walk_from(std::size_t dimension, Parameters& parameters, const std::vector<std::vector<double>>& axes,
                 const std::function<bool(const Parameters&)>& visit) const;
  std::optional<std::uint64_t> count_from(std::size_t dimension, Parameters& parameters,
                                          const std::function<std::optional<std::uint64_t>(std::size_t)>& size,
                                          const std::function<double(std::size_t, std::uint64_t)>& at) const;

  std::vector<Dimension> dimensions_;
  std::vector<Distribution> written_;  // as stored: choices of one name joined, since Optuna wants one list per name
  std::vector<char> decides_;          // whether a condition asks for this dimension
};

}  // namespace hfta::tune
