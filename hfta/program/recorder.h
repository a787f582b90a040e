#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "hfta/program/intercept.h"
#include "hfta/program/program.h"

namespace hfta::program {

/// Memory that the recorder knows before it starts: what this tensor spans is slot `slot` of State or Input.
struct Region {
  at::Tensor tensor;
  Origin origin;
  std::int64_t slot;
};

struct RecordOptions {
  std::vector<Region> regions;
  /// Generators of the lanes that are recorded; a random operator that names none gets entry 0.
  std::vector<at::Generator> generators;
};

/// A tensor that no node made and that is no State and no Input: told by its first use.
struct Captured {
  std::int32_t memory;       ///< In the program: an `Origin::Constant` with the contents at its first use.
  at::Tensor tensor;         ///< Kept so that its memory is not used again: the same memory in two recordings was captured, not made anew.
  std::string place;         ///< "argument \"mask\" of aten::mul.Tensor, node 7, float [2, 3]"
};

struct Recording {
  Program program;
  std::vector<Captured> captured;
};

/// Takes down every operator that the thread runs below autograd while the recorder stands.
///
/// Values are told by memory and view; storages are held weakly, so that recording needs no more memory than the step.
/// @throws Unsupported, from inside the step, at an operator that reads values on the host, whose result shapes depend on data, that
/// rebinds memory, or that has no plain memory (sparse); the line names the operator and the node.
class Recorder final : private Interceptor {
 public:
  explicit Recorder(RecordOptions options);
  ~Recorder() override;

  /// Runs the step with the recorder on. May be called once.
  void run(const std::function<void()>& step);
  /// Asks for a tensor as the next result; an undefined tensor becomes an empty result. Only after `run`.
  void add_result(const at::Tensor& tensor);
  Recording finish();

 private:
  void call(const c10::OperatorHandle& op, torch::jit::Stack& stack) override;
  at::Generator generator() const override;
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace hfta::program
