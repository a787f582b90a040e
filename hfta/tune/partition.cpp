#include "hfta/tune/partition.h"

#include <algorithm>

#include "hfta/base/error.h"

namespace hfta::tune {
namespace {

using Common = std::vector<std::pair<std::string, Value>>;

Common common_of(const Trial& trial, const std::vector<std::string>& by) {
  Common common;
  for (const auto& name : by)
    if (const auto* parameter = find(trial.parameters, name)) common.emplace_back(name, parameter->value());
  return common;
}

void check_names(std::span<const Trial> trials, const std::vector<std::string>& by) {
  const auto known = parameter_names(trials);
  for (const auto& name : by) {
    std::string list;
    for (const auto& other : known) list += (list.empty() ? "" : ", ") + other;
    HFTA_CHECK(trials.empty() || std::find(known.begin(), known.end(), name) != known.end(), "tune::split: expected one of the parameters ", list,
               ", got \"", name, "\"");
  }
}

}  // namespace

std::vector<Batch> split(std::span<const Trial> trials, const SplitOptions& options) {
  HFTA_CHECK(options.max_lanes >= 0, "tune::split: expected a limit of lanes from 0 on, got ", options.max_lanes);
  check_names(trials, options.by);
  std::vector<Batch> batches;
  for (const auto& trial : trials) {
    auto common = common_of(trial, options.by);
    const auto at = std::find_if(batches.begin(), batches.end(), [&](const Batch& b) { return b.common == common; });
    if (at == batches.end()) batches.push_back({{trial.number}, std::move(common)});
    else at->trials.push_back(trial.number);
  }
  if (options.max_lanes == 0) return batches;
  std::vector<Batch> limited;
  for (const auto& batch : batches) {
    const auto count = static_cast<std::int64_t>(batch.trials.size());
    const auto parts = (count + options.max_lanes - 1) / options.max_lanes;
    for (std::int64_t part = 0; part < parts; ++part) {
      const auto from = batch.trials.begin() + count * part / parts, to = batch.trials.begin() + count * (part + 1) / parts;
      limited.push_back({{from, to}, batch.common});
    }
  }
  return limited;
}

}  // namespace hfta::tune
