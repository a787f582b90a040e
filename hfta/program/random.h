#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <optional>

#include "hfta/program/intercept.h"

namespace hfta::program {

/// The operator draws random numbers (LibTorch's tag `nondeterministic_seeded`).
bool is_random(const c10::OperatorHandle& op);

/// Index of the `Generator?` argument, if the operator has one.
std::optional<std::size_t> generator_argument(const c10::OperatorHandle& op);

/// A random operator ready to take a lane's generator: `op` itself, or its overload that has a generator (`rand` -> `rand.generator`); the
/// stack's arguments are those of the returned operator, with `generator` put in.
/// @throws Unsupported for an operator that can take none, or where the step passed a generator of its own.
c10::OperatorHandle with_generator(const c10::OperatorHandle& op, torch::jit::Stack& stack, const at::Generator& generator);

/// For a scope, every random operator of this thread (and of autograd's threads working for it) draws from `generator`, so that plain
/// steps of several lanes may run at once. The process's default generator is not touched.
class LaneRandom final : private Interceptor {
 public:
  explicit LaneRandom(at::Generator generator) : generator_(std::move(generator)), scope_(*this) {}

 private:
  void call(const c10::OperatorHandle& op, torch::jit::Stack& stack) override;
  at::Generator generator() const override { return generator_; }
  at::Generator generator_;
  InterceptScope scope_;
};

}  // namespace hfta::program
