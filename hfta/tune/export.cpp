#include "hfta/tune/export.h"

#include "hfta/tune/json.h"
#include "hfta/tune/study_state.h"

namespace hfta::tune {
namespace {

Json attributes_json(const std::map<std::string, std::string>& attributes) {
  auto json = Json::object();
  for (const auto& [key, text] : attributes) json[key] = parse_json(text, "tune::Study: attribute \"" + key + "\"");
  return json;
}

Json time_json(const std::optional<Time>& time) {
  if (!time) return nullptr;
  auto text = to_text(*time);
  text[10] = 'T';
  return text + "Z";
}

Json trial_json(const Trial& trial) {
  Json json{{"number", trial.number}, {"state", to_text(trial.state)}, {"values", trial.values}};
  json["parameters"] = Json::object();
  for (const auto& parameter : trial.parameters) json["parameters"][parameter.name] = json_of(parameter.value());
  json["intermediate_values"] = Json::object();
  for (const auto& [step, value] : trial.intermediate) json["intermediate_values"][std::to_string(step)] = value;
  json["user_attributes"] = attributes_json(trial.user_attributes);
  json["system_attributes"] = attributes_json(trial.system_attributes);
  json["started"] = time_json(trial.started);
  json["completed"] = time_json(trial.completed);
  return json;
}

}  // namespace

std::string export_json(const Study& study) {
  const auto trials = study.trials();
  Json json{{"format", 1}, {"study", study.name()}, {"directions", Json::array()}, {"best", nullptr}};
  for (const auto d : study.directions()) json["directions"].push_back(to_text(d));
  if (study.directions().size() == 1)
    if (const auto found = best(trials, study.directions().front())) json["best"] = found->number;
  json["user_attributes"] = attributes_json(study.user_attributes());
  json["trials"] = Json::array();
  for (const auto& trial : trials) json["trials"].push_back(trial_json(trial));
  return strict_json(json) + "\n";
}

}  // namespace hfta::tune
