#include "hfta/cli/hypers.h"

#include <algorithm>
#include <limits>
#include <map>

#include "hfta/base/error.h"
#include "hfta/base/options.h"
#include "hfta/cli/value.h"

namespace hfta::cli {
namespace {

const std::map<std::string, std::vector<std::string>>& table() {
  static const std::map<std::string, std::vector<std::string>> known{
      {"adadelta", {"lr", "rho", "eps", "weight_decay"}},
      {"adam", {"lr", "beta1", "beta2", "eps", "weight_decay"}},
      {"adamw", {"lr", "beta1", "beta2", "eps", "weight_decay"}},
      {"sgd", {"lr", "momentum", "dampening", "weight_decay", "nesterov"}},
  };
  return known;
}

}  // namespace

std::vector<std::string> optimizer_names() {
  std::vector<std::string> names;
  for (const auto& [name, hypers] : table()) names.push_back(name);
  return names;
}

const std::vector<std::string>& hyper_names(const std::string& optimizer) {
  const auto found = table().find(optimizer);
  HFTA_CHECK(found != table().end(), "cli::hyper_names: expected one of ", base::list(optimizer_names()), ", got '", optimizer, "'");
  return found->second;
}

bool is_hyper(const std::string& name) {
  return std::any_of(table().begin(), table().end(), [&](const auto& entry) {
    return std::find(entry.second.begin(), entry.second.end(), name) != entry.second.end();
  });
}

HyperRange hyper_range(const std::string& name) {
  constexpr double kMost = std::numeric_limits<double>::infinity();
  if (name == "nesterov") return {0, 1, true};
  if (name == "beta1" || name == "beta2" || name == "rho" || name == "momentum") return {0, 1};
  return {0, kMost};
}

}  // namespace hfta::cli
