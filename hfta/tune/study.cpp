#include "hfta/tune/study.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <set>
#include <thread>

#include "hfta/base/error.h"
#include "hfta/tune/json.h"
#include "hfta/tune/resume.h"
#include "hfta/tune/schema.h"
#include "hfta/tune/study_state.h"

namespace hfta::tune {
namespace {

std::string prefixed(const char* key) { return std::string(kPrefix) + key; }

// Readers do not stop the writer then, nor it them. Turning it on needs the file alone for a moment; without it all still works.
void use_write_ahead_log(Database& database) {
  for (int attempt = 0; attempt < 50; ++attempt) {
    if (database.try_run("PRAGMA journal_mode = WAL")) break;
    std::this_thread::sleep_for(std::chrono::milliseconds(10 + attempt));
  }
  database.run("PRAGMA synchronous = NORMAL");
}

void check_file(const std::string& path) {
  std::error_code ignored;
  HFTA_CHECK(std::filesystem::exists(path, ignored), "tune::Study: expected a study, got \"", path, "\", which does not exist");
  HFTA_CHECK(!std::filesystem::is_directory(path, ignored), "tune::Study: expected a study, got \"", path, "\", which is a folder");
}

std::vector<std::string> study_names(Database& database) {
  std::vector<std::string> names;
  for (auto row = database.prepare("SELECT study_name FROM studies ORDER BY study_id"); row.next();) names.push_back(row.text(0));
  return names;
}

std::string listed(const std::vector<std::string>& names) {
  std::string text;
  for (const auto& name : names) text += (text.empty() ? "\"" : ", \"") + name + "\"";
  return text.empty() ? "none" : text;
}

// The rows of `trial` in that table go.
void erase(Database& database, const std::string& table, std::int64_t row) { database.run("DELETE FROM " + table + " WHERE trial_id = ?", row); }

struct Stored {
  double number;
  const char* type;
};

Stored stored(double value) {
  if (std::isnan(value)) return {0, "NAN"};
  return {value, !std::isinf(value) ? "FINITE" : value > 0 ? "INF_POS" : "INF_NEG"};
}

void bind(Statement& statement, double value) {
  const auto [number, type] = stored(value);
  if (std::isfinite(value)) statement.bind(number);
  else statement.bind(nullptr);
  statement.bind(std::string(type));
}

}  // namespace

std::string attribute_json(const std::string& key, const std::string& json) {
  return python_json(parse_json(json, base::message("tune::Study: attribute \"", key, "\"")));
}

Study::Study(std::unique_ptr<State> state) : state_(std::move(state)) {}
Study::~Study() = default;
Study::Study(Study&&) noexcept = default;
Study& Study::operator=(Study&&) noexcept = default;
const std::string& Study::path() const { return state_->database.path(); }
const std::string& Study::name() const { return state_->name; }
const std::vector<Direction>& Study::directions() const { return state_->directions; }

std::unique_ptr<Study::State> Study::State::open(const std::string& path, const std::string& name, Access access, std::chrono::milliseconds patience) {
  check_file(path);
  auto state = std::make_unique<State>(path, access, patience);
  auto& database = state->database;
  check_schema(database);
  const auto names = study_names(database);
  HFTA_CHECK(!name.empty() || names.size() == 1, "tune::Study: expected the name of one of the studies ", listed(names), " in \"", path, "\", got no name");
  state->name = name.empty() ? names.front() : name;
  auto found = database.prepare("SELECT study_id FROM studies WHERE study_name = ?");
  HFTA_CHECK(found.bind(state->name).next(), "tune::Study: expected one of the studies ", listed(names), " in \"", path, "\", got \"", state->name, "\"");
  state->id = found.integer(0);
  auto row = database.prepare("SELECT direction FROM study_directions WHERE study_id = ? ORDER BY objective");
  for (row.bind(state->id); row.next();) state->directions.push_back(direction(row.text(0)));
  return state;
}

Study Study::create(const std::string& path, const StudyOptions& options) {
  HFTA_CHECK(!options.name.empty(), "tune::Study: expected a name, got an empty one");
  HFTA_CHECK(!options.directions.empty(), "tune::Study: expected at least one direction, got none");
  {
    Database database(path, Access::Create, options.patience);
    use_write_ahead_log(database);
    create_schema(database);
    check_schema(database);
    Transaction transaction(database, Access::Write);
    auto found = database.prepare("SELECT 1 FROM studies WHERE study_name = ?");
    if (!found.bind(options.name).next()) {
      database.run("INSERT INTO studies (study_name) VALUES (?)", options.name);
      const auto id = database.last_id();
      for (std::size_t i = 0; i < options.directions.size(); ++i)
        database.run("INSERT INTO study_directions (direction, study_id, objective) VALUES (?, ?, ?)", std::string(to_text(options.directions[i])), id,
                     static_cast<std::int64_t>(i));
      transaction.commit();
    }
  }
  Study study(State::open(path, options.name, Access::Write, options.patience));
  const auto text = [](const std::vector<Direction>& directions) {
    std::string joined;
    for (const auto d : directions) (joined += joined.empty() ? "" : ", ") += to_text(d);
    return joined;
  };
  HFTA_CHECK(study.directions() == options.directions, "tune::Study: expected ", text(study.directions()), " as in the study \"", options.name, "\", got ",
             text(options.directions));
  return study;
}

Study Study::open(const std::string& path, const std::string& name) {
  auto state = State::open(path, name, Access::Write, StudyOptions{}.patience);
  use_write_ahead_log(state->database);
  return Study(std::move(state));
}

Study Study::read(const std::string& path, const std::string& name) { return Study(State::open(path, name, Access::Read, StudyOptions{}.patience)); }

std::int64_t Study::State::row_of(std::int64_t number) {
  if (const auto known = rows.find(number); known != rows.end()) return known->second;
  auto row = database.prepare("SELECT trial_id FROM trials WHERE study_id = ? AND number = ?");
  if (!row.bind(id).bind(number).next()) load_one(number);  // says what is there
  return rows[number] = row.integer(0);
}

std::int64_t Study::State::running(std::int64_t number) {
  const auto trial_row = row_of(number);
  auto row = database.prepare("SELECT state FROM trials WHERE trial_id = ?");
  row.bind(trial_row).next();
  HFTA_CHECK(row.text(0) == to_text(TrialState::Running), "tune::Study: expected trial ", number, " to be RUNNING, got ", row.text(0));
  return trial_row;
}

std::int64_t Study::State::insert(Trial& trial) {
  auto count = database.prepare("SELECT COUNT(*) FROM trials WHERE study_id = ?");
  count.bind(id).next();
  trial.number = count.integer(0);  // as Optuna counts
  auto row = database.prepare("INSERT INTO trials (number, study_id, state, datetime_start) VALUES (?, ?, ?, ?)");
  row.bind(trial.number).bind(id).bind(std::string(to_text(trial.state)));
  if (trial.state == TrialState::Running) row.bind(to_text(*(trial.started = now())));
  else row.bind(nullptr);
  row.next();
  const auto trial_row = database.last_id();
  write_parameters(trial_row, trial.parameters);
  if (trial.state == TrialState::Running) {
    own.insert(trial.number);
    set_attribute(trial_row, prefixed("owner"), to_json(Value(this_process())));
  }
  return trial_row;
}

void Study::State::write_parameters(std::int64_t row, const Parameters& parameters) {
  erase(database, "trial_params", row);
  for (const auto& p : parameters)
    database.run("INSERT INTO trial_params (trial_id, param_name, param_value, distribution_json) VALUES (?, ?, ?, ?)", row, p.name, p.internal,
                 to_json(p.distribution));
}

void Study::State::set_attribute(std::int64_t row, const std::string& key, const std::string& json) {
  database.run("INSERT INTO trial_user_attributes (trial_id, \"key\", value_json) VALUES (?, ?, ?) "
               "ON CONFLICT (trial_id, \"key\") DO UPDATE SET value_json = excluded.value_json",
               row, key, json);
}

void Study::State::end(std::int64_t row, TrialState state, const std::vector<double>& values, const std::string& reason) {
  erase(database, "trial_values", row);
  for (std::size_t i = 0; i < values.size(); ++i) {
    auto insert = database.prepare("INSERT INTO trial_values (trial_id, objective, value, value_type) VALUES (?, ?, ?, ?)");
    insert.bind(row).bind(static_cast<std::int64_t>(i));
    bind(insert, values[i]);
    insert.next();
  }
  if (!reason.empty()) set_attribute(row, prefixed("reason"), to_json(Value(reason)));
  database.run("UPDATE trials SET state = ?, datetime_complete = ? WHERE trial_id = ?", std::string(to_text(state)), to_text(now()), row);
}

std::int64_t Study::add(const Parameters& parameters, TrialState state) {
  HFTA_CHECK(!is_finished(state), "tune::Study: expected a new trial to be RUNNING or WAITING, got ", to_text(state));
  const std::lock_guard lock(state_->mutex);
  Transaction transaction(state_->database, Access::Write);
  Trial trial{.state = state, .parameters = parameters};
  state_->insert(trial);
  transaction.commit();
  return trial.number;
}

void Study::report(std::span<const Report> reports) {
  const std::lock_guard lock(state_->mutex);
  Transaction transaction(state_->database, Access::Write);
  for (const auto& report : reports) {
    auto insert = state_->database.prepare(
        "INSERT INTO trial_intermediate_values (trial_id, step, intermediate_value, intermediate_value_type) VALUES (?, ?, ?, ?) "
        "ON CONFLICT (trial_id, step) DO UPDATE SET intermediate_value = excluded.intermediate_value, "
        "intermediate_value_type = excluded.intermediate_value_type");
    insert.bind(state_->running(report.trial)).bind(report.step);
    bind(insert, report.value);
    insert.next();
  }
  transaction.commit();
}

TrialState Study::finish(std::int64_t number, TrialState state, const std::vector<double>& values, const std::string& reason) {
  HFTA_CHECK(is_finished(state), "tune::Study: expected trial ", number, " to end as COMPLETE, PRUNED or FAIL, got ", to_text(state));
  HFTA_CHECK(state != TrialState::Complete || values.size() == directions().size(), "tune::Study: expected ", directions().size(),
             " values of trial ", number, ", got ", values.size());
  const std::lock_guard lock(state_->mutex);
  Transaction transaction(state_->database, Access::Write);
  const auto row = state_->running(number);
  const bool has_nan = std::any_of(values.begin(), values.end(), [](double v) { return std::isnan(v); });
  auto kept = values;
  auto why = reason;
  if (state == TrialState::Pruned && kept.empty()) {
    const auto trial = state_->load_one(number);
    if (!trial.intermediate.empty() && directions().size() == 1) kept = {trial.intermediate.rbegin()->second};
    if (!kept.empty() && std::isnan(kept[0])) kept.clear();
  }
  if (state == TrialState::Fail || has_nan) {
    if (!values.empty()) {
      auto json = Json::array();
      for (const double v : values) json.push_back(std::isfinite(v) ? Json(v) : Json(to_json(Value(v))));  // texts: NaN is no JSON
      state_->set_attribute(row, prefixed("values"), python_json(json));
    }
    if (has_nan && why.empty()) why = "the final value is NaN";
    state = TrialState::Fail;
    kept.clear();
  }
  state_->end(row, state, kept, why);
  transaction.commit();
  state_->own.erase(number);
  return state;
}

void Study::set_user_attribute(const std::string& key, const std::string& json) {
  const auto text = attribute_json(key, json);
  const std::lock_guard lock(state_->mutex);
  Transaction transaction(state_->database, Access::Write);
  state_->database.run("INSERT INTO study_user_attributes (study_id, \"key\", value_json) VALUES (?, ?, ?) "
                       "ON CONFLICT (study_id, \"key\") DO UPDATE SET value_json = excluded.value_json",
                       state_->id, key, text);
  transaction.commit();
}

void Study::set_user_attribute(std::int64_t trial, const std::string& key, const std::string& json) {
  const auto text = attribute_json(key, json);
  const std::lock_guard lock(state_->mutex);
  Transaction transaction(state_->database, Access::Write);
  state_->set_attribute(state_->row_of(trial), key, text);
  transaction.commit();
}

}  // namespace hfta::tune
