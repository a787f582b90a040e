#include "hfta/train/trainer.h"

#include <ATen/ops/tensor.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <numeric>

#include "hfta/base/error.h"
#include "hfta/base/log.h"
#include "hfta/base/threads.h"
#include "hfta/train/epoch.h"

namespace hfta::train {
namespace {

constexpr double kWorthwhile = 0.9;  // Dropping lanes costs a copy and new recordings: the work must shrink by a tenth.

using Clock = std::chrono::steady_clock;

// Width of the groups that run one after the other on the busiest worker: what a step of so many lanes costs by the plan.
std::int64_t work(const plan::Plan& plan, std::int64_t lanes) {
  const auto fit = plan::fitted(plan, lanes);
  return (plan::groups(fit, lanes) + fit.workers - 1) / fit.workers * fit.width;
}

// A folder that cannot be written is told before hours of training, not after.
void check_writable(const std::string& path) {
  const auto folder = std::filesystem::path(path).parent_path();
  std::error_code error;
  if (!folder.empty()) std::filesystem::create_directories(folder, error);
  const auto probe = path + ".probe";
  const int file = error ? -1 : open(probe.c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0666);
  if (file < 0)
    throw Error("train::Trainer: expected to write checkpoints to \"" + path + "\", got " + (error ? error.message() : std::strerror(errno)));
  close(file);
  unlink(probe.c_str());
}

std::vector<std::string> sorted(std::vector<std::string> names) {
  std::sort(names.begin(), names.end());
  return names;
}

plan::SearchSpace space_of(const lanes::ArrayBase& array, const TrainerOptions& options) {
  plan::SearchSpace space{.lanes = array.lanes(), .cores = array.device().is_cpu() ? base::cores() : 1, .recorded = options.record, .device = array.device().str()};
  for (const auto& parameter : array.parameters())
    if (parameter.tensor.scalar_type() == at::kDouble) space.precision = "float64";
  space.memory_limit_bytes = options.memory_limit_bytes;
  space.steps = options.steps_together > 0 ? options.steps_together : train::steps_together(0);
  return space;
}

TrainBatch first_batch(BatchSource& source, std::int64_t epoch) {
  source.begin_epoch(epoch);
  auto batch = source.next();
  HFTA_CHECK(batch, "train::Trainer: expected at least 1 batch in epoch ", epoch, ", got none");
  return std::move(*batch);
}

class EvaluationMode {
 public:
  explicit EvaluationMode(const Trainer::State& state) : state_(state) { state_.train_mode(false); }
  ~EvaluationMode() { state_.train_mode(true); }
  EvaluationMode(const EvaluationMode&) = delete;
  EvaluationMode& operator=(const EvaluationMode&) = delete;

 private:
  const Trainer::State& state_;
};

// The course of one call of `run`.
class Course {
 public:
  Course(Trainer& trainer, Trainer::State& state, BatchSource& training, BatchSource* validation, const Callbacks& callbacks)
      : trainer_(trainer), s_(state), training_(training), validation_(validation), callbacks_(callbacks) {}

  RunStatus run() {
    if (!s_.options.checkpoint.empty()) check_writable(s_.options.checkpoint);
    for (auto& lane : s_.records)
      if (lane.state == LaneState::Finished && s_.epoch < s_.options.epochs) lane.state = LaneState::Running;
    if (s_.epoch < s_.options.epochs && s_.anyone_runs()) take_plan();
    while (s_.epoch < s_.options.epochs && s_.anyone_runs()) {
      const auto before = Clock::now();
      Epoch epoch(s_, training_, callbacks_);
      const auto request = epoch.run();
      if (request == Request::StopNow) return RunStatus::Interrupted;
      HFTA_CHECK(epoch.steps() > 0, "train::Trainer: expected at least ", s_.options.step.accumulate, " batches in epoch ", s_.epoch, ", got fewer");
      end_epoch(epoch, Clock::now() - before);
      const bool more = s_.epoch < s_.options.epochs && s_.anyone_runs();
      if (more) compact();
      const bool due = !more || request != Request::GoOn || s_.epoch % s_.options.checkpoint_every == 0;
      if (due && !s_.options.checkpoint.empty()) trainer_.save(s_.options.checkpoint);
      if (more && request != Request::GoOn) return RunStatus::Interrupted;
    }
    return RunStatus::Finished;
  }

