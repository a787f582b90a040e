#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <optional>
#include <string>

namespace hfta::program {

/// Why an operator cannot be part of a recorded step ("reads a value on the host"), or nothing. LibTorch's tags alone do not tell:
/// indexing is tagged as data-dependent always, and `equal` of a tensor with itself is harmless.
std::optional<std::string> why_refused(const c10::OperatorHandle& op, const torch::jit::Stack& stack);

/// The operator leaves nothing behind and is not taken down (profiler marks, version checks).
bool leaves_no_trace(const c10::OperatorHandle& op);

}  // namespace hfta::program
