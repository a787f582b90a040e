#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "hfta/plan/search.h"
#include "hfta/plan/throughput.h"
#include "hfta/train/step.h"

namespace hfta::train {

/// Runs training steps by a plan: recorded where it says so and the step can be recorded, else plain. A refusal is reported once, with
/// its reason, and kept for `report()`.
class Runner {
 public:
  Runner(std::vector<lanes::ArrayBase*> arrays, optim::Optimizer& optimizer, LaneStep step, StepOptions options = {}, plan::Plan plan = {});
  ~Runner();
  Runner(Runner&&) noexcept;
  Runner& operator=(Runner&&) noexcept;

  StepOutput operator()(std::span<const Input> inputs);
  /// A step on each batch in turn, as `RecordedStep::run`. @param[out] outputs one for each step made, also where it throws.
  void run(std::span<const Batch> batches, std::vector<StepOutput>& outputs, const std::function<void()>& after_update = {});

  /// What runs: `recorded` is false once recording was refused.
  plan::Plan plan() const;
  /// Takes effect at the next call; fitted to the array's lanes.
  void set_plan(const plan::Plan& plan);
  /// What was recorded and how, or why it could not be.
  std::string report() const;

  /// Times a few real steps for each candidate and takes the best. Parameters, buffers, optimizer state and generators are put back, so
  /// that results do not depend on the measurement. With a memory limit the space's `memory` is measured where it is empty.
  /// Must be called between updates, not while accumulated gradients wait.
  plan::SearchResult choose_plan(std::span<const Input> inputs, plan::SearchSpace space, const plan::SearchOptions& options = {});
  /// Steps of the array by the present plan against the same models plainly one after the other, on one thread and on all cores;
  /// variants "array", "alone, 1 thread", "alone, N threads". Leaves no trace on training.
  plan::Throughput throughput(std::span<const Input> inputs, const plan::ThroughputOptions& options = {});

  /// Bytes of the arrays, optimizer and one lane's step, measured by a plain step that is undone (activations on the CPU only).
  plan::MemoryProfile memory_profile(std::span<const Input> inputs);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace hfta::train