 private:
  void say(const std::string& line) const { callbacks_.message ? callbacks_.message(line) : base::log(base::LogLevel::Info, line); }

  void take_plan() {
    if (!s_.plan && s_.options.plan) s_.plan = s_.options.plan, s_.plan_reason = "as asked: " + describe(*s_.plan);
    if (s_.plan) return s_.runner.set_plan(*s_.plan);
    s_.train_mode(true);
    const auto batch = first_batch(training_, s_.epoch);
    auto search = s_.options.search;
    if (const auto batches = training_.batches(); batches && search.run_steps == 0) search.run_steps = *batches * (s_.options.epochs - s_.epoch);
    const auto found = s_.runner.choose_plan(s_.inputs_now(batch), space_of(*s_.arrays[0], s_.options), search);
    s_.plan = found.plan;
    s_.plan_reason = found.explanation;
    say("plan: " + found.explanation);
  }

  void end_epoch(const Epoch& epoch, Clock::duration training) {
    const auto begun = Clock::now();
    const bool last = s_.epoch + 1 == s_.options.epochs;
    std::vector<Metrics> metrics(s_.lane_count());
    if (validation_ && !s_.options.metrics.names.empty() && (last || (s_.epoch + 1) % s_.options.evaluate_every == 0))
      metrics = trainer_.evaluate(*validation_, s_.options.metrics, s_.epoch);
    const auto losses = epoch.mean_losses();
    std::vector<std::size_t> running;
    for (std::size_t lane = 0; lane < metrics.size(); ++lane) {
      auto& record = s_.records[s_.ids[lane]];
      if (!record.is_running()) continue;
      running.push_back(lane);
      metrics[lane]["loss"] = losses[lane];
      record.epochs.push_back(std::move(metrics[lane]));
      if (epoch.failed_at()[lane] < 0) continue;
      record.state = LaneState::Failed;
      // People count from 1, as the live table and the study do.
      record.reason = "the loss became NaN in epoch " + std::to_string(s_.epoch + 1) + ", step " + std::to_string(epoch.failed_at()[lane] + 1);
      say("lane " + std::to_string(record.id) + " failed: " + record.reason);
    }
    for (const auto& schedule : s_.options.schedules)
      if (!schedule.each_update) schedule.step();
    const auto done = s_.epoch++;
    if (callbacks_.epoch) callbacks_.epoch({done, epoch.steps(), training, Clock::now() - begun, s_.records});
    end_lanes(running);
  }

  void end_lanes(const std::vector<std::size_t>& ran) {
    for (const auto lane : ran) {
      auto& record = s_.records[s_.ids[lane]];
      const auto request = s_.stop_requests.find(record.id);
      if (record.is_running() && request != s_.stop_requests.end()) record.state = LaneState::Stopped, record.reason = request->second;
      if (record.is_running() && s_.options.early_stop && stops(*s_.options.early_stop, record)) {
        record.state = LaneState::Stopped;
        record.reason = s_.options.early_stop->metric + " was no better for " + std::to_string(s_.options.early_stop->patience) + " epochs";
      }
      if (record.is_running() && s_.epoch >= s_.options.epochs) record.state = LaneState::Finished;
      if (!record.is_running() && callbacks_.lane_ended) callbacks_.lane_ended(record.id, static_cast<std::int64_t>(lane));
    }
    s_.stop_requests.clear();
  }

  // Depends on the plan and on who runs, never on the clock: the same run compacts at the same epochs.
  void compact() {
    if (!s_.options.compact) return;
    std::vector<std::int64_t> running;
    for (std::int64_t lane = 0; lane < s_.lane_count(); ++lane)
      if (s_.records[s_.ids[lane]].is_running()) running.push_back(lane);
    const auto now = static_cast<std::int64_t>(running.size());
    if (now == s_.lane_count()) return;
    if (static_cast<double>(work(*s_.plan, now)) > kWorthwhile * static_cast<double>(work(*s_.plan, s_.lane_count()))) return;
    say("the array goes on with " + std::to_string(now) + " of " + std::to_string(s_.lane_count()) + " lanes");
    s_.keep(running);
  }

