#include "hfta/tune/space.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "hfta/base/error.h"
#include "hfta/tune/json.h"

namespace hfta::tune {
namespace {

bool among(const Value& value, const std::vector<Value>& values) {
  return std::any_of(values.begin(), values.end(), [&](const Value& v) { return same(v, value); });
}

// Two dimensions of one name are fine where one earlier parameter decides between them.
bool exclude_each_other(const Dimension& a, const Dimension& b) {
  if (!a.when || !b.when || a.when->parameter != b.when->parameter) return false;
  return std::none_of(a.when->values.begin(), a.when->values.end(), [&](const Value& v) { return among(v, b.when->values); });
}

// Optuna refuses a second kind or scale under one name.
bool same_kind(const Distribution& a, const Distribution& b) {
  if (a.index() != b.index()) return false;
  if (const auto* f = std::get_if<FloatDistribution>(&a)) return f->log == std::get<FloatDistribution>(b).log;
  if (const auto* i = std::get_if<IntDistribution>(&a)) return i->log == std::get<IntDistribution>(b).log;
  return true;
}

void check_condition(const Dimension& dimension, const std::vector<Dimension>& earlier) {
  const auto& when = *dimension.when;
  const auto is_meant = [&](const Dimension& d) { return d.name == when.parameter; };
  HFTA_CHECK(std::any_of(earlier.begin(), earlier.end(), is_meant), "tune::Space: expected the condition of \"", dimension.name,
             "\" to ask for an earlier parameter, got \"", when.parameter, "\"");
  HFTA_CHECK(!when.values.empty(), "tune::Space: expected at least one value in the condition of \"", dimension.name, "\", got none");
  for (const auto& d : earlier)
    HFTA_CHECK(!is_meant(d) || points(d.distribution), "tune::Space: expected the condition of \"", dimension.name,
               "\" to ask for a parameter with finitely many values, got ", describe(d.distribution));
  for (const auto& value : when.values) {
    const auto has = [&](const Dimension& d) { return is_meant(d) && internal(d.distribution, value).has_value(); };
    HFTA_CHECK(std::any_of(earlier.begin(), earlier.end(), has), "tune::Space: expected values of \"", when.parameter, "\" in the condition of \"",
               dimension.name, "\", got ", to_json(value));
  }
}

std::optional<std::uint64_t> product(std::uint64_t a, std::uint64_t b) {
  std::uint64_t result = 0;
  return __builtin_mul_overflow(a, b, &result) ? std::nullopt : std::optional(result);
}

}  // namespace

Space::Space(std::vector<Dimension> dimensions) {
  HFTA_CHECK(!dimensions.empty(), "tune::Space: expected at least one parameter, got none");
  for (auto& dimension : dimensions) {
    HFTA_CHECK(!dimension.name.empty(), "tune::Space: expected a name for every parameter, got an empty one");
    dimension.distribution = validated(dimension.distribution, dimension.name);
    if (dimension.when) check_condition(dimension, dimensions_);
    for (const auto& other : dimensions_) {
      if (other.name != dimension.name) continue;
      HFTA_CHECK(exclude_each_other(other, dimension), "tune::Space: expected one definition of \"", dimension.name, "\", got ",
                 describe(other.distribution), " and ", describe(dimension.distribution));
      HFTA_CHECK(same_kind(other.distribution, dimension.distribution), "tune::Space: expected definitions of \"", dimension.name,
                 "\" of one kind, got ", describe(other.distribution), " and ", describe(dimension.distribution));
    }
    dimensions_.push_back(std::move(dimension));
  }
  for (const auto& dimension : dimensions_) {
    auto written = dimension.distribution;
    if (auto* joined = std::get_if<CategoricalDistribution>(&written)) {
      joined->choices.clear();
      for (const auto& other : dimensions_)
        if (other.name == dimension.name)
          for (const auto& value : std::get<CategoricalDistribution>(other.distribution).choices)
            if (!among(value, joined->choices)) joined->choices.push_back(value);
    }
    written_.push_back(std::move(written));
    decides_.push_back(std::any_of(dimensions_.begin(), dimensions_.end(),
                                   [&](const Dimension& d) { return d.when && d.when->parameter == dimension.name; }));
  }
}

bool Space::holds(const Dimension& dimension, const Parameters& parameters) const {
  if (!dimension.when) return true;
  const auto* asked = find(parameters, dimension.when->parameter);
  return asked && among(asked->value(), dimension.when->values);
}

Parameter Space::parameter(std::size_t dimension, double chosen) const {
  const auto& own = dimensions_[dimension].distribution;
  const auto& written = written_[dimension];
  const bool choice = std::holds_alternative<CategoricalDistribution>(own);
  return {dimensions_[dimension].name, written, choice ? internal(written, value(own, chosen)).value() : chosen};
}

Parameters Space::build(const std::function<double(std::size_t)>& choose) const {
  Parameters parameters;
  for (std::size_t i = 0; i < dimensions_.size(); ++i)
    if (holds(dimensions_[i], parameters)) parameters.push_back(parameter(i, choose(i)));
  return parameters;
}

bool Space::walk_from(std::size_t dimension, Parameters& parameters, const std::vector<std::vector<double>>& axes,
                      const std::function<bool(const Parameters&)>& visit) const {
  if (dimension == dimensions_.size()) return visit(parameters);
  if (!holds(dimensions_[dimension], parameters)) return walk_from(dimension + 1, parameters, axes, visit);
  for (const double chosen : axes[dimension]) {
    parameters.push_back(parameter(dimension, chosen));
    const bool done = walk_from(dimension + 1, parameters, axes, visit);
    parameters.pop_back();
    if (done) return true;
  }
  return false;
}

bool Space::walk(const std::vector<std::vector<double>>& axes, const std::function<bool(const Parameters&)>& visit) const {
  Parameters parameters;
  return walk_from(0, parameters, axes, visit);
}

std::optional<std::uint64_t> Space::count_from(std::size_t dimension, Parameters& parameters,
                                               const std::function<std::optional<std::uint64_t>(std::size_t)>& size,
                                               const std::function<double(std::size_t, std::uint64_t)>& at) const {
  if (dimension == dimensions_.size()) return 1;
  if (!holds(dimensions_[dimension], parameters)) return count_from(dimension + 1, parameters, size, at);
  const auto own = size(dimension);
  if (!own) return std::nullopt;
  if (!decides_[dimension]) {
    const auto rest = count_from(dimension + 1, parameters, size, at);
    return rest ? product(*own, *rest) : std::nullopt;
  }
  std::uint64_t sum = 0;
  for (std::uint64_t i = 0; i < *own; ++i) {
    parameters.push_back(parameter(dimension, at(dimension, i)));
    const auto rest = count_from(dimension + 1, parameters, size, at);
    parameters.pop_back();
    if (!rest || __builtin_add_overflow(sum, *rest, &sum)) return std::nullopt;
  }
  return sum;
}

std::optional<std::uint64_t> Space::points() const {
  Parameters parameters;
  return count_from(
      0, parameters, [this](std::size_t d) { return tune::points(dimensions_[d].distribution); },
      [this](std::size_t d, std::uint64_t i) { return point(dimensions_[d].distribution, i); });
}

std::optional<std::uint64_t> Space::grid_points(const std::vector<std::vector<double>>& axes) const {
  Parameters parameters;
  return count_from(
      0, parameters, [&](std::size_t d) { return std::optional<std::uint64_t>(axes[d].size()); },
      [&](std::size_t d, std::uint64_t i) { return axes[d][i]; });
}

std::optional<std::string> Space::key(const Parameters& parameters) const {
  std::string key;
  std::size_t used = 0;
  for (const auto& dimension : dimensions_) {
    if (!holds(dimension, parameters)) {
      key += '-';
      continue;
    }
    const auto* parameter = find(parameters, dimension.name);
    const auto chosen = parameter ? internal(dimension.distribution, parameter->value()) : std::nullopt;
    if (!chosen) return std::nullopt;
    ++used;
    // A stepped value may be rounded differently elsewhere: its index is not.
    const auto index = point_index(dimension.distribution, *chosen);
    const double exact = index ? static_cast<double>(*index) : *chosen;
    char bytes[sizeof exact];
    std::memcpy(bytes, &exact, sizeof exact);
    (key += '+').append(bytes, sizeof bytes);
  }
  return used == parameters.size() ? std::optional(key) : std::nullopt;
}

std::string Space::to_json() const {
  auto json = Json::array();
  for (const auto& dimension : dimensions_) {
    Json entry{{"name", dimension.name}, {"distribution", parse_json(tune::to_json(dimension.distribution), "tune::Space")}};
    if (dimension.when) {
      entry["when"] = {{"parameter", dimension.when->parameter}, {"values", Json::array()}};
      for (const auto& value : dimension.when->values) entry["when"]["values"].push_back(json_of(value));
    }
    json.push_back(std::move(entry));
  }
  return python_json(json);
}

Space Space::from_json(const std::string& text) {
  std::vector<Dimension> dimensions;
  try {
    for (const auto& entry : parse_json(text, "tune::Space")) {
      Dimension dimension{entry.at("name").get<std::string>(), distribution_from_json(python_json(entry.at("distribution")))};
      if (entry.contains("when")) {
        dimension.when = Condition{entry["when"].at("parameter").get<std::string>(), {}};
        for (const auto& value : entry["when"].at("values")) dimension.when->values.push_back(value_of(value, "tune::Space"));
      }
      dimensions.push_back(std::move(dimension));
    }
  } catch (const nlohmann::json::exception&) {
    throw InvalidArgument(base::message("tune::Space: expected a list of {\"name\": ..., \"distribution\": ...}, got ", text.substr(0, 80)));
  }
  return Space(std::move(dimensions));
}

}  // namespace hfta::tune
