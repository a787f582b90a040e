#include "hfta/train/epoch.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/isnan.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <chrono>
#include <cmath>

#include "hfta/base/log.h"

namespace hfta::train {
namespace {

// Up to `count` batches, so that an update never waits for the next epoch.
std::vector<TrainBatch> taken(BatchSource& source, std::int64_t count) {
  std::vector<TrainBatch> batches;
  while (static_cast<std::int64_t>(batches.size()) < count) {
    auto batch = source.next();
    if (!batch) break;
    batches.push_back(std::move(*batch));
  }
  return batches;
}

}  // namespace

Request Epoch::run() {
  const auto accumulate = state_.options.step.accumulate;
  sums_.assign(state_.lane_count(), 0);
  failed_at_.assign(state_.lane_count(), -1);
  state_.train_mode(true);
  source_.begin_epoch(state_.epoch);
  auto request = Request::GoOn;
  const auto& schedules = state_.options.schedules;
  if (std::any_of(schedules.begin(), schedules.end(), [](const Scheduled& schedule) { return schedule.each_update; }))
    after_update_ = [&schedules] {
      for (const auto& schedule : schedules)
        if (schedule.each_update) schedule.step();
    };
  for (bool more = true; more;) {
    const auto wanted = accumulate * std::max<std::int64_t>(state_.steps_together() / accumulate, 1);
    auto batches = taken(source_, wanted);
    more = static_cast<std::int64_t>(batches.size()) == wanted;
    const auto left_out = batches.size() % static_cast<std::size_t>(accumulate);
    if (left_out > 0)
      base::log_once(base::LogLevel::Warning, "train::Trainer: the last " + std::to_string(left_out) + " batches of each epoch are left out: an update takes " +
                                                  std::to_string(accumulate));
    batches.resize(batches.size() - left_out);
    if (batches.empty()) break;
    request = std::max(request, run(batches));
    if (request == Request::StopNow) return request;
    if (all_failed()) break;
  }
  if (device_sums_.defined()) {
    const auto sums = device_sums_.cpu();
    for (std::size_t lane = 0; lane < sums_.size(); ++lane) {
      sums_[lane] = sums[0][static_cast<std::int64_t>(lane)].item<double>();
      if (sums[1][static_cast<std::int64_t>(lane)].item<double>() > 0) failed_at_[lane] = steps_ - 1;
    }
  }
  return request;
}

Request Epoch::run(const std::vector<TrainBatch>& batches) {
  std::vector<Batch> inputs;
  for (const auto& batch : batches) inputs.push_back(state_.inputs_now(batch));
  std::vector<StepOutput> outputs;
  const auto before = std::chrono::steady_clock::now();
  state_.runner.run(inputs, outputs, after_update_);
  state_.step_ms = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - before).count() / static_cast<double>(batches.size());
  auto request = Request::GoOn;
  for (std::size_t i = 0; i < batches.size() && request != Request::StopNow; ++i) {
    add(outputs[i].losses, batches[i].items);
    request = std::max(request, asked(outputs[i].losses));
    ++steps_;
  }
  return request;
}

void Epoch::add(const at::Tensor& losses, std::int64_t items) {
  const at::NoGradGuard no_grad;
  items_ += items;
  if (!losses.is_cpu()) {
    if (!device_sums_.defined()) device_sums_ = at::zeros({2, losses.size(0)}, losses.options().dtype(at::kDouble));
    device_sums_[0].add_(losses.to(at::kDouble), static_cast<double>(items));
    device_sums_[1].add_(at::isnan(losses));
    return;
  }
  const auto values = losses.to(at::kDouble).contiguous();
  for (std::size_t lane = 0; lane < sums_.size(); ++lane) {
    const double loss = values.const_data_ptr<double>()[lane];
    sums_[lane] += loss * static_cast<double>(items);
    if (std::isnan(loss) && failed_at_[lane] < 0) failed_at_[lane] = steps_;
  }
}

bool Epoch::all_failed() const {
  for (std::size_t lane = 0; lane < failed_at_.size(); ++lane)
    if (failed_at_[lane] < 0 && state_.records[state_.ids[lane]].is_running()) return false;
  return true;
}

Request Epoch::asked(const at::Tensor& losses) const {
  auto request = Request::GoOn;
  if (callbacks_.step) request = callbacks_.step({state_.epoch, steps_, losses, state_.ids});
  const int flag = state_.options.interrupt ? state_.options.interrupt->load() : 0;
  return std::max(request, flag >= 2 ? Request::StopNow : flag == 1 ? Request::EndAfterEpoch : Request::GoOn);
}

std::vector<double> Epoch::mean_losses() const {
  auto means = sums_;
  for (auto& mean : means) mean /= static_cast<double>(std::max<std::int64_t>(items_, 1));
  return means;
}

}  // namespace hfta::train
