#include "hfta/ops/rule.h"

#include <c10/util/Exception.h>

#include <algorithm>
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
  register_pooling_rules();
  register_product_rules();
  register_random_rules();
  register_batch_norm_rules();
  register_nll_loss_rules();
  register_elementwise_rules();
  register_number_rules();
  register_layer_norm_rules();
  register_embedding_rules();
  register_pointwise_loss_rules();
  register_margin_loss_rules();
  register_attention_rules();
  register_folded_rules();
  register_axis_rules();
  register_recurrent_rules();
  register_softmax_rules();
  register_merged_rules();
  register_rectified_pool_rules();
  register_pooled_convolution_rules();
}

const Table& table() {
  static std::once_flag filled;
  std::call_once(filled, register_all);
  return filling();
}

}  // namespace

void add_rules(OperatorRules rules) {
  const auto [entry, fresh] = filling().try_emplace(std::string(rules.name), rules);
  entry->second.name = entry->first;  // the caller's may not live on
  if (fresh) return;
  auto& lowerings = entry->second.lowerings;
  for (auto& lowering : rules.lowerings) {
    const bool known = std::any_of(lowerings.begin(), lowerings.end(), [&](const Lowering& one) { return one.name == lowering.name; });
    TORCH_INTERNAL_ASSERT(!known, "two lowerings ", lowering.name, " for ", rules.name);
    lowerings.push_back(std::move(lowering));
  }
}

const OperatorRules* find_rules(const c10::OperatorName& name) {
  const auto& rules = table();
  const auto found = rules.find(name.overload_name.empty() ? name.name : name.name + "." + name.overload_name);
  return found == rules.end() ? nullptr : &found->second;
}

}  // namespace hfta::ops
