#include "hfta/tune/tuner.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <set>

#include "hfta/base/error.h"
#include "hfta/base/log.h"
#include "hfta/lanes/state.h"
#include "hfta/tune/ledger.h"

namespace hfta::tune {

using Numbers = std::vector<std::int64_t>;

struct Tuner::State {
  Study& study;
  const StudyLock& lock;
  const Space& space;
  Sampler& sampler;
  Kind kind;
  Make make;
  TunerOptions options;
  Ledger ledger;
  std::set<std::int64_t> running{};
  std::map<std::string, plan::Plan> plans_by_kind{};

  std::vector<Trial> trials_of(const Numbers& numbers) const {
    std::vector<Trial> trials;
    for (const auto number : numbers) trials.push_back(study.trial(number));
    return trials;
  }
  bool is_interrupted() const { return options.interrupt && *options.interrupt > 0; }
};

namespace {

template <typename... Arguments>
void tell(const std::function<void(Arguments...)>& event, const std::type_identity_t<Arguments>&... arguments) {
  if (event) event(arguments...);
}

/// The course of one array: from its plan to the end of its last trial.
class ArrayCourse {
 public:
  ArrayCourse(Tuner::State& state, std::size_t index, const TunerEvents& events)
      : s_(state), index_(index), numbers_(state.ledger.arrays()[index]), events_(events), trials_(state.trials_of(numbers_)) {}

  train::RunStatus run() {
    auto parts = s_.make(trials_);
    take_plan(parts);
    const auto checkpoint = Tuner::checkpoint_path(s_.options.folder, index_);
    train::TrainerOptions options{.epochs = s_.options.epochs, .step = parts.step_options, .plan = plan_.plan};
    options.metrics = parts.metrics;
    options.early_stop = s_.options.early_stop;
    options.schedules = parts.schedules;
    options.checkpoint = checkpoint;
    options.checkpoint_every = s_.options.checkpoint_every;
    options.interrupt = s_.options.interrupt;
    train::Trainer trainer({parts.array.get()}, *parts.optimizer, parts.step, options);
    if (std::filesystem::exists(checkpoint)) trainer.resume(checkpoint);
    tell(events_.planned, numbers_, plan_, trainer.epoch());
    // A kill between an end and its entry in the study left trials running that have ended.
    for (const auto& lane : trainer.lanes())
      if (!lane.is_running()) end_trial(lane);
    const auto status = trainer.run(*parts.training, parts.validation.get(), callbacks(trainer, parts));
    if (status == train::RunStatus::Finished) std::filesystem::remove(checkpoint);
    return status;
  }

 private:
  std::int64_t number(std::int64_t lane_id) const { return numbers_.at(static_cast<std::size_t>(lane_id)); }

  /// The plan that the array had, that of an array of the same kind and size, or a new one.
  void take_plan(TrialArray& parts) {
    const auto like = s_.kind(trials_.front()) + " x " + std::to_string(numbers_.size());
    if (auto before = s_.ledger.plan(index_)) {
      plan_ = *std::move(before);
    } else {
      tell(events_.phase, numbers_, std::string("timing plans"));
      const auto found = s_.plans_by_kind.find(like);
      auto options = s_.options;
      // One measurement tells people enough, and a second array of a kind is like the first.
      options.measures_throughput = s_.options.measures_throughput && s_.plans_by_kind.empty();
      plan_ = plan_array(parts, options, found == s_.plans_by_kind.end() ? std::nullopt : std::optional(found->second));
      s_.ledger.set_plan(index_, plan_);
      tell(events_.phase, numbers_, std::string());
    }
    s_.plans_by_kind.emplace(like, plan_.plan);
  }

  /// Keeps the lowerings that the first step chose: they are part of what makes a run repeatable.
  void keep_plan(const train::Trainer& trainer) {
    if (is_plan_kept_) return;
    is_plan_kept_ = true;
    const auto now = trainer.plan();
    const auto report = trainer.report();
    if (!now || (*now == plan_.plan && report == plan_.report)) return;
    plan_.plan = *now;
    plan_.report = report;
    s_.ledger.set_plan(index_, plan_);
  }

  train::Callbacks callbacks(train::Trainer& trainer, TrialArray& parts) {
    train::Callbacks callbacks;
    callbacks.step = [this, &trainer](const train::StepReport& report) {
      keep_plan(trainer);
      tell(events_.step, numbers_, report);
      return train::Request::GoOn;
    };
    callbacks.epoch = [this](const train::EpochReport& report) {
      store_epoch(report);
      tell(events_.epoch, numbers_, report);
    };
    callbacks.lane_ended = [this, &trainer, &parts](std::int64_t id, std::int64_t lane) {
      const auto& record = trainer.lanes().at(static_cast<std::size_t>(id));
      // Weights first: a trial that the study calls complete has them.
      if (s_.options.keeps_weights && record.state != train::LaneState::Failed)
        lanes::save_lane(*parts.array, lane, Tuner::weights_path(s_.options.folder, number(id)));
      end_trial(record);
    };
    callbacks.message = [this](const std::string& line) { events_.message ? events_.message(line) : base::log(base::LogLevel::Info, line); };
    return callbacks;
  }

  std::vector<Report> reports_of(const train::LaneRecord& lane) const {
    std::vector<Report> reports;
    for (std::size_t epoch = 0; epoch < lane.epochs.size(); ++epoch)
      if (const auto found = lane.epochs[epoch].find(s_.options.metric); found != lane.epochs[epoch].end())
        reports.push_back({number(lane.id), static_cast<std::int64_t>(epoch) + 1, found->second});
    return reports;
  }

