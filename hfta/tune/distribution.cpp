#include "hfta/tune/distribution.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <string_view>

#include "hfta/base/error.h"
#include "hfta/tune/json.h"

namespace hfta::tune {
namespace {

constexpr double kExact = 9007199254740992.0;  // 2^53: whole numbers up to here are exact

template <typename... Cases>
struct Overloaded : Cases... {
  using Cases::operator()...;
};

// Digits behind the point of the shortest decimal that reads back as the number.
int decimals(double number) {
  char buffer[64];
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, number, std::chars_format::scientific).ptr;
  const std::string_view text(buffer, static_cast<std::size_t>(end - buffer));
  const auto e = text.find('e'), dot = text.find('.');
  const int digits = dot == text.npos ? 0 : static_cast<int>(e - dot - 1);
  int exponent = 0;
  const auto* from = text.data() + e + (text[e + 1] == '+' ? 2 : 1);
  std::from_chars(from, end, exponent);
  return std::max(0, digits - exponent);
}

// A range with a step, counted in decimal where that is exact: 0 + 3 * 0.1 is then 0.3, not 0.30000000000000004.
struct Lattice {
  double low, high, step, scale = 1;
  bool exact;

  explicit Lattice(const FloatDistribution& d) : low(d.low), high(d.high), step(*d.step) {
    const int places = std::max({decimals(low), decimals(high), decimals(step)});
    const double s = std::pow(10.0, places);
    exact = places <= 22 && std::abs(low) * s < kExact / 2 && std::abs(high) * s < kExact / 2 && step * s < kExact / 2;
    if (!exact) return;
    scale = s;
    low = std::round(low * s), high = std::round(high * s), step = std::round(step * s);
  }
  double steps() const { return std::floor((high - low) / step + (exact ? 0 : 1e-9)); }
  double at(double k) const { return (low + k * step) / scale; }
};

std::string number(double n) { return to_text(Value(n)); }

void check_range(double low, double high, bool log, const std::string& parameter, const std::string& text) {
  HFTA_CHECK(std::isfinite(low) && std::isfinite(high), "tune::Space: expected finite bounds for \"", parameter, "\", got ", text);
  HFTA_CHECK(low <= high, "tune::Space: expected low <= high for \"", parameter, "\", got ", text);
  HFTA_CHECK(!log || low > 0, "tune::Space: expected low > 0 for \"", parameter, "\" on a log scale, got ", text);
}

Distribution check(const CategoricalDistribution& d, const std::string& parameter) {
  HFTA_CHECK(!d.choices.empty(), "tune::Space: expected at least one choice for \"", parameter, "\", got none");
  for (std::size_t i = 0; i < d.choices.size(); ++i) {
    const auto* n = std::get_if<double>(&d.choices[i]);
    HFTA_CHECK(!n || std::isfinite(*n), "tune::Space: expected finite numbers as choices of \"", parameter, "\", got ", number(*n));
    for (std::size_t j = 0; j < i; ++j)
      HFTA_CHECK(!same(d.choices[i], d.choices[j]), "tune::Space: expected different choices for \"", parameter, "\", got ",
                 to_json(d.choices[j]), " and ", to_json(d.choices[i]));
  }
  return d;
}

Distribution check(FloatDistribution d, const std::string& parameter) {
  const auto text = describe(d);
  check_range(d.low, d.high, d.log, parameter, text);
  if (!d.step) return d;
  HFTA_CHECK(!d.log, "tune::Space: expected no step for \"", parameter, "\" on a log scale, got ", text);
  HFTA_CHECK(std::isfinite(*d.step) && *d.step > 0, "tune::Space: expected step > 0 for \"", parameter, "\", got ", text);
  const Lattice lattice(d);
  HFTA_CHECK(lattice.steps() < kExact, "tune::Space: expected a larger step for \"", parameter, "\", got ", text);
  d.high = lattice.at(lattice.steps());
  return d;
}

Distribution check(IntDistribution d, const std::string& parameter) {
  const auto text = describe(d);
  check_range(static_cast<double>(d.low), static_cast<double>(d.high), d.log, parameter, text);
  HFTA_CHECK(std::abs(static_cast<double>(d.low)) <= kExact && std::abs(static_cast<double>(d.high)) <= kExact,
             "tune::Space: expected bounds of \"", parameter, "\" up to 2^53, got ", text);
  HFTA_CHECK(d.step > 0, "tune::Space: expected step > 0 for \"", parameter, "\", got ", text);
  HFTA_CHECK(!d.log || d.step == 1, "tune::Space: expected step 1 for \"", parameter, "\" on a log scale, got ", text);
  d.high = d.low + (d.high - d.low) / d.step * d.step;
  return d;
}

// The classes that Optuna had before version 3.
void rename_old(std::string& name, Json& attributes) {
  const auto is = [&name](std::string_view old) { return name == old; };
  if (is("UniformDistribution") || is("LogUniformDistribution") || is("DiscreteUniformDistribution")) {
    attributes["log"] = is("LogUniformDistribution");
    attributes["step"] = attributes.contains("q") ? attributes["q"] : Json(nullptr);
    name = "FloatDistribution";
  } else if (is("IntUniformDistribution") || is("IntLogUniformDistribution")) {
    attributes["log"] = is("IntLogUniformDistribution");
    name = "IntDistribution";
  }
}

Distribution from_parsed(const Json& json, const std::string& text) {
  constexpr auto kWhat = "tune::Distribution";
  auto name = json.at("name").get<std::string>();
  auto attributes = json.at("attributes");
  rename_old(name, attributes);
  if (name == "CategoricalDistribution") {
    CategoricalDistribution d;
    for (const auto& choice : attributes.at("choices")) d.choices.push_back(value_of(choice, kWhat));
    return d;
  }
  const bool log = attributes.value("log", false);
  const auto step = attributes.contains("step") ? attributes["step"] : Json(nullptr);
  if (name == "FloatDistribution") {
    FloatDistribution d{.low = attributes.at("low").get<double>(), .high = attributes.at("high").get<double>(), .log = log};
    if (!step.is_null()) d.step = step.get<double>();
    return d;
  }
  HFTA_CHECK(name == "IntDistribution", kWhat, ": expected CategoricalDistribution, FloatDistribution or IntDistribution, got ", text);
  return IntDistribution{.low = attributes.at("low").get<std::int64_t>(), .high = attributes.at("high").get<std::int64_t>(), .log = log,
                         .step = step.is_null() ? 1 : step.get<std::int64_t>()};
}

}  // namespace

