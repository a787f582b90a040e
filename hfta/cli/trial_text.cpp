#include "hfta/cli/trial_text.h"

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <limits>

#include "hfta/cli/board.h"
#include "hfta/tune/json.h"
#include "hfta/tune/study.h"

namespace hfta::cli {

std::string state_word(tune::TrialState state) {
  if (state == tune::TrialState::Fail) return "failed";
  std::string word(tune::to_text(state));
  std::transform(word.begin(), word.end(), word.begin(), [](unsigned char letter) { return static_cast<char>(std::tolower(letter)); });
  return word;
}

std::vector<std::pair<std::string, std::string>> parameter_texts(const tune::Trial& trial) {
  std::vector<std::pair<std::string, std::string>> texts;
  for (const auto& parameter : trial.parameters) {
    const auto value = parameter.value();
    const auto* number = std::get_if<double>(&value);
    texts.emplace_back(parameter.name, number ? rounded(*number) : tune::to_text(value));
  }
  return texts;
}

std::string attribute(const tune::Trial& trial, const std::string& key) {
  const auto found = trial.user_attributes.find(key);
  if (found == trial.user_attributes.end()) return {};
  const auto json = tune::parse_json(found->second, key);
  return json.is_string() ? json.get<std::string>() : json.dump();
}

double value_of(const tune::Trial& trial) {
  if (!trial.values.empty()) return trial.values[0];
  return trial.intermediate.empty() ? std::numeric_limits<double>::quiet_NaN() : trial.intermediate.rbegin()->second;
}

nlohmann::ordered_json trial_json(const tune::Trial& trial, const std::string& weights) {
  nlohmann::ordered_json json{{"number", trial.number}, {"state", state_word(trial.state)}};
  json["value"] = trial.values.empty() ? nlohmann::ordered_json(nullptr) : nlohmann::ordered_json(trial.values[0]);
  json["parameters"] = nlohmann::ordered_json::object();
  for (const auto& parameter : trial.parameters) json["parameters"][parameter.name] = tune::json_of(parameter.value());
  json["epochs"] = nlohmann::ordered_json::object();
  for (const auto& [step, value] : trial.intermediate) json["epochs"][std::to_string(step)] = value;
  const auto reason = attribute(trial, std::string(tune::kPrefix) + "reason");
  json["reason"] = reason.empty() ? nlohmann::ordered_json(nullptr) : nlohmann::ordered_json(reason);
  std::error_code ignored;
  json["weights"] = std::filesystem::exists(weights, ignored) ? nlohmann::ordered_json(weights) : nlohmann::ordered_json(nullptr);
  return json;
}

}  // namespace hfta::cli
