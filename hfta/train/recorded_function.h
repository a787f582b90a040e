#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "hfta/lanes/array.h"
#include "hfta/plan/plan.h"
#include "hfta/program/work.h"
#include "hfta/train/plain_step.h"
#include "hfta/train/step.h"

namespace hfta::train {

struct RecordOptions {
  /// Takes tensors that the function captured from outside as constants, instead of refusing them.
  bool freeze_captured = false;
  /// Recordings kept, one per shape of the inputs; the least recently used is dropped.
  std::size_t limit = 8;
  /// Operators that a kernel computes together become one (`lanes/merge.h`); false keeps each as it was recorded.
  bool merges = true;
  /// What else the function depends on, as a text: recordings are kept for each, as for each shape of the inputs.
  std::function<std::string()> context{};
  /// A name for a tensor that was captured ("the closure's mask"), for the refusal; empty: none is known.
  std::function<std::string(const at::Tensor&)> name_captured{};
};

/// A function of arrays, recorded once per lane and input shape, fused by groups and replayed on workers by a plan.
///
/// Recording leaves no trace on the lanes: state and generators are as before. The first replays are checked against the plain function on
/// two lanes, on copies of their state, before anything real is touched.
class RecordedFunction {
 public:
  RecordedFunction(std::vector<lanes::ArrayBase*> arrays, LaneFunction function, plan::Plan plan, RecordOptions options = {});
  ~RecordedFunction();

  /// Called on the worker right after a group's replay, while its data is in cache: results `[width, ...]` of lanes `[first, first + width)`,
  /// valid during the call.
  using After = std::function<void(std::int64_t first, std::int64_t width, std::span<const at::Tensor> results)>;

  /// Replays for all lanes; records first where the shape of the inputs is new.
  /// @throws Unsupported, before anything is changed, when the function cannot be recorded or a check does not agree; the line says why.
  void run(std::span<const Input> inputs, const After& after);

  /// The same after the replay on batch `batch` of several.
  using AfterEach = std::function<void(std::size_t batch, std::int64_t first, std::int64_t width, std::span<const at::Tensor> results)>;
  /// Called before the first `count` batches are replayed together.
  using Before = std::function<void(std::size_t count)>;

  /// `run` on the first batch and on those that follow it with the same shapes: a group goes through them before its worker takes the next
  /// group, so that what it works on stays in the worker's cache.
  /// @returns how many batches were taken.
  std::size_t run_together(std::span<const Batch> batches, const AfterEach& after, const Before& before = {});

  /// What one lane's function asks of the machine, and a text that is equal where lanes, their structures, inputs and operators are; records
  /// first where the shape of the inputs is new. @throws as `run`.
  std::pair<program::Work, std::string> work(std::span<const Input> inputs);

  const plan::Plan& plan() const;
  /// Takes effect at the next run; programs recorded from lanes are kept. Lowerings in the plan are used; unknown ones are measured.
  void set_plan(plan::Plan plan);
  /// What is fused and how, what is not and why, recordings kept; a few lines.
  std::string report() const;
  /// The programs in use, with the mean time of each node over `repeats` replays on copies of the state where `repeats > 0`.
  std::string print(std::int64_t repeats = 0);
  /// Bytes that one worker needs for what its groups make.
  std::int64_t activation_bytes() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace hfta::train
