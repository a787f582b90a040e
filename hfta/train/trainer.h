#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "hfta/optim/schedule.h"
#include "hfta/plan/search.h"
#include "hfta/plan/throughput.h"
#include "hfta/train/batch_source.h"
#include "hfta/train/lane_record.h"
#include "hfta/train/plain_step.h"

namespace hfta::train {

/// Something that moves on with training and belongs to its state: a learning rate schedule.
struct Scheduled {
  std::function<void()> step;                      ///< Called after each epoch, or after each update.
  std::function<c10::IValue()> state{};            ///< For checkpoints: dicts, lists, numbers, strings, tensors.
  std::function<void(const c10::IValue&)> load{};  ///< The way back.
  bool each_update = false;
};
/// A learning rate schedule as the trainer steps and saves it; must outlive the trainer.
Scheduled scheduled(optim::Schedule& schedule, bool each_update = false);

/// How lanes are measured: `function` gives one scalar per name for a batch, its mean over the batch's items.
struct MetricOptions {
  std::vector<std::string> names;
  LaneFunction function;
};

struct TrainerOptions {
  std::int64_t epochs = 1;
  StepOptions step{};
  std::optional<plan::Plan> plan{};           ///< Where empty it is chosen by timing at the first epoch, or taken from a checkpoint.
  plan::SearchOptions search{};               ///< Of that choice.
  bool record = true;                         ///< Whether recorded steps are candidates.
  std::int64_t memory_limit_bytes = 0;        ///< 0: none.
  MetricOptions metrics{};                    ///< Measured on the validation batches, lanes in evaluation mode.
  std::int64_t evaluate_every = 1;            ///< Epochs; the last one always.
  std::optional<EarlyStop> early_stop{};
  std::vector<Scheduled> schedules{};
  /// Steps that a group makes before its worker takes the next group, so that its state stays in cache; 0: as many as take about a tenth
  /// of a second, at most 8. Results are the same, bit for bit; callbacks and the interrupt flag are looked at after these steps.
  std::int64_t steps_together = 0;
  bool compact = true;                        ///< Drops lanes that do not train from the array where the plan then has less to do.
  std::string checkpoint{};                   ///< File; empty: none is written.
  std::int64_t checkpoint_every = 1;          ///< Epochs; the last one and an interrupted one always.
  const std::atomic<int>* interrupt = nullptr;  ///< 1: ends after this epoch; 2 and more: after this step.
};

enum class RunStatus {
  Finished,     ///< All epochs, or no lane trains any more.
  Interrupted,  ///< By the flag or a callback; with flag 1 all is saved and `run` may go on.
};

/// What a step callback asks for.
enum class Request { GoOn, EndAfterEpoch, StopNow };

struct StepReport {
  std::int64_t epoch = 0, step = 0;            ///< Both from 0; the step within the epoch.
  const at::Tensor& losses;                    ///< `[lanes]`, in the array's order.
  const std::vector<std::int64_t>& ids;        ///< Lane ids in the array's order.
};

struct EpochReport {
  std::int64_t epoch = 0, steps = 0;
  std::chrono::duration<double> training{}, evaluation{};
  const std::vector<LaneRecord>& lanes;        ///< By id; a running lane's last entry is this epoch's.
};

struct Callbacks {
  std::function<Request(const StepReport&)> step{};                       ///< After each step, or for each of those made together.
  std::function<void(const EpochReport&)> epoch{};                        ///< May call `Trainer::stop_lane`.
  std::function<void(std::int64_t id, std::int64_t lane)> lane_ended{};   ///< Its state is final and its weights still are lane `lane`'s of the array.
  std::function<void(const std::string&)> message{};                      ///< Lines for people; the log where empty.
};

/// Trains an array for some epochs: by a plan, with metrics, early stops, failed lanes, compaction, checkpoints and resume.
///
/// A lane whose loss becomes NaN is marked failed; the others go on as if it were healthy. Lanes are known by their id, the index they
/// began with; dropped ones keep their record.
class Trainer {
 public:
  /// The step function gets the lane's present index, as `typed::lane_step` makes it. The arrays must be as built: no lane dropped.
  Trainer(std::vector<lanes::ArrayBase*> arrays, optim::Optimizer& optimizer, LaneStep step, TrainerOptions options);
  ~Trainer();

  /// Trains until `epochs` are done. @throws Error when a checkpoint cannot be written; it is tried before the first step.
  RunStatus run(BatchSource& training, BatchSource* validation = nullptr, const Callbacks& callbacks = {});

  /// The metrics of all lanes in the array over one pass of the source, by position in the array. Lanes are in evaluation mode.
  std::vector<Metrics> evaluate(BatchSource& source, const MetricOptions& metrics, std::int64_t epoch = 0);
  /// Ends a running lane after this epoch. @throws InvalidArgument for an unknown id.
  void stop_lane(std::int64_t id, const std::string& reason);

  std::int64_t epoch() const;                        ///< Epochs done.
  const std::vector<LaneRecord>& lanes() const;      ///< By id.
  const std::vector<std::int64_t>& ids() const;      ///< Ids of the array's lanes, in order.
  std::optional<plan::Plan> plan() const;            ///< Empty until it is chosen.
  std::string plan_reason() const;                   ///< One line: how the plan was chosen.
  std::string report() const;                        ///< What was recorded, or why not.
  /// Steps of the array against its models one after the other, on a first batch of the source; leaves no trace.
  plan::Throughput throughput(BatchSource& training, const plan::ThroughputOptions& options = {});
  /// Bytes of the arrays and a step on a first batch of the source.
  plan::MemoryProfile memory_profile(BatchSource& training);

  /// Writes the whole training state. @throws Error when it cannot be written.
  void save(const std::string& path) const;
  /// Goes on from a checkpoint: as if training had never stopped, bit for bit at the same plan.
  /// @throws InvalidArgument, before anything is changed, for a damaged file, another format or another array.
  void resume(const std::string& path);

  struct State;

 private:
  std::unique_ptr<State> state_;
};

}  // namespace hfta::train