  Trainer& trainer_;
  Trainer::State& s_;
  BatchSource& training_;
  BatchSource* validation_;
  const Callbacks& callbacks_;
};

}  // namespace

Trainer::State::State(std::vector<lanes::ArrayBase*> of, optim::Optimizer& by, LaneStep with, TrainerOptions how)
    : arrays(std::move(of)), optimizer(by), step(std::move(with)), options(std::move(how)), runner(arrays, optimizer, step, options.step) {
  ids.resize(lane_count());
  std::iota(ids.begin(), ids.end(), 0);
  for (const auto id : ids) records.push_back({.id = id});
  first_seeds = arrays[0]->seeds();
}

bool Trainer::State::anyone_runs() const {
  return std::any_of(ids.begin(), ids.end(), [&](std::int64_t id) { return records[id].is_running(); });
}

std::int64_t Trainer::State::steps_together() const {
  if (options.steps_together > 0) return options.steps_together;
  return step_ms ? train::steps_together(*step_ms) : 1;
}

void Trainer::State::train_mode(bool on) const {
  for (auto* array : arrays) array->train(on);
}

std::vector<Input> Trainer::State::inputs_now(const TrainBatch& batch) const {
  auto inputs = batch.inputs;
  const auto first = static_cast<std::int64_t>(records.size());
  if (lane_count() == first) return inputs;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    auto& input = inputs[i];
    if (!input.per_lane || !input.tensor.defined()) continue;
    HFTA_CHECK(input.tensor.dim() > 0 && input.tensor.size(0) == first, "train::Trainer: expected per-lane input ", i, " of shape [", first,
               ", ...] (the lanes that the array began with), got ", input.tensor.sizes());
    const auto kept = at::tensor(ids, at::TensorOptions(at::kLong)).to(input.tensor.device());
    input.tensor = input.tensor.index_select(0, kept);
  }
  return inputs;
}

StepOptions Trainer::State::step_options_now() const {
  auto now = options.step;
  if (!now.max_norm) return now;
  const auto all = options.step.max_norm->of_lanes(static_cast<std::int64_t>(records.size()), "max_norm");
  std::vector<double> kept;
  for (const auto id : ids) kept.push_back(all[id]);
  now.max_norm = optim::PerLane(std::move(kept));
  return now;
}

std::map<std::string, std::string> Trainer::State::lowerings_now() const {
  auto all = plan->lowerings;
  for (const auto& [where, name] : runner.plan().lowerings) all[where] = name;
  return all;
}

void Trainer::State::keep(const std::vector<std::int64_t>& lanes) {
  for (auto* array : arrays) array->keep(lanes);
  std::vector<std::int64_t> kept;
  for (const auto lane : lanes) kept.push_back(ids[lane]);
  ids = std::move(kept);
  if (plan) plan->lowerings = lowerings_now();
  runner = Runner(arrays, optimizer, step, step_options_now());
  step_ms.reset();
  if (plan) runner.set_plan(*plan);
}

Trainer::Trainer(std::vector<lanes::ArrayBase*> arrays, optim::Optimizer& optimizer, LaneStep step, TrainerOptions options) {
  check_arrays(arrays, &optimizer, "train::Trainer");
  HFTA_CHECK(options.epochs >= 0, "train::Trainer: expected at least 0 epochs, got ", options.epochs);
  HFTA_CHECK(options.checkpoint_every >= 1, "train::Trainer: expected checkpoint_every of at least 1, got ", options.checkpoint_every);
  HFTA_CHECK(options.evaluate_every >= 1, "train::Trainer: expected evaluate_every of at least 1, got ", options.evaluate_every);
  auto names = sorted(options.metrics.names);
  HFTA_CHECK(std::adjacent_find(names.begin(), names.end()) == names.end() && !std::binary_search(names.begin(), names.end(), "loss"),
             "train::Trainer: expected metrics of different names other than loss");
  HFTA_CHECK(names.empty() || options.metrics.function, "train::Trainer: expected a function for the metrics, got none");
  if (options.early_stop) {
    const auto& metric = options.early_stop->metric;
    HFTA_CHECK(metric == "loss" || std::binary_search(names.begin(), names.end(), metric), "train::Trainer: expected early_stop.metric to be loss or a metric, got \"",
               metric, "\"");
  }
  if (options.plan) {
    validate(*options.plan, arrays[0]->lanes());
    if (!options.record) options.plan->recorded = false;
  }
  state_ = std::make_unique<State>(std::move(arrays), optimizer, std::move(step), std::move(options));
}
Trainer::~Trainer() = default;

