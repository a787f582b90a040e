#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "hfta/program/program.h"

namespace hfta::program {

/// Memory for what a program makes, one per worker: programs that the worker runs one after the other share it, so that it stays
/// in cache and does not grow with the number of groups.
class Arena {
 public:
  explicit Arena(c10::Device device) : device_(device) {}
  /// Fills it with NaN.
  void spoil();
  /// Grows to at least this size; what was there is lost.
  void reserve(std::int64_t bytes);
  /// Shrinks to this size; what was there is lost.
  void shrink(std::int64_t bytes);
  void* data() const;
  std::int64_t bytes() const;

 private:
  c10::Device device_;
  at::Tensor block_;
};

/// What a program runs on: for each slot the tensor whose memory it is, laid out as the recorded one, and the lanes' generators.
struct Binding {
  std::vector<at::Tensor> state, inputs;
  std::vector<at::Generator> generators;
};

/// A program ready to be replayed: operators on static tensors, no user code, no autograd.
///
/// Kernels write into given memory where LibTorch has one that does; where not, the result's memory is taken over without a copy and
/// freed after its last use. Replays of different executables may run at once on threads with an arena each.
class Executable {
 public:
  /// @param arena outlives the executable.
  Executable(Program program, std::shared_ptr<Arena> arena);
  ~Executable();
  Executable(Executable&&) noexcept;
  Executable& operator=(Executable&&) noexcept;

  /// Points the program at this memory. @throws InvalidArgument when a slot's bytes or device are not those recorded.
  void bind(const Binding& binding);
  /// Fills the memory that it works in with NaN: where a kernel reads what no node wrote, the next run shows it.
  void spoil_memory();
  /// Runs all nodes. Bound tensors must still be alive.
  void run();
  /// Runs every node alone and measures it, averaged over `repeats`. Milliseconds per node, in order.
  std::vector<double> profile(std::int64_t repeats);

  /// A result of the last run, valid until the next one; undefined where the recording had none.
  const at::Tensor& result(std::size_t index) const;
  std::size_t results() const;
  const Program& program() const;
  /// Bytes of the arena that it uses.
  std::int64_t arena_bytes() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace hfta::program
