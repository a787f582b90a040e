#include "hfta/cli/dry_run.h"

#include <algorithm>
#include <filesystem>
#include <ostream>

#include "hfta/cli/space_section.h"
#include "hfta/cli/summary.h"
#include "hfta/cli/tuner_options.h"
#include "hfta/plan/memory.h"
#include "hfta/train/recorded_step.h"
#include "hfta/tune/json.h"

namespace hfta::cli {
namespace {

using Json = nlohmann::ordered_json;
using Traits = std::vector<std::pair<std::string, std::string>>;

struct PlannedArray {
  std::vector<tune::Trial> trials;
  Traits parts;                 ///< What sets it apart from the others.
  tune::ArrayPlan plan;
  std::int64_t peak_bytes = 0;
  std::string program{};        ///< The recorded step; empty unless asked for.
};

/// The trials that a sweep would begin; they follow from the seed and their numbers.
std::vector<tune::Trial> next_trials(const DryRun& run, std::string& summary) {
  std::vector<tune::Trial> known;
  std::error_code ignored;
  if (std::filesystem::exists(run.located.storage, ignored)) known = read_study(run.located).trials();
  const auto planned = tune::plan_trials(static_cast<std::int64_t>(known.size()), run.request);
  summary = planned.summary;
  std::vector<tune::Trial> next;
  for (const auto& trial : known)
    if (!tune::is_finished(trial.state)) next.push_back(trial);
  for (std::int64_t i = 0; i < planned.create; ++i) {
    tune::Random random(run.file.study.seed, static_cast<std::int64_t>(known.size()));
    auto parameters = run.sampler.suggest(run.space, known, random);
    if (!parameters) break;
    tune::Trial trial{.number = static_cast<std::int64_t>(known.size()), .parameters = *std::move(parameters)};
    known.push_back(trial);
    next.push_back(std::move(trial));
  }
  return next;
}

/// Traits that not all arrays share.
void keep_differences(std::vector<PlannedArray>& arrays) {
  const auto first = arrays.empty() ? Traits{} : arrays[0].parts;
  const auto differs = [&](const std::string& name) {
    const auto value = [&](const Traits& parts) {
      const auto found = std::find_if(parts.begin(), parts.end(), [&](const auto& part) { return part.first == name; });
      return found == parts.end() ? std::string() : found->second;
    };
    return std::any_of(arrays.begin(), arrays.end(), [&](const auto& array) { return value(array.parts) != value(first); });
  };
  std::vector<std::string> kept;
  for (const auto& array : arrays)
    for (const auto& [name, value] : array.parts)
      if (differs(name)) kept.push_back(name);
  for (auto& array : arrays) std::erase_if(array.parts, [&](const auto& part) { return std::find(kept.begin(), kept.end(), part.first) == kept.end(); });
}

/// The programs that the plan's step is recorded as. The array's weights are those of one step later then.
std::string program_of(tune::TrialArray& made, const plan::Plan& plan) {
  constexpr std::int64_t kRepeats = 5;
  if (!plan.recorded) return "the plan has plain steps: nothing is recorded\n";
  made.array->train(true);
  made.training->begin_epoch(0);
  train::RecordedStep step({made.array.get()}, *made.optimizer, made.step, made.step_options, plan);
  step(made.training->next()->inputs);
  return step.print(kRepeats);
}

std::vector<PlannedArray> plan_arrays(const DryRun& run, const std::vector<tune::Trial>& trials) {
  const auto options = tuner_options(run.file, run.located.folder);
  std::vector<PlannedArray> arrays;
  for (const auto& numbers : tune::arrays_of(trials, [&](const tune::Trial& trial) { return run.maker.kind(trial); }, options.lanes)) {
    PlannedArray array;
    for (const auto& trial : trials)
      if (std::find(numbers.begin(), numbers.end(), trial.number) != numbers.end()) array.trials.push_back(trial);
    array.parts = run.maker.kind_parts(array.trials[0]);
    auto made = run.maker.make(array.trials);
    array.plan = tune::plan_array(made, options);
    array.peak_bytes = plan::peak_bytes(tune::memory_of(made), array.plan.plan);
    if (run.has_program) array.program = program_of(made, array.plan.plan);
    arrays.push_back(std::move(array));
  }
  keep_differences(arrays);
  return arrays;
}

std::string apart(const PlannedArray& array) {
  std::string text;
  for (const auto& [name, value] : array.parts) text += (text.empty() ? "" : ", ") + (name + " " + value);
  return text;
}

Json json_of(const std::vector<PlannedArray>& arrays, const std::string& summary) {
  Json json{{"trials", summary}, {"arrays", Json::array()}};
  for (const auto& array : arrays) {
    std::vector<std::int64_t> numbers;
    for (const auto& trial : array.trials) numbers.push_back(trial.number);
    Json entry{{"trials", numbers}, {"plan", Json::parse(plan::to_json(array.plan.plan))}, {"explanation", array.plan.explanation}};
    entry["candidates"] = array.plan.candidates;
    entry["throughput"] = array.plan.throughput;
    entry["peak_bytes"] = array.peak_bytes;
    entry["report"] = array.plan.report;
    if (!array.program.empty()) entry["program"] = array.program;
    entry["apart"] = Json::object();
    for (const auto& [name, value] : array.parts) entry["apart"][name] = value;
    json["arrays"].push_back(std::move(entry));
  }
  return json;
}

void print_indented(const std::string& text, std::ostream& out) {
  for (std::size_t from = 0; from < text.size();) {
    const auto to = std::min(text.find('\n', from), text.size());
    out << "    " << text.substr(from, to - from) << '\n';
    from = to + 1;
  }
}

}  // namespace

int dry_run(const DryRun& run, Streams streams) {
  std::string summary;
  const auto arrays = plan_arrays(run, next_trials(run, summary));
  if (run.format == Format::Json) {
    streams.out << tune::strict_json(json_of(arrays, summary)) << '\n';
    return 0;
  }
  auto& out = streams.out;
  out << summary << "; nothing is trained (--dry-run)\n";
  for (std::size_t i = 0; i < arrays.size(); ++i) {
    const auto& array = arrays[i];
    out << "array " << i << ": " << array.trials.size() << (array.trials.size() == 1 ? " lane" : " lanes");
    if (!array.parts.empty()) out << " with " << apart(array);
    out << "\n  plan: " << describe(array.plan.plan) << "\n  why: " << array.plan.explanation << "\n  memory: " << plan::readable_bytes(array.peak_bytes) << " at the peak of a step\n";
    if (!array.plan.throughput.empty()) out << "  throughput: " << array.plan.throughput << '\n';
    if (!array.plan.candidates.empty()) {
      out << "  plans tried (* the chosen one; predictions are a model's, scaled to what was measured):\n";
      print_indented(array.plan.candidates, out);
    }
    if (!array.plan.report.empty()) {
      out << "  what is fused:\n";
      print_indented(array.plan.report, out);
    }
    if (array.program.empty()) continue;
    out << "  recorded step:\n";
    print_indented(array.program, out);
  }
  if (arrays.size() > 1 && !arrays[0].parts.empty())
    out << "not fused with each other: arrays that differ in the optimizer's class, the batch size or the model's structure train one after the other\n";
  return 0;
}

}  // namespace hfta::cli