Distribution validated(const Distribution& distribution, const std::string& parameter) {
  return std::visit([&](const auto& d) { return check(d, parameter); }, distribution);
}

std::string describe(const Distribution& distribution) {
  return std::visit(
      Overloaded{
          [](const CategoricalDistribution& d) {
            std::string text = "choice(";
            for (std::size_t i = 0; i < d.choices.size(); ++i) text += (i ? ", " : "") + to_json(d.choices[i]);
            return text + ")";
          },
          [](const FloatDistribution& d) {
            const auto name = d.log ? "loguniform(" : d.step ? "quniform(" : "uniform(";
            return name + number(d.low) + ", " + number(d.high) + (d.step ? ", " + number(*d.step) : "") + ")";
          },
          [](const IntDistribution& d) {
            return base::message("int(", d.low, ", ", d.high, d.log ? ", log" : "", d.step != 1 ? base::message(", step ", d.step) : "", ")");
          },
      },
      distribution);
}

std::string to_json(const Distribution& distribution) {
  Json json;
  std::visit(Overloaded{
                 [&](const CategoricalDistribution& d) {
                   json["name"] = "CategoricalDistribution";
                   auto choices = Json::array();
                   for (const auto& choice : d.choices) choices.push_back(json_of(choice));
                   json["attributes"]["choices"] = std::move(choices);
                 },
                 [&](const FloatDistribution& d) {
                   json["name"] = "FloatDistribution";
                   json["attributes"] = {{"step", d.step ? Json(*d.step) : Json(nullptr)}, {"low", d.low}, {"high", d.high}, {"log", d.log}};
                 },
                 [&](const IntDistribution& d) {
                   json["name"] = "IntDistribution";
                   json["attributes"] = {{"log", d.log}, {"step", d.step}, {"low", d.low}, {"high", d.high}};
                 },
             },
             distribution);
  return python_json(json);
}

