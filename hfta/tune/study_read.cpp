#include <cstdio>
#include <ctime>
#include <limits>
#include <unordered_map>

#include "hfta/base/error.h"
#include "hfta/tune/study_state.h"

namespace hfta::tune {
namespace {

// Optuna keeps infinities and NaN as a type beside an empty number.
double stored_number(const Statement& row, int column) {
  const auto type = row.text(column + 1);
  if (type == "INF_POS") return std::numeric_limits<double>::infinity();
  if (type == "INF_NEG") return -std::numeric_limits<double>::infinity();
  return type == "NAN" ? std::numeric_limits<double>::quiet_NaN() : row.real(column);
}

std::optional<Time> stored_time(const Statement& row, int column) {
  return row.is_null(column) ? std::nullopt : std::optional(time_of(row.text(column)));
}

}  // namespace

Time now() { return std::chrono::time_point_cast<std::chrono::microseconds>(std::chrono::system_clock::now()); }

std::string to_text(Time time) {
  const auto seconds = std::chrono::floor<std::chrono::seconds>(time);
  const std::time_t whole = std::chrono::system_clock::to_time_t(seconds);
  std::tm utc{};
  gmtime_r(&whole, &utc);
  char text[32];
  const auto end = std::strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S", &utc);
  std::snprintf(text + end, sizeof text - end, ".%06d", static_cast<int>((time - seconds).count()));
  return text;
}

Time time_of(const std::string& text) {
  int year = 0, month = 0, day = 0, hour = 0, minute = 0, second = 0;
  char fraction[8] = "";
  const int read = std::sscanf(text.c_str(), "%d-%d-%d %d:%d:%d.%6[0-9]", &year, &month, &day, &hour, &minute, &second, fraction);
  if (read < 6) throw Error(base::message("tune::Study: expected a time, got \"", text, "\""));
  const std::chrono::year_month_day date{std::chrono::year(year), std::chrono::month(static_cast<unsigned>(month)), std::chrono::day(static_cast<unsigned>(day))};
  auto micros = std::string(fraction);
  micros.resize(6, '0');
  return std::chrono::sys_days(date) + std::chrono::hours(hour) + std::chrono::minutes(minute) + std::chrono::seconds(second) +
         std::chrono::microseconds(read > 6 ? std::stoi(micros) : 0);
}

std::vector<Trial> Study::State::load(std::optional<std::int64_t> number) {
  std::vector<Trial> trials;
  std::unordered_map<std::int64_t, std::size_t> place;
  const std::string which = number ? " AND t.number = ?2" : "";
  const auto rows = [&](const std::string& columns, const std::string& table, const std::string& order, const auto& take) {
    const auto from = table.empty() ? " FROM trials t" : " FROM " + table + " x JOIN trials t ON x.trial_id = t.trial_id";
    auto row = database.prepare("SELECT t.number, " + columns + from + " WHERE t.study_id = ?1" + which + " ORDER BY t.number, " + order);
    row.bind(id);
    if (number) row.bind(*number);
    while (row.next()) {
      if (table.empty()) {
        place.emplace(row.integer(0), trials.size());
        trials.push_back({.number = row.integer(0)});
      }
      if (const auto at = place.find(row.integer(0)); at != place.end()) take(trials[at->second], row);
    }
  };
  rows("t.state, t.datetime_start, t.datetime_complete", "", "t.trial_id", [](Trial& trial, const Statement& row) {
    trial.state = trial_state(row.text(1));
    trial.started = stored_time(row, 2), trial.completed = stored_time(row, 3);
  });
  rows("x.param_name, x.param_value, x.distribution_json", "trial_params", "x.param_id", [this](Trial& trial, const Statement& row) {
    const auto json = row.text(3);
    auto known = distributions.find(json);
    if (known == distributions.end()) known = distributions.emplace(json, distribution_from_json(json)).first;
    trial.parameters.push_back({row.text(1), known->second, row.real(2)});
  });
  rows("x.value, x.value_type", "trial_values", "x.objective", [](Trial& trial, const Statement& row) { trial.values.push_back(stored_number(row, 1)); });
  rows("x.step, x.intermediate_value, x.intermediate_value_type", "trial_intermediate_values", "x.step",
       [](Trial& trial, const Statement& row) { trial.intermediate[row.integer(1)] = stored_number(row, 2); });
  const auto key_value = "x.\"key\", x.value_json";
  rows(key_value, "trial_user_attributes", "x.\"key\"", [](Trial& trial, const Statement& row) { trial.user_attributes[row.text(1)] = row.text(2); });
  rows(key_value, "trial_system_attributes", "x.\"key\"", [](Trial& trial, const Statement& row) { trial.system_attributes[row.text(1)] = row.text(2); });
  return trials;
}

Trial Study::State::load_one(std::int64_t number) {
  auto found = load(number);
  if (found.empty()) {
    auto row = database.prepare("SELECT COUNT(*) FROM trials WHERE study_id = ?");
    row.bind(id).next();
    throw InvalidArgument(base::message("tune::Study: expected the number of one of ", row.integer(0), " trials, got ", number));
  }
  return std::move(found.front());
}

std::vector<Trial> Study::trials() const {
  const std::lock_guard lock(state_->mutex);
  const Transaction snapshot(state_->database, Access::Read);
  return state_->load();
}

Trial Study::trial(std::int64_t number) const {
  const std::lock_guard lock(state_->mutex);
  const Transaction snapshot(state_->database, Access::Read);
  return state_->load_one(number);
}

std::optional<Trial> Study::best() const {
  HFTA_CHECK(directions().size() == 1, "tune::Study: expected one direction to have a best trial, got ", directions().size());
  return tune::best(trials(), directions().front());
}

std::map<std::string, std::string> Study::user_attributes() const {
  const std::lock_guard lock(state_->mutex);
  std::map<std::string, std::string> attributes;
  auto row = state_->database.prepare("SELECT \"key\", value_json FROM study_user_attributes WHERE study_id = ?");
  for (row.bind(state_->id); row.next();) attributes[row.text(0)] = row.text(1);
  return attributes;
}

std::optional<Space> Study::space() const {
  const auto attributes = user_attributes();
  const auto found = attributes.find(std::string(kPrefix) + "space");
  return found == attributes.end() ? std::nullopt : std::optional(Space::from_json(found->second));
}

}  // namespace hfta::tune
