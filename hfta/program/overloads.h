#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include <optional>
#include <string>
#include <vector>

namespace hfta::program {

/// Every registered overload of an operator's name ("aten::rand").
std::vector<c10::OperatorHandle> overloads(const std::string& name);

/// The overload that writes its results into given tensors and has a kernel of its own for the device (most generated ones only
/// call the functional operator and copy), together with where each of its arguments comes from.
struct OutOverload {
  c10::OperatorHandle op;
  /// Per argument of `op`: the index of the operator's argument, or `-1 - r` for its result `r`.
  std::vector<std::int64_t> from;
};
std::optional<OutOverload> out_overload(const c10::OperatorHandle& op, c10::DispatchKey device);

/// The functional twin of an operator that changes its argument's shape in place (`transpose_` -> `transpose.int`), if it has one.
std::optional<c10::OperatorHandle> functional_twin(const c10::OperatorHandle& op);

}  // namespace hfta::program
