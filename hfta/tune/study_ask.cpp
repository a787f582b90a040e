#include <algorithm>
#include <map>

#include "hfta/base/error.h"
#include "hfta/tune/json.h"
#include "hfta/tune/resume.h"
#include "hfta/tune/study_state.h"

namespace hfta::tune {
namespace {

constexpr auto kOutside = "its parameters lie outside of the space";

// What a waiting trial is to be: the parameters it has, and those that Optuna's `enqueue_trial` asks for.
std::map<std::string, Value> fixed_values(const Trial& trial) {
  std::map<std::string, Value> fixed;
  for (const auto& parameter : trial.parameters) fixed[parameter.name] = parameter.value();
  if (const auto found = trial.system_attributes.find("fixed_params"); found != trial.system_attributes.end()) {
    const auto what = base::message("tune::Study: fixed parameters of trial ", trial.number);
    const auto json = parse_json(found->second, what);
    for (const auto& item : json.items()) fixed[item.key()] = value_of(item.value(), what);
  }
  return fixed;
}

// How often a trial was left behind by a killed process, this time included.
std::int64_t reclaims(const Trial& trial) {
  const auto found = trial.user_attributes.find(std::string(kPrefix) + "reclaimed");
  return found == trial.user_attributes.end() ? 1 : parse_json(found->second, found->first).get<std::int64_t>() + 1;
}

}  // namespace

bool Study::State::begin(Trial& trial, const Space& space, Random& random) {
  const auto fixed = fixed_values(trial);
  std::size_t used = 0;
  auto parameters = space.build([&](std::size_t d) {
    const auto& dimension = space.dimensions()[d];
    const auto found = fixed.find(dimension.name);
    const auto chosen = found == fixed.end() ? std::nullopt : internal(dimension.distribution, found->second);
    used += chosen.has_value();
    return chosen ? *chosen : draw(dimension.distribution, random);
  });
  const auto trial_row = row_of(trial.number);
  trial.started = now();
  database.run("UPDATE trials SET state = 'RUNNING', datetime_start = ? WHERE trial_id = ?", to_text(*trial.started), trial_row);
  if (used != fixed.size()) {
    trial.state = TrialState::Fail;
    end(trial_row, trial.state, {}, kOutside);
    return false;
  }
  trial.state = TrialState::Running;
  trial.parameters = std::move(parameters);
  write_parameters(trial_row, trial.parameters);
  set_attribute(trial_row, std::string(kPrefix) + "owner", to_json(Value(this_process())));
  own.insert(trial.number);
  return true;
}

std::vector<Trial> Study::ask(const Space& space, Sampler& sampler, std::uint64_t seed, std::int64_t count) {
  const std::lock_guard lock(state_->mutex);
  Transaction transaction(state_->database, Access::Write);
  auto trials = state_->load();
  std::vector<Trial> begun;
  const auto wanted = static_cast<std::size_t>(std::max<std::int64_t>(count, 0));
  for (auto& trial : trials) {
    if (trial.state != TrialState::Waiting || begun.size() >= wanted) continue;
    Random random(seed, trial.number);
    if (state_->begin(trial, space, random)) begun.push_back(trial);
  }
  while (begun.size() < wanted) {
    Random random(seed, static_cast<std::int64_t>(trials.size()));
    auto parameters = sampler.suggest(space, trials, random);
    if (!parameters) break;
    Trial trial{.parameters = std::move(*parameters)};
    state_->insert(trial);
    trials.push_back(trial);
    begun.push_back(std::move(trial));
  }
  transaction.commit();
  return begun;
}

std::vector<Trial> Study::reclaim(const StudyLock& lock, const Space& space, const std::function<Reclaim(const Trial&)>& decide) {
  HFTA_CHECK(lock.study() == StudyLock::resolved(path()), "tune::Study: expected the lock of \"", path(), "\", got that of \"", lock.study(), "\"");
  const std::lock_guard guard(state_->mutex);
  auto& database = state_->database;
  Transaction transaction(database, Access::Write);
  std::vector<Trial> continued;
  for (auto& trial : state_->load()) {
    const bool ours = trial.user_attributes.contains(std::string(kPrefix) + "owner");
    if (trial.state != TrialState::Running || !ours || state_->own.contains(trial.number)) continue;
    const auto row = state_->running(trial.number);
    const auto times = to_json(Value(reclaims(trial)));
    state_->set_attribute(row, std::string(kPrefix) + "reclaimed", times);
    trial.user_attributes[std::string(kPrefix) + "reclaimed"] = times;
    const bool inside = space.key(trial.parameters).has_value();
    const auto what = inside ? decide(trial) : Reclaim::Fail;
    if (what == Reclaim::Fail) {
      state_->end(row, TrialState::Fail, {}, inside ? "the process that ran it was killed" : kOutside);
    } else if (what == Reclaim::Requeue) {
      database.run("DELETE FROM trial_intermediate_values WHERE trial_id = ?", row);
      database.run("UPDATE trials SET state = 'WAITING', datetime_start = NULL WHERE trial_id = ?", row);
      // Whoever begins it now may be a worker of Optuna's: no longer ours to reclaim.
      database.run("DELETE FROM trial_user_attributes WHERE trial_id = ? AND \"key\" = ?", row, std::string(kPrefix) + "owner");
    } else {
      state_->set_attribute(row, std::string(kPrefix) + "owner", to_json(Value(this_process())));
      state_->own.insert(trial.number);
      continued.push_back(std::move(trial));
    }
  }
  transaction.commit();
  return continued;
}

void Study::adopt(const Space& space, bool new_space) {
  const auto known = this->space();
  const auto changes = known ? space_changes(*known, space) : space_changes(trials(), space);
  if (!new_space && !changes.empty()) {
    std::string text;
    for (const auto& change : changes) text += (text.empty() ? "" : ", and ") + change;
    throw InvalidArgument("tune::Study: expected " + text + "; new_space allows it");
  }
  set_user_attribute(std::string(kPrefix) + "space", space.to_json());
}

}  // namespace hfta::tune