RunStatus Trainer::run(BatchSource& training, BatchSource* validation, const Callbacks& callbacks) {
  return Course(*this, *state_, training, validation, callbacks).run();
}

std::vector<Metrics> Trainer::evaluate(BatchSource& source, const MetricOptions& metrics, std::int64_t epoch) {
  auto& s = *state_;
  std::vector<std::vector<double>> sums(metrics.names.size(), std::vector<double>(s.lane_count(), 0));
  std::int64_t items = 0;
  const EvaluationMode in_evaluation_mode(s);
  source.begin_epoch(epoch);
  while (const auto batch = source.next()) {
    const auto values = train::evaluate(s.arrays, metrics.function, s.inputs_now(*batch));
    HFTA_CHECK(values.size() == metrics.names.size(), "train::Trainer: expected ", metrics.names.size(), " metrics from the function, got ", values.size());
    for (std::size_t i = 0; i < values.size(); ++i) {
      HFTA_CHECK(values[i].numel() == s.lane_count(), "train::Trainer: expected a scalar as metric \"", metrics.names[i], "\", got shape ", values[i][0].sizes());
      const auto of_lanes = values[i].to(at::kCPU, at::kDouble).contiguous();
      for (std::int64_t lane = 0; lane < s.lane_count(); ++lane) sums[i][lane] += of_lanes.const_data_ptr<double>()[lane] * static_cast<double>(batch->items);
    }
    items += batch->items;
  }
  HFTA_CHECK(items > 0, "train::Trainer: expected at least 1 batch to evaluate on, got none");
  std::vector<Metrics> result(s.lane_count());
  for (std::size_t i = 0; i < sums.size(); ++i)
    for (std::int64_t lane = 0; lane < s.lane_count(); ++lane) result[lane][metrics.names[i]] = sums[i][lane] / static_cast<double>(items);
  return result;
}

void Trainer::stop_lane(std::int64_t id, const std::string& reason) {
  const auto& records = state_->records;
  HFTA_CHECK(id >= 0 && id < static_cast<std::int64_t>(records.size()), "train::Trainer: expected a lane id from 0 to ", records.size() - 1, ", got ", id);
  if (records[id].is_running()) state_->stop_requests[id] = reason;
}

std::int64_t Trainer::epoch() const { return state_->epoch; }
const std::vector<LaneRecord>& Trainer::lanes() const { return state_->records; }
const std::vector<std::int64_t>& Trainer::ids() const { return state_->ids; }
std::string Trainer::plan_reason() const { return state_->plan_reason; }
std::string Trainer::report() const { return state_->runner.report(); }

std::optional<plan::Plan> Trainer::plan() const {
  auto plan = state_->plan;
  if (!plan) return plan;
  plan->recorded = state_->runner.plan().recorded;
  plan->lowerings = state_->lowerings_now();
  return plan;
}

plan::Throughput Trainer::throughput(BatchSource& training, const plan::ThroughputOptions& options) {
  state_->train_mode(true);
  return state_->runner.throughput(state_->inputs_now(first_batch(training, state_->epoch)), options);
}

plan::MemoryProfile Trainer::memory_profile(BatchSource& training) {
  state_->train_mode(true);
  return state_->runner.memory_profile(state_->inputs_now(first_batch(training, state_->epoch)));
}

}  // namespace hfta::train
