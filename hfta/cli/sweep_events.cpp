#include "hfta/cli/sweep_events.h"

#include <algorithm>
#include <cstdio>
#include <numeric>

#include "hfta/base/log.h"
#include "hfta/cli/interrupt.h"
#include "hfta/cli/trial_text.h"
#include "hfta/cli/tuner_options.h"

namespace hfta::cli {
namespace {

/// "trial 3", "trials 0-3, 5, 7-9"; where that is long, "9 trials".
std::string numbers_text(const std::vector<std::int64_t>& trials) {
  std::string text;
  for (std::size_t i = 0; i < trials.size();) {
    std::size_t end = i;
    while (end + 1 < trials.size() && trials[end + 1] == trials[end] + 1) ++end;
    if (!text.empty()) text += ", ";
    text += std::to_string(trials[i]);
    if (end > i) text += "-" + std::to_string(trials[end]);
    i = end + 1;
  }
  constexpr std::size_t kShort = 24;
  if (text.size() > kShort) return std::to_string(trials.size()) + " trials";
  return (trials.size() == 1 ? "trial " : "trials ") + text;
}

/// "4.1 ms a step of all lanes, 12.3 ms one model after the other: 3.00 times as fast".
std::string speed_text(const tune::ArrayPlan& plan) {
  char text[160];
  std::snprintf(text, sizeof text, "%.3g ms a step of all lanes, %.3g ms one model after the other: %.2f times as fast", plan.array_ms, plan.alone_ms, plan.alone_ms / plan.array_ms);
  return text;
}

}  // namespace

SweepEvents::SweepEvents(const StudyFile& file, const TrialMaker& maker, const tune::Study& study, Watch& watch)
    : file_(file), maker_(maker), study_(study), watch_(watch) {
  board_.study = file.study.name;
  board_.metric = file.study.metric;
  board_.maximize = file.study.maximize;
  board_.epochs = file.study.epochs;
}

tune::TunerEvents SweepEvents::tuner_events() {
  tune::TunerEvents events;
  events.began = [this](const auto& running, const auto& arrays) { began(running, arrays); };
  events.phase = [this](const Numbers& trials, const std::string& doing) {
    board_.phase = doing.empty() ? "" : doing + " for " + numbers_text(trials);
    has_last_step_ = false;
    show();
  };
  events.planned = [this](const auto& trials, const auto& plan, std::int64_t epoch) { planned(trials, plan, epoch); };
  events.step = [this](const auto& trials, const auto& report) { stepped(trials, report); };
  events.epoch = [this](const auto& trials, const auto& report) { epoch_ended(trials, report); };
  events.ended = [this](std::int64_t trial, tune::TrialState state, const auto& lane) { ended(trial, state, lane); };
  events.message = [this](const std::string& line) { base::log(base::LogLevel::Debug, line); };
  return events;
}

TrialRow& SweepEvents::row(std::int64_t number) { return board_.trials.at(rows_.at(number)); }

void SweepEvents::show() {
  board_.is_stopping = Interrupts::asked();
  board_.steps_ahead = std::accumulate(ahead_.begin(), ahead_.end(), std::int64_t{0}, [](auto sum, const auto& entry) { return sum + entry.second; });
  watch_.changed(board_);
}

void SweepEvents::began(const std::vector<tune::Trial>& running, const std::vector<Numbers>&) {
  for (const auto& trial : running) ahead_[trial.number] = maker_.steps_of_epoch(trial) * file_.study.epochs;
  for (const auto& trial : study_.trials()) {
    TrialRow row;
    row.number = trial.number;
    row.state = ahead_.contains(trial.number) ? "waiting" : state_word(trial.state);
    row.parameters = parameter_texts(trial);
    row.epoch = trial.intermediate.empty() ? 0 : trial.intermediate.rbegin()->first;
    row.metric = value_of(trial);
    rows_[trial.number] = board_.trials.size();
    board_.trials.push_back(std::move(row));
  }
  show();
}

void SweepEvents::planned(const Numbers& trials, const tune::ArrayPlan& plan, std::int64_t epoch) {
  board_.plan = describe(plan.plan);
  for (const auto number : trials) {
    if (!ahead_.contains(number)) continue;
    row(number).state = "running";
    ahead_[number] = std::max<std::int64_t>(0, ahead_[number] / file_.study.epochs * (file_.study.epochs - epoch));
  }
  watch_.note(numbers_text(trials) + ": " + plan.explanation);
  if (plan.array_ms > 0) watch_.note(numbers_text(trials) + ": " + speed_text(plan));
  if (epoch > 0) watch_.note(numbers_text(trials) + " resumed at epoch " + std::to_string(epoch));
  has_last_step_ = false;
  show();
}

void SweepEvents::stepped(const Numbers& trials, const train::StepReport& report) {
  const auto now = std::chrono::steady_clock::now();
  // The first step of an array records; its time says nothing about the ones that follow.
  if (has_last_step_) {
    board_.seconds += std::chrono::duration<double>(now - last_step_).count();
    board_.steps += static_cast<std::int64_t>(report.ids.size());
  }
  last_step_ = now;
  has_last_step_ = true;
  for (const auto id : report.ids)
    if (const auto found = ahead_.find(trials.at(static_cast<std::size_t>(id))); found != ahead_.end() && found->second > 0) --found->second;
  show();
}

void SweepEvents::fill(TrialRow& row, const train::LaneRecord& lane) const {
  row.epoch = static_cast<std::int64_t>(lane.epochs.size());
  if (lane.epochs.empty()) return;
  const auto& last = lane.epochs.back();
  if (const auto loss = last.find("loss"); loss != last.end()) row.loss = loss->second;
  if (const auto metric = last.find(metric_key(file_)); metric != last.end()) row.metric = metric->second;
}

void SweepEvents::epoch_ended(const Numbers& trials, const train::EpochReport& report) {
  std::int64_t running = 0;
  for (const auto& lane : report.lanes) {
    const auto number = trials.at(static_cast<std::size_t>(lane.id));
    if (!ahead_.contains(number)) continue;
    fill(row(number), lane);
    running += lane.is_running();
  }
  has_last_step_ = false;
  const auto seconds = report.training.count();
  std::string line = numbers_text(trials) + ", epoch " + std::to_string(report.epoch + 1) + "/" + std::to_string(file_.study.epochs) + ": " + duration(seconds + report.evaluation.count());
  if (seconds > 0) line += ", " + std::to_string(static_cast<std::int64_t>(static_cast<double>(report.steps * running) / seconds)) + " model-steps/s";
  if (const auto* best = best_trial(board_)) line += ", best so far: trial " + std::to_string(best->number) + ", " + board_.metric + " " + rounded(best->metric);
  show();
  watch_.epoch_ended(board_, line);
}

void SweepEvents::ended(std::int64_t trial, tune::TrialState state, const train::LaneRecord& lane) {
  auto& ended = row(trial);
  fill(ended, lane);
  ended.state = state_word(state);
  ended.reason = lane.reason;
  ahead_.erase(trial);
  show();
  watch_.trial_ended(board_, ended);
}

}  // namespace hfta::cli
