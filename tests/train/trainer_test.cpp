#include "hfta/train/trainer.h"

#include <gmock/gmock.h>

#include <cmath>
#include <limits>

#include "tests/train/trainer_setup.h"

namespace {

using namespace hfta::test;
using hfta::train::Callbacks;
using hfta::train::EpochReport;
using hfta::train::FunctionSource;
using hfta::train::LaneState;
using hfta::train::MetricOptions;
using hfta::train::Request;
using hfta::train::RunStatus;
using hfta::train::StepReport;
using hfta::train::TrainBatch;
using hfta::train::Trainer;
using hfta::train::TrainerOptions;

TEST(TrainerTest, LanesEqualTheirSoloRunsAndMetricsTheirMeans) {
  Training run(Choice{.epochs = 3});
  EXPECT_EQ(run.go(), RunStatus::Finished);
  const hfta::base::IntraOpThreads one(1);
  for (std::int64_t lane = 0; lane < 4; ++lane) {
    SoloRun solo(lane);
    solo.use(std::make_unique<torch::optim::Adam>(solo.net->parameters(), torch::optim::AdamOptions(kRates[lane])));
    for (std::int64_t epoch = 0; epoch < 3; ++epoch) {
      double loss = 0, items = 0, right = 0, tested = 0;
      solo.net->train();
      for (const auto& batch : Training::batches(epoch)) {
        const auto& x = batch.inputs[0].tensor;
        loss += solo.step(x, batch.inputs[1].tensor).item<double>() * static_cast<double>(x.size(0));
        items += static_cast<double>(x.size(0));
      }
      solo.net->eval();
      for (const auto& batch : Training::batches(100)) {
        right += (solo.net->forward(batch.inputs[0].tensor).argmax(1) == batch.inputs[1].tensor).sum().item<double>();
        tested += static_cast<double>(batch.items);
      }
      const auto& metrics = run.trainer.lanes()[lane].epochs[epoch];
      EXPECT_NEAR(metrics.at("loss"), loss / items, 1e-9);
      EXPECT_NEAR(metrics.at("accuracy"), right / tested, 1e-6);
    }
    expect_same_bits(run.state(lane), state_of(*solo.net), "lane " + std::to_string(lane));
    EXPECT_EQ(run.trainer.lanes()[lane].state, LaneState::Finished);
  }
  EXPECT_EQ(run.trainer.epoch(), 3);
}

TEST(TrainerTest, CallbacksSeeEveryStepAndEpoch) {
  Training run(Choice{.epochs = 2});
  std::vector<std::pair<std::int64_t, std::int64_t>> steps;
  std::vector<std::int64_t> epochs, ended;
  Callbacks callbacks;
  callbacks.step = [&](const StepReport& report) {
    EXPECT_EQ(report.losses.size(0), 4);
    EXPECT_EQ(report.ids.size(), 4U);
    steps.emplace_back(report.epoch, report.step);
    return Request::GoOn;
  };
  callbacks.epoch = [&](const EpochReport& report) {
    epochs.push_back(report.epoch);
    EXPECT_EQ(report.steps, 3);
    EXPECT_EQ(report.lanes[3].epochs.size(), epochs.size());
  };
  callbacks.lane_ended = [&](std::int64_t id, std::int64_t lane) {
    EXPECT_EQ(id, lane);
    ended.push_back(id);
  };
  run.go(callbacks);
  EXPECT_EQ(steps, (std::vector<std::pair<std::int64_t, std::int64_t>>{{0, 0}, {0, 1}, {0, 2}, {1, 0}, {1, 1}, {1, 2}}));
  EXPECT_EQ(epochs, (std::vector<std::int64_t>{0, 1}));
  EXPECT_EQ(ended, (std::vector<std::int64_t>{0, 1, 2, 3}));
}

// Contract 2: a lane whose loss becomes NaN is failed, the others are bit-equal to the run where it is healthy.
TEST(TrainerTest, FailedLaneIsMarkedAndChangesNoBitOfTheOthers) {
  for (const bool compact : {true, false}) {
    Training healthy(Choice{.epochs = 4, .compact = compact});
    Training poisoned(Choice{.epochs = 4, .compact = compact});
    Callbacks poison;
    poison.epoch = [&](const EpochReport& report) {
      const torch::NoGradGuard no_grad;
      if (report.epoch != 0) return;
      for (const std::int64_t lane : {1, 2}) poisoned.array.module(lane)->parameters()[0].fill_(std::numeric_limits<float>::quiet_NaN());
    };
    std::vector<std::pair<std::int64_t, std::int64_t>> ended;
    poison.lane_ended = [&](std::int64_t id, std::int64_t lane) { ended.emplace_back(id, lane); };
    healthy.go();
    EXPECT_EQ(poisoned.go(poison), RunStatus::Finished);
    const auto& failed = poisoned.trainer.lanes()[1];
    EXPECT_EQ(failed.state, LaneState::Failed);
    EXPECT_EQ(failed.reason, "the loss became NaN in epoch 2, step 1");
    ASSERT_EQ(failed.epochs.size(), 2U);
    EXPECT_TRUE(std::isnan(failed.epochs[1].at("loss")));
    EXPECT_EQ(ended.front(), (std::pair<std::int64_t, std::int64_t>{1, 1}));
    EXPECT_EQ(poisoned.trainer.ids(), compact ? (std::vector<std::int64_t>{0, 3}) : (std::vector<std::int64_t>{0, 1, 2, 3}));
    for (const std::int64_t id : {0, 3}) {
      expect_same_bits(poisoned.state(id), healthy.state(id), "lane " + std::to_string(id));
      EXPECT_EQ(poisoned.trainer.lanes()[id].epochs, healthy.trainer.lanes()[id].epochs);
    }
  }
}

TEST(TrainerTest, RunEndsWhenEveryLaneHasFailed) {
  Training run(Choice{.epochs = 5});
  const torch::NoGradGuard no_grad;
  for (std::int64_t lane = 0; lane < 4; ++lane) run.array.module(lane)->parameters()[0].fill_(std::nan(""));
  std::int64_t steps = 0;
  Callbacks callbacks;
  callbacks.step = [&](const StepReport&) { return ++steps, Request::GoOn; };
  EXPECT_EQ(run.go(callbacks), RunStatus::Finished);
  EXPECT_EQ(run.trainer.epoch(), 1);
  EXPECT_EQ(steps, 1);
}

TEST(TrainerTest, StoppedLanesLeaveTheArrayAndKeepTheirRecords) {
  Training all(Choice{.epochs = 4});
  all.go();
  Training run(Choice{.epochs = 4, .max_norm = std::vector<double>{1e9, 1e9, 1e9, 1e9}});
  Callbacks callbacks;
  std::map<std::int64_t, std::vector<torch::Tensor>> weights;
  callbacks.epoch = [&](const EpochReport& report) {
    if (report.epoch == 1) run.trainer.stop_lane(0, "pruned"), run.trainer.stop_lane(2, "pruned");
  };
  callbacks.lane_ended = [&](std::int64_t id, std::int64_t lane) { weights[id] = state_of(*run.array.module(lane)); };
  std::vector<std::string> lines;
  callbacks.message = [&](const std::string& line) { lines.push_back(line); };
  run.go(callbacks);
  EXPECT_EQ(run.trainer.ids(), (std::vector<std::int64_t>{1, 3}));
  EXPECT_THAT(lines, ::testing::Contains("the array goes on with 2 of 4 lanes"));
  EXPECT_EQ(run.trainer.lanes()[0].state, LaneState::Stopped);
  EXPECT_EQ(run.trainer.lanes()[0].reason, "pruned");
  EXPECT_EQ(run.trainer.lanes()[0].epochs.size(), 2U);
  EXPECT_EQ(run.trainer.lanes()[3].epochs, all.trainer.lanes()[3].epochs);
  expect_same_bits(run.state(3), all.state(3));
  EXPECT_EQ(weights.size(), 4U);
  EXPECT_THAT(error_of([&] { run.trainer.stop_lane(4, ""); }), ::testing::Eq("train::Trainer: expected a lane id from 0 to 3, got 4"));
}

TEST(TrainerTest, PerLaneInputsFollowTheLanesThatAreLeft) {
  const auto batch = [](std::int64_t epoch, std::int64_t index) -> std::optional<TrainBatch> {
    if (index == 3) return std::nullopt;
    const Data data(4, 6, 10 * epoch + index);
    return TrainBatch{{hfta::per_lane(torch::stack(data.x)), hfta::per_lane(torch::stack(data.y))}, 6};
  };
  Training all(Choice{.epochs = 3}), some(Choice{.epochs = 3});
  FunctionSource source(batch);
  Callbacks callbacks;
  callbacks.epoch = [&](const EpochReport& report) {
    if (report.epoch == 0) some.trainer.stop_lane(1, "pruned"), some.trainer.stop_lane(0, "pruned");
  };
  all.trainer.run(source);
  some.trainer.run(source, nullptr, callbacks);
  EXPECT_EQ(some.trainer.ids(), (std::vector<std::int64_t>{2, 3}));
  for (const std::int64_t id : {2, 3}) expect_same_bits(some.state(id), all.state(id));
}

TEST(TrainerTest, EarlyStopEndsALaneThatGetsNoBetter) {
  TrainerOptions options{.epochs = 20};
  options.early_stop = {.metric = "accuracy", .patience = 3, .maximize = true};
  Training run(options);
  const auto constant = [](std::int64_t, std::span<const torch::Tensor>) { return std::vector<torch::Tensor>{torch::tensor(0.5)}; };
  hfta::train::TrainerOptions flat = run.options;
  flat.metrics = {{"accuracy"}, constant};
  Trainer trainer({&run.array}, run.adam, hfta::lane_step(run.array, loss_of), flat);
  EXPECT_EQ(trainer.run(run.training, &run.validation), RunStatus::Finished);
  EXPECT_EQ(trainer.epoch(), 4);
  EXPECT_EQ(trainer.lanes()[2].reason, "accuracy was no better for 3 epochs");
}

TEST(EarlyStopTest, NaNIsNeverBetter) {
  const double nan = std::nan("");
  const auto lane = [](std::vector<double> values) {
    hfta::train::LaneRecord record;
    for (const double value : values) record.epochs.push_back({{"loss", value}});
    return record;
  };
  EXPECT_FALSE(stops({.patience = 2}, lane({3, 2, 1})));
  EXPECT_FALSE(stops({.patience = 2}, lane({1, 2})));
  EXPECT_TRUE(stops({.patience = 2}, lane({1, 2, 1})));
  EXPECT_TRUE(stops({.patience = 2}, lane({nan, nan})));
  EXPECT_FALSE(stops({.patience = 2}, lane({nan, 5})));
  EXPECT_TRUE(stops({.patience = 2}, lane({1, nan, nan})));
  EXPECT_TRUE(stops({.patience = 1, .least_change = 0.1}, lane({1, 0.95})));
  EXPECT_FALSE(stops({.patience = 1, .least_change = 0.1, .maximize = true}, lane({1, 1.2})));
  EXPECT_FALSE(stops({.metric = "other", .patience = 1}, lane({1, 2})));
}

TEST(TrainerTest, ScheduleIsSteppedPerEpochAndLane) {
  Training run(Choice{.epochs = 4});
  hfta::optim::Schedule decay(run.adam, hfta::optim::StepLR{.step_size = std::vector<double>{1, 2, 3, 4}, .gamma = 0.5});
  auto options = run.options;
  options.schedules = {hfta::train::scheduled(decay)};
  Trainer trainer({&run.array}, run.adam, hfta::lane_step(run.array, loss_of), options);
  trainer.run(run.training);
  for (std::int64_t lane = 0; lane < 4; ++lane)
    EXPECT_NEAR(run.adam.get("lr", lane), kRates[lane] * std::pow(0.5, 4 / (lane + 1)), 1e-12) << lane;
}

TEST(TrainerTest, InterruptOnceEndsTheEpochTwiceTheStep) {
  std::atomic<int> flag{0};
  TrainerOptions options{.epochs = 5};
  options.interrupt = &flag;
  Training run(options);
  std::int64_t steps = 0;
  Callbacks callbacks;
  callbacks.step = [&](const StepReport& report) {
    ++steps;
    if (report.epoch == 1 && report.step == 0) flag = 1;
    if (report.epoch == 3 && report.step == 1) flag = 2;
    return Request::GoOn;
  };
  EXPECT_EQ(run.go(callbacks), RunStatus::Interrupted);
  EXPECT_EQ(run.trainer.epoch(), 2);
  EXPECT_EQ(steps, 6);
  flag = 0;
  EXPECT_EQ(run.go(callbacks), RunStatus::Interrupted);
  EXPECT_EQ(run.trainer.epoch(), 3);
  EXPECT_EQ(steps, 11);
  Callbacks request;
  request.step = [](const StepReport&) { return Request::EndAfterEpoch; };
  flag = 0;
  EXPECT_EQ(run.go(request), RunStatus::Interrupted);
  EXPECT_EQ(run.trainer.epoch(), 4);
}

TEST(TrainerTest, PlanIsChosenByTimingWhereNoneIsGivenAndChangesNoResult) {
  TrainerOptions options{.epochs = 2};
  Training given(options), chosen(options);
  auto free = chosen.options;
  free.plan.reset();
  free.record = false;
  free.search = {.budget_seconds = 0.3, .repeats = 2};
  Trainer trainer({&chosen.array}, chosen.adam, hfta::lane_step(chosen.array, loss_of), free);
  EXPECT_FALSE(trainer.plan());
  trainer.run(chosen.training);
  given.go();
  ASSERT_TRUE(trainer.plan());
  EXPECT_FALSE(trainer.plan()->recorded);
  EXPECT_THAT(trainer.plan_reason(), ::testing::HasSubstr("ms a step"));
  if (trainer.plan()->intra_op_threads == 1)
    for (std::int64_t id = 0; id < 4; ++id) expect_same_bits(chosen.state(id), given.state(id));
}

TEST(TrainerTest, LastBatchesThatFillNoUpdateAreLeftOut) {
  TrainerOptions options{.epochs = 2};
  options.step.accumulate = 2;
  Training run(options);
  run.go();
  EXPECT_EQ(run.adam.steps(0), 2) << "3 batches an epoch make 1 update";
}

TEST(TrainerTest, MisuseIsTold) {
  Training run(Choice{.epochs = 1});
  const auto with = [&](auto change) {
    return error_of([&] {
      auto options = run.options;
      change(options);
      Trainer({&run.array}, run.adam, hfta::lane_step(run.array, loss_of), options);
    });
  };
  EXPECT_EQ(with([](auto& o) { o.epochs = -1; }), "train::Trainer: expected at least 0 epochs, got -1");
  EXPECT_EQ(with([](auto& o) { o.checkpoint_every = 0; }), "train::Trainer: expected checkpoint_every of at least 1, got 0");
  EXPECT_EQ(with([](auto& o) { o.evaluate_every = 0; }), "train::Trainer: expected evaluate_every of at least 1, got 0");
  EXPECT_EQ(with([](auto& o) { o.metrics.names = {"a", "a"}; }), "train::Trainer: expected metrics of different names other than loss");
  EXPECT_EQ(with([](auto& o) { o.metrics.names = {"loss"}; }), "train::Trainer: expected metrics of different names other than loss");
  EXPECT_EQ(with([](auto& o) { o.early_stop = {.metric = "acc"}; }), "train::Trainer: expected early_stop.metric to be loss or a metric, got \"acc\"");
  EXPECT_EQ(with([](auto& o) { o.plan->width = 9; }), "plan::Plan: expected a width from 1 to 4 (the array's lanes), got 9");
  FunctionSource empty([](std::int64_t, std::int64_t) { return std::optional<TrainBatch>(); });
  EXPECT_EQ(error_of([&] { run.trainer.run(empty); }), "train::Trainer: expected at least 1 batches in epoch 0, got fewer");
  EXPECT_EQ(error_of([&] { run.trainer.run(run.training, &empty); }), "train::Trainer: expected at least 1 batch to evaluate on, got none");
}

}  // namespace
