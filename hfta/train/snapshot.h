#pragma once

#include <memory>
#include <span>

#include "hfta/lanes/array.h"
#include "hfta/optim/optimizer.h"

namespace hfta::train {

/// A copy of all that a training step changes: parameters, buffers, optimizer state, the lanes' generators. Gradients are not kept.
class Snapshot {
 public:
  Snapshot(std::span<lanes::ArrayBase* const> arrays, optim::Optimizer& optimizer);
  ~Snapshot();
  Snapshot(Snapshot&&) noexcept;

  /// Puts everything back, bit for bit, and clears gradients.
  /// @throws InvalidArgument when lanes have moved since.
  void restore() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// Takes a snapshot and restores it at the end of the scope, also after an exception: measurements leave no trace on training.
class Undisturbed {
 public:
  Undisturbed(std::span<lanes::ArrayBase* const> arrays, optim::Optimizer& optimizer) : snapshot_(arrays, optimizer) {}
  ~Undisturbed() { snapshot_.restore(); }
  Undisturbed(const Undisturbed&) = delete;
  Undisturbed& operator=(const Undisturbed&) = delete;
  void restore_now() const { snapshot_.restore(); }

 private:
  Snapshot snapshot_;
};

}  // namespace hfta::train
