#include "hfta/tune/resume.h"

#include <algorithm>
#include <utility>

#include "hfta/base/error.h"

namespace hfta::tune {
namespace {

using Definitions = std::vector<std::pair<std::string, std::string>>;  // name -> all its definitions

void define(Definitions& definitions, const std::string& name, const std::string& text) {
  const auto at = std::find_if(definitions.begin(), definitions.end(), [&](const auto& d) { return d.first == name; });
  if (at == definitions.end()) definitions.emplace_back(name, text);
  else at->second += " or " + text;
}

Definitions definitions_of(const Space& space) {
  Definitions definitions;
  for (const auto& dimension : space.dimensions()) {
    auto text = describe(dimension.distribution);
    if (dimension.when) {
      text += " where \"" + dimension.when->parameter + "\" is ";
      for (std::size_t i = 0; i < dimension.when->values.size(); ++i) text += (i ? " or " : "") + to_json(dimension.when->values[i]);
    }
    define(definitions, dimension.name, text);
  }
  return definitions;
}

std::vector<std::string> differences(const Definitions& before, const Definitions& now) {
  const auto text_of = [](const Definitions& definitions, const std::string& name) {
    const auto at = std::find_if(definitions.begin(), definitions.end(), [&](const auto& d) { return d.first == name; });
    return at == definitions.end() ? std::string("nothing") : at->second;
  };
  std::vector<std::string> changes;
  const auto compare = [&](const std::string& name) {
    const auto old = text_of(before, name), fresh = text_of(now, name);
    if (old != fresh) changes.push_back("\"" + name + "\" to be " + old + " as in the study, got " + fresh);
  };
  for (const auto& [name, text] : before) compare(name);
  for (const auto& [name, text] : now)
    if (text_of(before, name) == "nothing") compare(name);
  return changes;
}

std::string trials_of(std::int64_t count) { return base::message(count, count == 1 ? " trial" : " trials"); }

}  // namespace

TrialPlan plan_trials(std::int64_t existing, const TrialRequest& request) {
  const auto [total, more, points] = request;
  HFTA_CHECK(total >= 0, "tune::plan_trials: expected a number of trials from 0 on, got ", total);
  HFTA_CHECK(!more || *more >= 0, "tune::plan_trials: expected a number of further trials from 0 on, got ", more.value_or(0));
  TrialPlan plan;
  plan.create = more ? *more : std::max<std::int64_t>(total - existing, 0);
  plan.summary = base::message("the study has ", trials_of(existing), ", ");
  plan.summary += more ? base::message(*more, " more wanted") : base::message(total, " wanted in total");
  const bool limited = points && static_cast<std::uint64_t>(existing + plan.create) > *points;
  if (limited) plan.create = std::max<std::int64_t>(static_cast<std::int64_t>(*points) - existing, 0);
  plan.summary += base::message(": ", plan.create, " new");
  if (limited) plan.summary += base::message(", since the space has ", *points, *points == 1 ? " point" : " points");
  else if (plan.create == 0 && !more && existing > 0) plan.summary += " (ask for more than it has to go on)";
  return plan;
}

std::vector<std::string> space_changes(const Space& before, const Space& now) { return differences(definitions_of(before), definitions_of(now)); }

std::vector<std::string> space_changes(std::span<const Trial> before, const Space& now) {
  Definitions seen;
  for (const auto& trial : before)
    for (const auto& parameter : trial.parameters) {
      const auto text = describe(parameter.distribution);
      const auto at = std::find_if(seen.begin(), seen.end(), [&](const auto& d) { return d.first == parameter.name; });
      if (at == seen.end()) seen.emplace_back(parameter.name, text);
      else at->second = text;  // the latest is what the study uses
    }
  return seen.empty() ? std::vector<std::string>() : differences(seen, definitions_of(now));
}

}  // namespace hfta::tune
