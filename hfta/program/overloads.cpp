#include "hfta/program/overloads.h"

#include <torch/csrc/jit/runtime/operator.h>

#include <algorithm>
#include <array>
#include <mutex>
#include <string_view>
#include <unordered_map>

namespace hfta::program {
namespace {

using Arguments = std::vector<c10::Argument>;

// Their kernels resize a scalar result on the way. Seen: two warn of it, huber_loss fails, binary_cross_entropy gives a wrong value (which the
// check of the first replays refuses).
constexpr std::array<std::string_view, 4> kResizeTheirResult{"aten::mse_loss", "aten::smooth_l1_loss", "aten::huber_loss",
                                                             "aten::binary_cross_entropy"};

bool same_type(const c10::Argument& a, const c10::Argument& b) { return *a.type() == *b.type(); }

/// Matches `op`'s arguments by name and type and takes the writable rest as its results in order.
std::optional<std::vector<std::int64_t>> match_out(const c10::FunctionSchema& op, const c10::FunctionSchema& out) {
  const std::size_t results = op.returns().size();
  if (out.arguments().size() != op.arguments().size() + results || out.returns().size() != results) return std::nullopt;
  std::vector<std::int64_t> from;
  std::size_t taken = 0, result = 0;
  for (const auto& argument : out.arguments()) {
    const bool written = argument.alias_info() && argument.alias_info()->isWrite();
    if (written) {
      if (result == results || !same_type(argument, op.returns()[result])) return std::nullopt;
      from.push_back(-1 - static_cast<std::int64_t>(result++));
      continue;
    }
    std::size_t i = 0;
    while (i < op.arguments().size() && op.arguments()[i].name() != argument.name()) ++i;
    if (i == op.arguments().size() || !same_type(argument, op.arguments()[i])) return std::nullopt;
    from.push_back(static_cast<std::int64_t>(i));
    ++taken;
  }
  if (taken != op.arguments().size() || result != results) return std::nullopt;
  return from;
}

std::optional<OutOverload> find_out(const c10::OperatorHandle& op, c10::DispatchKey device) {
  const auto& schema = op.schema();
  if (schema.is_mutable() || schema.returns().empty()) return std::nullopt;
  if (std::ranges::find(kResizeTheirResult, schema.name()) != kResizeTheirResult.end()) return std::nullopt;
  for (const auto& result : schema.returns())
    if (result.alias_info() || result.type()->kind() != c10::TypeKind::TensorType) return std::nullopt;
  for (const auto& candidate : overloads(schema.name())) {
    if (!candidate.schema().is_mutable() || !candidate.hasKernelForDispatchKey(device)) continue;
    if (auto from = match_out(schema, candidate.schema())) return OutOverload{candidate, std::move(*from)};
  }
  return std::nullopt;
}

}  // namespace

std::vector<c10::OperatorHandle> overloads(const std::string& name) {
  std::vector<c10::OperatorHandle> found;
  for (const auto& op : torch::jit::getAllOperatorsFor(c10::Symbol::fromQualString(name)))
    if (const auto handle = c10::Dispatcher::singleton().findSchema({name, op->schema().overload_name()})) found.push_back(*handle);
  return found;
}

std::optional<OutOverload> out_overload(const c10::OperatorHandle& op, c10::DispatchKey device) {
  static std::mutex mutex;
  static std::unordered_map<std::string, std::optional<OutOverload>> table;
  const std::string key = c10::toString(op.operator_name()) + '/' + c10::toString(device);
  const std::lock_guard lock(mutex);
  const auto found = table.find(key);
  if (found != table.end()) return found->second;
  return table.emplace(key, find_out(op, device)).first->second;
}

std::optional<c10::OperatorHandle> functional_twin(const c10::OperatorHandle& op) {
  const auto& schema = op.schema();
  const std::string& name = schema.name();
  if (!name.ends_with('_')) return std::nullopt;
  for (const auto& candidate : overloads(name.substr(0, name.size() - 1))) {
    const auto& arguments = candidate.schema().arguments();
    if (candidate.schema().is_mutable() || arguments.size() != schema.arguments().size()) continue;
    bool same = true;
    for (std::size_t i = 0; same && i < arguments.size(); ++i)
      same = arguments[i].name() == schema.arguments()[i].name() && same_type(arguments[i], schema.arguments()[i]);
    if (same) return candidate;
  }
  return std::nullopt;
}

}  // namespace hfta::program
