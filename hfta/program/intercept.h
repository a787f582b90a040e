#pragma once

#include <ATen/core/Generator.h>
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
  /// What its random operators draw from instead of the process's default generator; undefined where that is left alone. Code that
  /// keeps and puts back the default one's state (checkpoints) must do so with this one.
  virtual at::Generator generator() const { return {}; }
};

/// Makes the modes that stand for interceptors on LibTorch's mode stack. In a Python process other code looks at that stack and
/// expects Python's objects on it, so the Python package brings a source of its own.
class ModeSource {
 public:
  using Mode = c10::impl::PyObject_TorchDispatchMode;
  virtual ~ModeSource() = default;
  virtual std::shared_ptr<Mode> make(Interceptor& interceptor) = 0;
  /// The interceptor of that mode is about to go; the mode itself may live on elsewhere.
  virtual void forget(const Mode& mode) = 0;
};

/// All scopes opened from now on take their modes from there; it must live as long as the process.
void use_modes_of(ModeSource& source);

/// What a mode's table does for `dispatch` and `detach` when the mode on top is an interceptor's: the mode is off the stack meanwhile.
void dispatch_to(Interceptor& interceptor, const c10::OperatorHandle& op, torch::jit::Stack& stack);
c10::intrusive_ptr<c10::TensorImpl> detach_below_mode(const c10::TensorImpl& self);

/// Puts an interceptor on top of the thread's mode stack for a scope; exception safe. Autograd's own threads carry it along.
class InterceptScope {
 public:
  explicit InterceptScope(Interceptor& interceptor);
  ~InterceptScope();
  InterceptScope(const InterceptScope&) = delete;
  InterceptScope& operator=(const InterceptScope&) = delete;

 private:
  std::int64_t depth_;
  ModeSource& source_;
  std::shared_ptr<ModeSource::Mode> mode_;
};

}  // namespace hfta::program
