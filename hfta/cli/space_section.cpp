#include "hfta/cli/space_section.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "hfta/base/error.h"
#include "hfta/base/options.h"
#include "hfta/cli/hypers.h"

namespace hfta::cli {
namespace {


/// A list's items as single values.
std::vector<Value> single_values(const Value& list) {
  std::vector<Value> values;
  std::visit(
      [&](const auto& held) {
        if constexpr (requires { held.begin(); } && !std::is_same_v<std::decay_t<decltype(held)>, std::string>)
          for (const auto& item : held) values.emplace_back(item);
      },
      list);
  return values;
}

void read_choice(TomlTable& table, const std::string& key, SpaceEntry& entry) {
  entry.type = "choice";
  const auto list = table.has(key) ? table.value(key) : Value(std::vector<std::string>{});
  entry.values = single_values(list);
  if (entry.values.empty()) table.fail(key, "expected a list of at least one value, got none");
  for (std::size_t i = 0; i < entry.values.size(); ++i)
    for (std::size_t j = 0; j < i; ++j)
      if (entry.values[i] == entry.values[j]) table.fail(key, "expected different values, got " + written(entry.values[i]) + " twice");
}

void read_range(TomlTable& table, SpaceEntry& entry) {
  const bool is_whole = entry.type == "int" || entry.type == "int_log";
  const bool is_log = entry.type == "loguniform" || entry.type == "int_log";
  const auto bound = [&](const char* key) -> double {
    if (!table.has(key)) table.fail(key, "expected a bound of " + entry.type + ", got none");
    if (is_whole) return static_cast<double>(*table.integer(key, is_log ? 1 : std::numeric_limits<std::int64_t>::min() / 1024));
    return *table.number(key, -std::numeric_limits<double>::infinity());
  };
  entry.low = bound("low");
  entry.high = bound("high");
  if (is_log && entry.low <= 0) table.fail("low", "expected more than 0 for " + entry.type + ", got " + written(entry.low));
  if (entry.low > entry.high) table.fail("high", "expected at least low = " + written(entry.low) + ", got " + written(entry.high));
  if (entry.type == "quniform" && !table.has("step")) table.fail("step", "expected the step of quniform, got none");
  if (entry.type == "int") entry.step = static_cast<double>(table.integer("step", 1).value_or(1));
  if (entry.type == "quniform") entry.step = *table.number("step", 0);
  if (entry.type == "quniform" && entry.step == 0) table.fail("step", "expected more than 0, got 0");
}

/// Sets what the entry's `sets` (its name unless given) means.
void aim(const TomlTable& table, const std::string& key, const std::string& sets, SpaceEntry& entry) {
  entry.key = sets;
  if (sets == "optimizer") entry.target = Target::OptimizerName;
  else if (sets == "batch_size") entry.target = Target::BatchSize;
  else if (sets == "seed") entry.target = Target::Seed;
  else if (sets.starts_with("model.")) entry.key = sets.substr(6);
  else if (is_hyper(sets)) entry.target = Target::Hyper;
  const bool is_whole = entry.type == "int" || entry.type == "int_log";
  const auto fits = [&](const Value& value) {
    if (entry.target == Target::OptimizerName) return std::holds_alternative<std::string>(value);
    if (entry.target == Target::Hyper) return !std::holds_alternative<std::string>(value);
    const auto* whole = std::get_if<std::int64_t>(&value);
    return entry.target == Target::ModelOption || (whole && *whole >= (entry.target == Target::Seed ? 0 : 1));
  };
  if (entry.type == "choice") {
    for (const auto& value : entry.values)
      if (!fits(value)) table.fail(key, "expected values that " + sets + " takes, got " + written(value));
  } else if (entry.target == Target::OptimizerName || ((entry.target == Target::BatchSize || entry.target == Target::Seed) && (!is_whole || entry.low < (entry.target == Target::Seed ? 0 : 1)))) {
    table.fail(key, "expected a type and bounds that " + sets + " takes, got " + entry.type + " from " + written(entry.low));
  }
  if (entry.target == Target::Hyper && entry.type != "choice") {
    const auto range = hyper_range(sets);
    if (range.is_flag || entry.low < range.least || entry.high > range.most)
      table.fail(key, "expected " + (range.is_flag ? "a choice of true and false" : "bounds in [" + written(range.least) + ", " + written(range.most) + "]") + " for " + sets + ", got " + entry.type + " from " + written(entry.low) + " to " + written(entry.high));
  }
  if (entry.target != Target::OptimizerName) return;
  for (const auto& value : entry.values) {
    const auto& name = std::get<std::string>(value);
    const auto names = optimizer_names();
    if (std::find(names.begin(), names.end(), name) == names.end())
      table.fail(key, "expected optimizers among " + base::list(names) + ", got '" + name + "'" + suggestion(name, names));
  }
}

/// `when = {optimizer = "sgd"}`, or a list of values.
void read_when(TomlTable when, SpaceEntry& entry) {
  const auto names = when.other_keys();
  if (names.size() != 1) when.fail("", "expected one earlier parameter and its values, got " + std::to_string(names.size()));
  entry.when = names[0];
  const auto value = when.value(names[0]);
  entry.when_values = single_values(value);
  if (entry.when_values.empty()) entry.when_values = {value};
}

SpaceEntry read_entry(TomlTable& space, const std::string& name) {
  SpaceEntry entry;
  entry.name = name;
  entry.place = space.place(name);
  if (space.is_array(name)) {
    read_choice(space, name, entry);
    aim(space, name, name, entry);
    return entry;
  }
  if (!space.is_table(name)) space.fail(name, "expected a list of values, or a table such as {type = \"uniform\", low = 0, high = 1}, got a single value; fixed values belong in [optimizer], [model] or [data]");
  auto table = space.table(name);
  const auto type = table.one_of("type", {"uniform", "loguniform", "quniform", "int", "int_log", "choice"});
  if (!type) table.fail("type", "expected one of uniform, loguniform, quniform, int, int_log, choice, got none");
  entry.type = *type;
  const auto sets = table.text("sets").value_or(name);
  if (entry.type == "choice") read_choice(table, "values", entry);
  else read_range(table, entry);
  if (table.has("when")) read_when(table.table("when"), entry);
  aim(table, "", sets, entry);
  table.finish();
  return entry;
}

std::int64_t line_of(const std::string& place) { return std::stoll(place.substr(place.rfind(':') + 1)); }

}  // namespace

std::vector<SpaceEntry> read_space(TomlTable table) {
  std::vector<SpaceEntry> space;
  for (const auto& name : table.other_keys()) space.push_back(read_entry(table, name));
  if (space.empty()) table.fail("", "expected at least one parameter to search, such as lr = {type = \"loguniform\", low = 1e-4, high = 0.1}, got none");
  std::stable_sort(space.begin(), space.end(), [](const auto& a, const auto& b) { return line_of(a.place) < line_of(b.place); });
  for (std::size_t i = 0; i < space.size(); ++i)
    for (std::size_t j = 0; j < space.size(); ++j)
      if (i != j && (space[i].when.empty() || space[j].when.empty()) && space[i].target == space[j].target && space[i].key == space[j].key)
        throw InvalidArgument(space[std::max(i, j)].place + ": [space] expected one parameter that sets " + space[i].key + ", got " + space[i].name + " and " + space[j].name);
  return space;
}

void check_hypers(const std::vector<SpaceEntry>& space, const OptimizerSection& optimizer) {
  for (const auto& entry : space) {
    if (entry.target != Target::Hyper) continue;
    std::vector<std::string> used;
    bool is_taken = false;
    for (const auto& [name, fixed] : optimizer.fixed_of) {
      used.push_back(name);
      const auto& hypers = hyper_names(name);
      is_taken |= std::find(hypers.begin(), hypers.end(), entry.key) != hypers.end();
    }
    HFTA_CHECK(is_taken, entry.place, ": [space] ", entry.name, ": expected a hyper-parameter of ", base::list(used), ", got '", entry.key, "'");
  }
}

namespace {

tune::Value tune_value(const Value& value) {
  return std::visit(
      [](const auto& held) -> tune::Value {
        if constexpr (std::is_constructible_v<tune::Value, decltype(held)>) return held;
        else return std::string();  // lists of lists are refused when the file is read
      },
      value);
}

std::vector<tune::Value> tune_values(const std::vector<Value>& values) {
  std::vector<tune::Value> converted;
  for (const auto& value : values) converted.push_back(tune_value(value));
  return converted;
}

tune::Distribution distribution(const SpaceEntry& entry) {
  if (entry.type == "choice") return tune::choice(tune_values(entry.values));
  if (entry.type == "uniform") return tune::uniform(entry.low, entry.high);
  if (entry.type == "loguniform") return tune::loguniform(entry.low, entry.high);
  if (entry.type == "quniform") return tune::quniform(entry.low, entry.high, entry.step);
  const auto low = static_cast<std::int64_t>(entry.low), high = static_cast<std::int64_t>(entry.high);
  return entry.type == "int" ? tune::integer(low, high, static_cast<std::int64_t>(entry.step)) : tune::logint(low, high);
}

}  // namespace

tune::Space tune_space(const std::vector<SpaceEntry>& space) {
  std::vector<tune::Dimension> dimensions;
  for (const auto& entry : space) {
    tune::Dimension dimension{.name = entry.name, .distribution = distribution(entry)};
    if (!entry.when.empty()) dimension.when = tune::Condition{entry.when, tune_values(entry.when_values)};
    dimensions.push_back(std::move(dimension));
  }
  return tune::Space(std::move(dimensions));
}

}  // namespace hfta::cli
