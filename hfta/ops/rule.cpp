#include "hfta/ops/rule.h"

#include <c10/util/Exception.h>

#include <unordered_map>

namespace hfta::ops {
namespace {

std::unordered_map<std::string, OperatorRules>& table();

}  // namespace

// One line per file of rules. Listed here, not registered by static objects, so that no linker drops them.

namespace {

std::unordered_map<std::string, OperatorRules>& filling() {
  static std::unordered_map<std::string, OperatorRules> rules;
  return rules;
}

std::unordered_map<std::string, OperatorRules>& table() {
  static const bool filled = [] {
    return true;
  }();
  static_cast<void>(filled);
  return filling();
}

}  // namespace

void add_rules(OperatorRules rules) {
  std::string name(rules.name);
  TORCH_INTERNAL_ASSERT(filling().emplace(std::move(name), std::move(rules)).second, "two sets of rules for one operator");
}

const OperatorRules* find_rules(const c10::OperatorName& name) {
  const auto& rules = table();
  const auto found = rules.find(name.overload_name.empty() ? name.name : name.name + "." + name.overload_name);
  return found == rules.end() ? nullptr : &found->second;
}

}  // namespace hfta::ops
