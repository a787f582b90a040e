#include <algorithm>
#include <array>
#include <filesystem>
#include <map>
#include <ostream>

#include "hfta/base/error.h"
#include "hfta/cli/board.h"
#include "hfta/cli/commands.h"
#include "hfta/cli/locate.h"
#include "hfta/cli/table_text.h"
#include "hfta/cli/trial_text.h"
#include "hfta/tune/json.h"

namespace hfta::cli {
namespace {

constexpr std::array kStates{tune::TrialState::Complete, tune::TrialState::Running, tune::TrialState::Waiting, tune::TrialState::Pruned, tune::TrialState::Fail};

bool is_maximized(const tune::Study& study) { return study.directions().at(0) == tune::Direction::Maximize; }

std::string metric_name(const Located& located) { return located.file ? located.file->study.metric : "value"; }

/// The trial with the best value. @throws Error when none is complete.
tune::Trial best_of(const tune::Study& study, const Located& located) {
  auto found = study.best();
  if (!found) throw Error("no completed trials in " + located.storage);
  return *std::move(found);
}

void print_trial(const tune::Trial& trial, const std::string& metric, const std::string& weights, std::ostream& out) {
  out << "trial " << trial.number << ' ' << state_word(trial.state) << ": " << metric << ' ' << rounded(value_of(trial)) << '\n';
  std::size_t width = 7;
  for (const auto& parameter : trial.parameters) width = std::max(width, parameter.name.size());
  for (const auto& parameter : trial.parameters)
    out << "  " << parameter.name << std::string(width - parameter.name.size(), ' ') << "  " << tune::to_text(parameter.value()) << '\n';
  std::error_code ignored;
  out << "  weights" << std::string(width - 7, ' ') << "  " << (std::filesystem::exists(weights, ignored) ? weights : "not exported") << '\n';
}

/// From the best to the worst; those without a value last.
void sort_by_value(std::vector<tune::Trial>& trials, bool maximize) {
  std::stable_sort(trials.begin(), trials.end(), [&](const tune::Trial& a, const tune::Trial& b) {
    const bool a_counts = a.state == tune::TrialState::Complete, b_counts = b.state == tune::TrialState::Complete;
    if (a_counts != b_counts) return a_counts;
    if (!a_counts) return false;
    return maximize ? a.values[0] > b.values[0] : a.values[0] < b.values[0];
  });
}

void print_table(const std::vector<tune::Trial>& trials, const std::string& metric, std::ostream& out) {
  const auto names = tune::parameter_names(trials);
  TextTable table;
  table.header = {{"trial"}, {"state", false}, {"epochs"}, {metric}};
  for (const auto& name : names) table.header.push_back({name, false});
  table.header.push_back({"reason", false});
  for (const auto& trial : trials) {
    const auto epochs = trial.intermediate.empty() ? 0 : trial.intermediate.rbegin()->first;
    const bool has_value = !trial.values.empty() || !trial.intermediate.empty();
    std::vector<Cell> row{{std::to_string(trial.number)}, {state_word(trial.state), false}, {std::to_string(epochs)}, {has_value ? rounded(value_of(trial)) : "-"}};
    const auto texts = parameter_texts(trial);
    for (const auto& name : names) {
      const auto found = std::find_if(texts.begin(), texts.end(), [&](const auto& text) { return text.first == name; });
      row.push_back({found == texts.end() ? "-" : found->second, false});
    }
    row.push_back({attribute(trial, std::string(tune::kPrefix) + "reason"), false});
    table.rows.push_back(std::move(row));
  }
  for (const auto& line : lines_of(table)) out << line << '\n';
}

}  // namespace

int status(const QueryOptions& options, Streams streams) {
  const auto located = locate(options.study);
  const auto study = read_study(located);
  const auto all = study.trials();
  std::map<std::string, std::int64_t> counts;
  for (const auto state : kStates) counts[state_word(state)] = 0;
  for (const auto& trial : all) ++counts[state_word(trial.state)];
  const auto best = study.best();
  if (options.format == Format::Json) {
    nlohmann::ordered_json json{{"study", study.name()}, {"storage", located.storage}, {"folder", located.folder}, {"direction", tune::to_text(study.directions().at(0))}, {"total", all.size()}};
    for (const auto state : kStates) json["trials"][state_word(state)] = counts[state_word(state)];
    json["best"] = best ? trial_json(*best, located.weights(best->number)) : nlohmann::ordered_json(nullptr);
    streams.out << tune::strict_json(json) << '\n';
    return 0;
  }
  streams.out << "study " << study.name() << ": " << all.size() << (all.size() == 1 ? " trial" : " trials");
  const char* before = " (";
  for (const auto state : kStates)
    if (const auto count = counts[state_word(state)]; count > 0) streams.out << before << count << ' ' << state_word(state), before = ", ";
  streams.out << (all.empty() ? "" : ")") << '\n';
  if (best) streams.out << "best: trial " << best->number << ", " << metric_name(located) << ' ' << rounded(best->values[0]) << '\n';
  else streams.out << "best: none is complete yet\n";
  streams.out << "run folder: " << located.folder << '\n';
  return 0;
}

int best(const QueryOptions& options, Streams streams) {
  const auto located = locate(options.study);
  const auto trial = best_of(read_study(located), located);
  const auto weights = located.weights(trial.number);
  if (options.format == Format::Json) streams.out << tune::strict_json(trial_json(trial, weights)) << '\n';
  else print_trial(trial, metric_name(located), weights, streams.out);
  return 0;
}

int trials(const QueryOptions& options, Streams streams) {
  const auto located = locate(options.study);
  const auto study = read_study(located);
  auto all = study.trials();
  if (options.is_sorted) sort_by_value(all, is_maximized(study));
  if (options.limit && static_cast<std::size_t>(*options.limit) < all.size()) all.resize(static_cast<std::size_t>(*options.limit));
  if (options.format == Format::Text) return print_table(all, metric_name(located), streams.out), 0;
  auto json = nlohmann::ordered_json::array();
  for (const auto& trial : all) json.push_back(trial_json(trial, located.weights(trial.number)));
  streams.out << tune::strict_json(json) << '\n';
  return 0;
}

int export_lane(const ExportOptions& options, Streams streams) {
  const auto located = locate(options.study);
  const auto study = read_study(located);
  const auto trial = options.trial ? study.trial(*options.trial) : best_of(study, located);
  const auto weights = located.weights(trial.number);
  std::error_code error;
  if (!std::filesystem::exists(weights, error))
    throw Error(base::message("trial ", trial.number, " (", state_word(trial.state), ") has no exported weights: expected ", weights, ", got no such file"));
  const auto target = options.output.empty() ? "trial-" + std::to_string(trial.number) + ".pt" : options.output;
  // Written beside and renamed: a full disk leaves no half file under the name.
  const auto part = target + ".part";
  std::filesystem::copy_file(weights, part, std::filesystem::copy_options::overwrite_existing, error);
  if (!error) std::filesystem::rename(part, target, error);
  if (error) {
    std::error_code ignored;
    std::filesystem::remove(part, ignored);
    throw Error(base::message("cannot write ", target, ": ", error.message()));
  }
  if (options.format == Format::Json) streams.out << tune::strict_json(nlohmann::ordered_json{{"trial", trial.number}, {"path", target}}) << '\n';
  else streams.out << "trial " << trial.number << " (" << metric_name(located) << ' ' << rounded(value_of(trial)) << ") written to " << target << '\n';
  return 0;
}

}  // namespace hfta::cli