  void store_epoch(const train::EpochReport& report) {
    std::vector<Report> reports;
    for (const auto& lane : report.lanes) {
      if (!s_.running.contains(number(lane.id))) continue;
      const auto all = reports_of(lane);
      if (!all.empty() && all.back().step == report.epoch + 1) reports.push_back(all.back());
    }
    s_.study.report(reports);
  }

  void end_trial(const train::LaneRecord& lane) {
    const auto trial = number(lane.id);
    if (!s_.running.contains(trial)) return;
    const auto reports = reports_of(lane);
    s_.study.report(reports);
    const bool has_value = lane.state != train::LaneState::Failed && !reports.empty();
    auto reason = lane.reason;
    if (!has_value && reason.empty()) reason = "it ended without a value";
    const auto state = has_value ? s_.study.finish(trial, TrialState::Complete, {reports.back().value}, reason) : s_.study.finish(trial, TrialState::Fail, {}, reason);
    s_.running.erase(trial);
    tell(events_.ended, trial, state, lane);
  }

  Tuner::State& s_;
  std::size_t index_;
  Numbers numbers_;
  const TunerEvents& events_;
  std::vector<Trial> trials_;
  ArrayPlan plan_;
  bool is_plan_kept_ = false;
};

/// Removes what killed runs left: files half written, and checkpoints of arrays whose last trial ended right before. With the study's lock.
void drop_leftovers(const Tuner::State& state) {
  std::error_code ignored;
  for (std::size_t array = 0; array < state.ledger.arrays().size(); ++array) {
    const auto& numbers = state.ledger.arrays()[array];
    if (std::none_of(numbers.begin(), numbers.end(), [&](auto number) { return state.running.contains(number); }))
      std::filesystem::remove(Tuner::checkpoint_path(state.options.folder, array), ignored);
  }
  for (const char* folder : {"checkpoints", "lanes"})
    for (const auto& file : std::filesystem::directory_iterator(std::filesystem::path(state.options.folder) / folder, ignored))
      if (file.path().extension() == ".tmp") std::filesystem::remove(file.path(), ignored);
}

}  // namespace

std::vector<Numbers> arrays_of(const std::vector<Trial>& trials, const Tuner::Kind& kind, std::int64_t lanes) {
  HFTA_CHECK(lanes >= 1, "tune::arrays_of: expected at least 1 lane, got ", lanes);
  std::vector<std::pair<std::string, Numbers>> kinds;
  for (const auto& trial : trials) {
    const auto name = kind(trial);
    auto found = std::find_if(kinds.begin(), kinds.end(), [&](const auto& entry) { return entry.first == name; });
    if (found == kinds.end()) found = kinds.insert(kinds.end(), {name, {}});
    found->second.push_back(trial.number);
  }
  std::vector<Numbers> arrays;
  for (const auto& [name, numbers] : kinds) {
    // Even shares: 9 lanes of at most 8 are 5 and 4, which plans serve better than 8 and 1.
    const auto count = static_cast<std::int64_t>(numbers.size()), parts = (count + lanes - 1) / lanes;
    for (std::int64_t part = 0; part < parts; ++part)
      arrays.emplace_back(numbers.begin() + count * part / parts, numbers.begin() + count * (part + 1) / parts);
  }
  return arrays;
}

Tuner::Tuner(Study& study, const StudyLock& lock, const Space& space, Sampler& sampler, Kind kind, Make make, TunerOptions options)
    : state_(new State{study, lock, space, sampler, std::move(kind), std::move(make), std::move(options), Ledger(study)}) {}
Tuner::~Tuner() = default;

std::string Tuner::checkpoint_path(const std::string& folder, std::size_t index) {
  return (std::filesystem::path(folder) / "checkpoints" / ("array-" + std::to_string(index) + ".pt")).string();
}

std::string Tuner::weights_path(const std::string& folder, std::int64_t trial) {
  return (std::filesystem::path(folder) / "lanes" / ("trial-" + std::to_string(trial) + ".pt")).string();
}

train::RunStatus Tuner::run(std::int64_t create, const TunerEvents& events) {
  auto& s = *state_;
  for (const char* folder : {"checkpoints", "lanes"}) {
    std::error_code error;
    std::filesystem::create_directories(std::filesystem::path(s.options.folder) / folder, error);
    if (error) throw Error("cannot write into " + s.options.folder + ": " + error.message());
  }
  auto trials = s.study.reclaim(s.lock, s.space, [](const Trial&) { return Reclaim::Continue; });
  for (auto& trial : s.study.ask(s.space, s.sampler, s.options.seed, create)) trials.push_back(std::move(trial));
  std::vector<Trial> fresh;
  for (const auto& trial : trials) {
    s.running.insert(trial.number);
    if (!s.ledger.has(trial.number)) fresh.push_back(trial);
  }
  s.ledger.add(arrays_of(fresh, s.kind, s.options.lanes));
  drop_leftovers(s);
  tell(events.began, trials, s.ledger.arrays());
  for (std::size_t array = 0; array < s.ledger.arrays().size(); ++array) {
    const auto& numbers = s.ledger.arrays()[array];
    if (std::none_of(numbers.begin(), numbers.end(), [&](auto number) { return s.running.contains(number); })) continue;
    if (s.is_interrupted()) return train::RunStatus::Interrupted;
    if (ArrayCourse(s, array, events).run() == train::RunStatus::Interrupted) return train::RunStatus::Interrupted;
  }
  return train::RunStatus::Finished;
}

}  // namespace hfta::tune
