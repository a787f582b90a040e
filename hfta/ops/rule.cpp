#include "hfta/ops/rule.h"

#include <c10/util/Exception.h>

#include <mutex>
#include <unordered_map>

#include "hfta/ops/register.h"

namespace hfta::ops {
namespace {

using Table = std::unordered_map<std::string, OperatorRules>;

Table& filling() {
  static Table rules;
  return rules;
}

void register_all() {
  register_convolution_rules();
  register_product_rules();
  register_random_rules();
}

const Table& table() {
  static std::once_flag filled;
  std::call_once(filled, register_all);
  return filling();
}

}  // namespace

void add_rules(OperatorRules rules) {
  std::string name(rules.name);
  TORCH_INTERNAL_ASSERT(filling().emplace(name, std::move(rules)).second, "two sets of rules for ", name);
}

const OperatorRules* find_rules(const c10::OperatorName& name) {
  const auto& rules = table();
  const auto found = rules.find(name.overload_name.empty() ? name.name : name.name + "." + name.overload_name);
  return found == rules.end() ? nullptr : &found->second;
}

}  // namespace hfta::ops
