#include "hfta/cli/summary.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <map>
#include <ostream>

#include "hfta/base/error.h"
#include "hfta/cli/trial_text.h"
#include "hfta/tune/json.h"
#include "hfta/tune/ledger.h"

namespace hfta::cli {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

bool is_there(const std::string& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

std::map<std::string, std::int64_t> counts(const std::vector<tune::Trial>& trials) {
  std::map<std::string, std::int64_t> counts;
  for (const auto& trial : trials) ++counts[state_word(trial.state)];
  return counts;
}

/// The first plan that was measured against training one model after the other.
const tune::ArrayPlan* measured(const Summary& summary) {
  for (const auto& [trials, plan] : summary.plans)
    if (plan.array_ms > 0) return &plan;
  return nullptr;
}

Json plan_json(const std::vector<std::int64_t>& trials, const tune::ArrayPlan& plan) {
  return {{"trials", trials}, {"plan", Json::parse(plan::to_json(plan.plan))}, {"explanation", plan.explanation}, {"report", plan.report}, {"throughput", plan.throughput}};
}

Json json_of(const Summary& summary) {
  Json json{{"study", summary.study}, {"storage", summary.storage}, {"folder", summary.folder}, {"status", summary.is_interrupted ? "interrupted" : "finished"}};
  json["trials"] = counts(summary.trials);
  json["best"] = nullptr;
  if (summary.best) {
    json["best"] = trial_json(*summary.best, summary.weights);
    json["best"]["test"] = nullptr;
    if (summary.test) json["best"]["test"] = {{"accuracy", summary.test->at("accuracy")}, {"loss", summary.test->at("validation_loss")}};
  }
  const auto rate = speed(summary.board);
  json["model_steps_per_second"] = rate > 0 ? Json(rate) : Json(nullptr);
  json["speedup"] = nullptr;
  if (const auto* plan = measured(summary)) {
    json["speedup"] = plan->alone_ms / plan->array_ms;
    json["array_step_ms"] = plan->array_ms;
    json["alone_step_ms"] = plan->alone_ms;
  }
  json["plans"] = Json::array();
  for (const auto& [trials, plan] : summary.plans) json["plans"].push_back(plan_json(trials, plan));
  return json;
}

std::string fixed(double value, int digits) {
  char text[64];
  std::snprintf(text, sizeof text, "%.*f", digits, value);
  return text;
}

void print_best(const Summary& summary, std::ostream& out) {
  const auto& best = *summary.best;
  out << "best: trial " << best.number << ", " << summary.metric << ' ' << rounded(best.values.at(0));
  if (summary.test) out << " (test accuracy " << rounded(summary.test->at("accuracy")) << ", test loss " << rounded(summary.test->at("validation_loss")) << ")";
  out << '\n';
  std::size_t width = 7;
  for (const auto& parameter : best.parameters) width = std::max(width, parameter.name.size());
  for (const auto& parameter : best.parameters)
    out << "  " << parameter.name << std::string(width - parameter.name.size() + 2, ' ') << tune::to_text(parameter.value()) << '\n';
  out << "  weights" << std::string(width - 7 + 2, ' ') << (is_there(summary.weights) ? summary.weights : "not kept") << '\n';
}

void print_text(const Summary& summary, std::ostream& out) {
  out << summary.trials.size() << (summary.trials.size() == 1 ? " trial: " : " trials: ");
  const char* before = "";
  for (const auto& [state, count] : counts(summary.trials)) {
    out << before << count << ' ' << state;
    before = ", ";
  }
  out << '\n';
  if (summary.best) print_best(summary, out);
  else out << "best: none is complete\n";
  if (const auto rate = speed(summary.board); rate > 0) out << "speed: " << fixed(rate, 0) << " model-steps/s\n";
  if (const auto* plan = measured(summary))
    out << "array: " << fixed(plan->alone_ms / plan->array_ms, 2) << " times as fast as one model after the other (" << fixed(plan->array_ms, 1) << " ms a step, "
        << fixed(plan->alone_ms, 1) << " ms alone, measured at the start)\n";
  for (const auto& [trials, plan] : summary.plans) out << "plan: " << trials.size() << (trials.size() == 1 ? " lane: " : " lanes: ") << describe(plan.plan) << '\n';
  out << "run folder: " << summary.folder << '\n';
  if (summary.is_interrupted) out << "interrupted: everything is saved; the same command goes on\n";
}

}  // namespace

void complete(Summary& summary, const Located& located, const tune::Study& study, const TrialMaker& maker) {
  const auto best = study.best();
  if (best && maker.has_test() && is_there(located.weights(best->number))) summary.test = maker.test(*best, located.weights(best->number));
}

void collect(Summary& summary, const Located& located, const tune::Study& study) {
  summary.trials = study.trials();
  summary.best = study.best();
  if (summary.best) summary.weights = located.weights(summary.best->number);
  summary.plans = tune::array_plans(study);
  summary.study = study.name();
  summary.storage = located.storage;
  summary.folder = located.folder;
  summary.metric = located.file->study.metric;
  auto plans = Json::array();
  for (const auto& [trials, plan] : summary.plans) plans.push_back(plan_json(trials, plan));
  const auto target = (fs::path(located.folder) / "plan.json").string();
  std::ofstream stream(target + ".part");
  stream << tune::strict_json(Json{{"format", 1}, {"arrays", plans}}) << '\n';
  stream.close();
  std::error_code error;
  if (stream) fs::rename(target + ".part", target, error);
  if (!stream || error) throw Error("cannot write " + target);
}

void print(const Summary& summary, Format format, Streams streams) {
  if (format == Format::Json) streams.out << tune::strict_json(json_of(summary)) << '\n';
  else print_text(summary, streams.out);
}

}  // namespace hfta::cli