Distribution distribution_from_json(const std::string& text) {
  const auto json = parse_json(text, "tune::Distribution");
  try {
    return from_parsed(json, text);
  } catch (const nlohmann::json::exception&) {
    throw InvalidArgument(base::message("tune::Distribution: expected Optuna's {\"name\": ..., \"attributes\": ...}, got ", text));
  }
}

Value value(const Distribution& distribution, double internal) {
  if (std::holds_alternative<FloatDistribution>(distribution)) return internal;
  if (std::holds_alternative<IntDistribution>(distribution)) return static_cast<std::int64_t>(internal);
  const auto& choices = std::get<CategoricalDistribution>(distribution).choices;
  HFTA_CHECK(internal >= 0 && internal < static_cast<double>(choices.size()), "tune::Distribution: expected the index of one of ", choices.size(),
             " choices, got ", number(internal));
  return choices[static_cast<std::size_t>(internal)];
}

std::optional<double> internal(const Distribution& distribution, const Value& value) {
  if (const auto* categorical = std::get_if<CategoricalDistribution>(&distribution)) {
    for (std::size_t i = 0; i < categorical->choices.size(); ++i)
      if (same(categorical->choices[i], value)) return static_cast<double>(i);
    return std::nullopt;
  }
  std::optional<double> n;
  if (const auto* i = std::get_if<std::int64_t>(&value)) n = static_cast<double>(*i);
  if (const auto* d = std::get_if<double>(&value)) n = *d;
  return n && contains(distribution, *n) ? n : std::nullopt;
}

bool contains(const Distribution& distribution, double internal) {
  return std::visit(Overloaded{
                        [&](const CategoricalDistribution& d) {
                          return internal >= 0 && internal < static_cast<double>(d.choices.size()) && internal == std::floor(internal);
                        },
                        [&](const FloatDistribution& d) {
                          if (!(internal >= d.low && internal <= d.high)) return false;
                          const double k = d.step ? (internal - d.low) / *d.step : 0;
                          return std::abs(k - std::round(k)) < std::max(1e-8, k * 1e-15);
                        },
                        [&](const IntDistribution& d) {
                          if (!(internal >= static_cast<double>(d.low) && internal <= static_cast<double>(d.high))) return false;
                          return std::fmod(internal - static_cast<double>(d.low), static_cast<double>(d.step)) == 0;
                        },
                    },
                    distribution);
}

std::optional<std::uint64_t> points(const Distribution& distribution) {
  return std::visit(Overloaded{
                        [](const CategoricalDistribution& d) -> std::optional<std::uint64_t> { return d.choices.size(); },
                        [](const FloatDistribution& d) -> std::optional<std::uint64_t> {
                          if (d.low == d.high) return 1;
                          if (!d.step) return std::nullopt;
                          return static_cast<std::uint64_t>(Lattice(d).steps()) + 1;
                        },
                        [](const IntDistribution& d) -> std::optional<std::uint64_t> { return static_cast<std::uint64_t>((d.high - d.low) / d.step) + 1; },
                    },
                    distribution);
}

double point(const Distribution& distribution, std::uint64_t index) {
  return std::visit(Overloaded{
                        [&](const CategoricalDistribution&) { return static_cast<double>(index); },
                        [&](const FloatDistribution& d) { return d.step ? Lattice(d).at(static_cast<double>(index)) : d.low; },
                        [&](const IntDistribution& d) { return static_cast<double>(d.low + static_cast<std::int64_t>(index) * d.step); },
                    },
                    distribution);
}

std::optional<std::uint64_t> point_index(const Distribution& distribution, double internal) {
  if (!points(distribution) || !contains(distribution, internal)) return std::nullopt;
  return std::visit(Overloaded{
                        [&](const CategoricalDistribution&) { return static_cast<std::uint64_t>(internal); },
                        [&](const FloatDistribution& d) { return d.step ? static_cast<std::uint64_t>(std::llround((internal - d.low) / *d.step)) : 0; },
                        [&](const IntDistribution& d) { return static_cast<std::uint64_t>((static_cast<std::int64_t>(internal) - d.low) / d.step); },
                    },
                    distribution);
}

}  // namespace hfta::tune
