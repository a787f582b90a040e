#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "hfta/plan/memory.h"
#include "hfta/train/trainer.h"
#include "hfta/tune/resume.h"
#include "hfta/tune/study.h"

namespace hfta::tune {

/// Trials made trainable: lane i is trial i of those that it was made for. What is used outlives it (data, plug-ins).
struct TrialArray {
  std::unique_ptr<lanes::ArrayBase> array;
  std::unique_ptr<optim::Optimizer> optimizer;
  train::LaneStep step;
  train::StepOptions step_options{};
  std::unique_ptr<train::BatchSource> training, validation;
  train::MetricOptions metrics;                      ///< Names the tuned one.
  std::vector<train::Scheduled> schedules{};
  std::vector<std::shared_ptr<void>> owned{};        ///< What else the schedules and functions use.
};

/// How an array will run, and what that was compared with.
struct ArrayPlan {
  plan::Plan plan;
  std::string explanation{};
  std::string candidates{};                          ///< A line for each plan that was tried: its time, or why it has none. Empty where none was.
  std::string report{};                              ///< What was recorded, or why not.
  double array_ms = 0, alone_ms = 0;                 ///< One step of all lanes; of the same models one after the other. 0: not measured.
  std::string throughput{};                          ///< The same for people.
};

struct TunerOptions {
  std::string folder;                                ///< Run folder: `checkpoints/`, `lanes/`, `plan.json`.
  std::string metric;                                ///< Of the validation examples; its last value is the trial's.
  std::uint64_t seed = 0;                            ///< Of what the sampler draws.
  std::int64_t lanes = 64;                           ///< Most of an array.
  std::int64_t epochs = 1;
  std::int64_t checkpoint_every = 1;
  std::optional<train::EarlyStop> early_stop{};
  bool keeps_weights = true;                         ///< Writes `lanes/trial-N.pt` as a trial completes.
  std::optional<plan::Plan> plan{};                  ///< Of every array; where empty it is chosen by timing.
  bool tries_recorded = true, tries_plain = true;    ///< What is tried for that.
  bool measures_lowerings = true;                    ///< Of the plans that are tried.
  plan::SearchOptions search{};
  bool measures_throughput = true;
  const std::atomic<int>* interrupt = nullptr;       ///< As the trainer's.
};

/// What happens meanwhile. Each may be empty.
struct TunerEvents {
  std::function<void(const std::vector<Trial>& running, const std::vector<std::vector<std::int64_t>>& arrays)> began{};
  std::function<void(const std::vector<std::int64_t>& trials, const std::string& doing)> phase{};  ///< "timing plans", "".
  std::function<void(const std::vector<std::int64_t>& trials, const ArrayPlan& plan, std::int64_t epoch)> planned{};  ///< `epoch`: where it goes on.
  std::function<void(const std::vector<std::int64_t>& trials, const train::StepReport&)> step{};
  std::function<void(const std::vector<std::int64_t>& trials, const train::EpochReport&)> epoch{};
  std::function<void(std::int64_t trial, TrialState state, const train::LaneRecord&)> ended{};
  std::function<void(const std::string&)> message{};
};

/// Trains the trials of a study: those that agree in `kind` together as one array, one array after the other. Every epoch is kept in the
/// study; a killed run goes on from its checkpoints with the plans it had and ends as if it had never stopped.
class Tuner {
 public:
  using Kind = std::function<std::string(const Trial&)>;
  using Make = std::function<TrialArray(const std::vector<Trial>&)>;

  /// @param kind equal texts: the trials can be lanes of one array.
  Tuner(Study& study, const StudyLock& lock, const Space& space, Sampler& sampler, Kind kind, Make make, TunerOptions options);
  ~Tuner();

  /// Goes on with what was left running and begins up to `create` new trials. @returns Interrupted when it was stopped before the end.
  train::RunStatus run(std::int64_t create, const TunerEvents& events = {});

  /// Checkpoint of array `index` and weights of a trial, in the run folder.
  static std::string checkpoint_path(const std::string& folder, std::size_t index);
  static std::string weights_path(const std::string& folder, std::int64_t trial);

  struct State;

 private:
  std::unique_ptr<State> state_;
};

/// Arrays as lists of trial numbers: those of one kind together, at most `lanes` each, in the order of their first trial.
std::vector<std::vector<std::int64_t>> arrays_of(const std::vector<Trial>& trials, const Tuner::Kind& kind, std::int64_t lanes);

/// Takes `known` or the options' plan, or chooses one by timing real steps, and measures it against training one model after the other.
/// Leaves no trace on the array.
ArrayPlan plan_array(TrialArray& array, const TunerOptions& options, const std::optional<plan::Plan>& known = {});
/// Bytes that the array needs by a plan, measured on one step.
plan::MemoryProfile memory_of(TrialArray& array);

}  // namespace hfta::tune
