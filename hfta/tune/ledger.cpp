#include "hfta/tune/ledger.h"

#include <algorithm>

#include "hfta/plan/plan.h"
#include "hfta/tune/json.h"

namespace hfta::tune {
namespace {

const std::string kArrays = std::string(kPrefix) + "arrays";

std::string plan_key(std::size_t array) { return std::string(kPrefix) + "plan:" + std::to_string(array); }

std::vector<std::vector<std::int64_t>> stored_arrays(const std::map<std::string, std::string>& attributes) {
  const auto found = attributes.find(kArrays);
  if (found == attributes.end()) return {};
  return parse_json(found->second, kArrays).get<std::vector<std::vector<std::int64_t>>>();
}

std::optional<ArrayPlan> plan_of(const std::map<std::string, std::string>& attributes, std::size_t array) {
  const auto found = attributes.find(plan_key(array));
  if (found == attributes.end()) return std::nullopt;
  const auto json = parse_json(found->second, found->first);
  ArrayPlan plan;
  plan.plan = plan::from_json(json.at("plan").dump(), found->first);
  plan.explanation = json.value("explanation", "");
  plan.report = json.value("report", "");
  plan.throughput = json.value("throughput", "");
  plan.array_ms = json.value("array_ms", 0.0);
  plan.alone_ms = json.value("alone_ms", 0.0);
  return plan;
}

}  // namespace

Ledger::Ledger(Study& study) : study_(study), arrays_(stored_arrays(study.user_attributes())) {}

void Ledger::add(const std::vector<std::vector<std::int64_t>>& arrays) {
  if (arrays.empty()) return;
  auto all = arrays_;
  all.insert(all.end(), arrays.begin(), arrays.end());
  study_.set_user_attribute(kArrays, python_json(Json(all)));
  arrays_ = std::move(all);
}

bool Ledger::has(std::int64_t trial) const {
  return std::any_of(arrays_.begin(), arrays_.end(), [&](const auto& array) { return std::find(array.begin(), array.end(), trial) != array.end(); });
}

std::optional<ArrayPlan> Ledger::plan(std::size_t array) const { return plan_of(study_.user_attributes(), array); }

void Ledger::set_plan(std::size_t array, const ArrayPlan& plan) {
  const Json json{{"plan", Json::parse(plan::to_json(plan.plan))}, {"explanation", plan.explanation}, {"report", plan.report},
                  {"throughput", plan.throughput}, {"array_ms", plan.array_ms}, {"alone_ms", plan.alone_ms}};
  study_.set_user_attribute(plan_key(array), python_json(json));
}

std::vector<std::pair<std::vector<std::int64_t>, ArrayPlan>> array_plans(const Study& study) {
  const auto attributes = study.user_attributes();
  std::vector<std::pair<std::vector<std::int64_t>, ArrayPlan>> plans;
  const auto arrays = stored_arrays(attributes);
  for (std::size_t i = 0; i < arrays.size(); ++i)
    if (auto plan = plan_of(attributes, i)) plans.emplace_back(arrays[i], *std::move(plan));
  return plans;
}

}  // namespace hfta::tune
