#include "hfta/lanes/compare.h"

#include <ATen/ops/equal.h>

#include <cmath>

#include "hfta/base/error.h"

namespace hfta::lanes {
namespace {

using program::Argument;
using program::Memory;
using program::Node;
using program::Program;

bool equal_values(const c10::IValue& a, const c10::IValue& b) {
  if (a.tagKind() != b.tagKind()) return false;
  if (a.isDouble()) return a.toDouble() == b.toDouble() || (std::isnan(a.toDouble()) && std::isnan(b.toDouble()));
  return a == b;
}

bool same_kind(const c10::IValue& a, const c10::IValue& b) {
  if ((a.isDouble() && b.isDouble()) || (a.isInt() && b.isInt())) return true;
  return equal_values(a, b);
}

template <typename Same>
bool equal_arguments(const std::vector<Argument>& a, const std::vector<Argument>& b, Same&& same) {
  if (a.size() != b.size()) return false;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (a[i].index() != b[i].index()) return false;
    const auto* plain = std::get_if<c10::IValue>(&a[i]);
    if (plain ? !same(*plain, std::get<c10::IValue>(b[i])) : !(a[i] == b[i])) return false;
  }
  return true;
}

bool same_memory(const Memory& a, const Memory& b) {
  return a.origin == b.origin && a.slot == b.slot && a.bytes == b.bytes && a.device == b.device;
}

bool same_node(const Node& a, const Node& b) {
  return a.op == b.op && a.grad_mode == b.grad_mode && a.rewinds_to == b.rewinds_to && equal_arguments(a.inputs, b.inputs, same_kind) &&
         equal_arguments(a.outputs, b.outputs, same_kind);
}

}  // namespace

bool is_number(const Argument& argument) {
  const auto* plain = std::get_if<c10::IValue>(&argument);
  return plain && (plain->isDouble() || plain->isInt());
}

std::optional<std::string> first_difference(const Program& a, const Program& b) {
  for (std::size_t i = 0; i < std::min(a.nodes.size(), b.nodes.size()); ++i)
    if (!same_node(a.nodes[i], b.nodes[i]))
      return base::message("node ", i, ": ", to_string(a, a.nodes[i]), " against ", to_string(b, b.nodes[i]));
  if (a.nodes.size() != b.nodes.size()) return base::message(a.nodes.size(), " nodes against ", b.nodes.size());
  if (a.memories.size() != b.memories.size() || !std::equal(a.memories.begin(), a.memories.end(), b.memories.begin(), same_memory))
    return "the sizes of what the steps make";
  for (std::size_t i = 0; i < std::min(a.values.size(), b.values.size()); ++i)
    if (a.values[i] != b.values[i]) return base::message("value ", i, ": shape ", at::IntArrayRef(a.values[i].sizes), " against ", at::IntArrayRef(b.values[i].sizes));
  if (a.values.size() != b.values.size() || a.results != b.results) return "the results";
  return std::nullopt;
}

bool same_numbers(const Program& a, const Program& b) {
  for (std::size_t i = 0; i < a.nodes.size(); ++i)
    if (!equal_arguments(a.nodes[i].inputs, b.nodes[i].inputs, equal_values)) return false;
  return a.memories == b.memories;
}

}  // namespace hfta::lanes
