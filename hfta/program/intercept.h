#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <c10/core/impl/TorchDispatchModeTLS.h>

#include <memory>

namespace hfta::program {

/// Sees every operator of a thread below autograd (and below LibTorch's batching layer) while an `InterceptScope` stands.
class Interceptor {
 public:
  virtual ~Interceptor() = default;
  /// Runs the operator on the stack's arguments and leaves its results there, as `op.callBoxed(stack)` does. What is called from
  /// here goes to the scope below, not to this interceptor again (unless an `InterceptScope` is opened anew).
  virtual void call(const c10::OperatorHandle& op, torch::jit::Stack& stack) = 0;
};

/// Puts an interceptor on top of the thread's mode stack for a scope; exception safe. Autograd's own threads carry it along.
class InterceptScope {
 public:
  explicit InterceptScope(Interceptor& interceptor);
  ~InterceptScope();
  InterceptScope(const InterceptScope&) = delete;
  InterceptScope& operator=(const InterceptScope&) = delete;

 private:
  std::int64_t depth_;
};

}  // namespace hfta::program
