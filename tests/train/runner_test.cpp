#include "hfta/train/runner.h"

#include <gmock/gmock.h>

#include "hfta/train/memory_probe.h"
#include "hfta/train/snapshot.h"
#include "tests/train/models.h"

namespace {

using namespace hfta::test;
using hfta::optim::Adam;
using hfta::train::Input;
using hfta::train::Runner;

struct Bench {
  hfta::Array<Net> array{4, [](std::int64_t) { return Net(); }};
  Adam adam{array, {.lr = std::vector<double>{1e-2, 2e-2, 3e-2, 4e-2}}};
  Data data{6};
  Runner runner{{&array}, adam, hfta::lane_step(array, loss_of)};

  std::vector<Input> inputs(std::size_t batch) const { return {{data.x[batch]}, {data.y[batch]}}; }
  std::vector<torch::Tensor> state() const {
    std::vector<torch::Tensor> all;
    for (std::int64_t lane = 0; lane < 4; ++lane)
      for (auto& tensor : state_of(*array.module(lane))) all.push_back(std::move(tensor));
    return all;
  }
};

TEST(SnapshotTest, RestoresParametersBuffersOptimizerAndGenerators) {
  Bench a, b;
  a.runner.set_plan({.recorded = false});
  b.runner.set_plan({.recorded = false});
  const auto step = [](Bench& bench, std::size_t batch) { bench.runner(bench.inputs(batch)); };
  for (const std::size_t done : {0, 1}) {
    {
      const hfta::train::Undisturbed undisturbed(std::array<hfta::lanes::ArrayBase*, 1>{&a.array}, a.adam);
      for (std::size_t i = 2; i < 5; ++i) step(a, i);
      EXPECT_FALSE(torch::equal(a.state()[0], b.state()[0]));
    }
    expect_same_bits(a.state(), b.state(), "restored");
    EXPECT_EQ(a.adam.steps(0), b.adam.steps(0));
    step(a, done), step(b, done);
    expect_same_bits(a.state(), b.state(), "goes on");
  }
}

TEST(SnapshotTest, LanesThatMovedAreTold) {
  Bench bench;
  const hfta::train::Snapshot snapshot(std::array<hfta::lanes::ArrayBase*, 1>{&bench.array}, bench.adam);
  bench.array.keep({0, 2});
  EXPECT_EQ(error_of([&] { snapshot.restore(); }), "train::Snapshot: expected the lanes that were saved, got an array whose lanes have moved");
}

TEST(RunnerTest, ChoosingAPlanLeavesNoTrace) {
  Bench measured, plain;
  measured.runner.set_plan({.recorded = false}), plain.runner.set_plan({.recorded = false});
  measured.runner(measured.inputs(0)), plain.runner(plain.inputs(0));
  const auto result = measured.runner.choose_plan(measured.inputs(1), {.cores = 2, .recorded = false}, {.budget_seconds = 1e6, .repeats = 3});
  EXPECT_EQ(measured.runner.plan(), result.plan);
  EXPECT_THAT(result.explanation, ::testing::HasSubstr(" plans timed in "));
  measured.runner.set_plan({.recorded = false}), plain.runner.set_plan({.recorded = false});
  for (std::size_t i = 1; i < 4; ++i) measured.runner(measured.inputs(i)), plain.runner(plain.inputs(i));
  expect_same_bits(measured.state(), plain.state());
}

TEST(RunnerTest, ThePlanIsTheOneSetLastAlsoBeforeItsFirstStep) {
  Bench bench;
  bench.runner(bench.inputs(0));
  for (const std::int64_t width : {2, 4}) {
    bench.runner.set_plan({.width = width});
    EXPECT_EQ(bench.runner.plan().width, width);
    bench.runner(bench.inputs(1));
    EXPECT_EQ(bench.runner.plan().width, width);
  }
}

TEST(RunnerTest, PlanIsAsBeforeWhenNoneRuns) {
  Bench bench;
  Runner failing({&bench.array}, bench.adam, [](std::int64_t, std::span<const torch::Tensor>) -> hfta::train::StepResult { throw hfta::Error("broken"); });
  failing.set_plan({.width = 2, .workers = 2, .recorded = false});
  EXPECT_THAT(error_of([&] { failing.choose_plan(bench.inputs(0), {.cores = 2, .recorded = false}); }), ::testing::HasSubstr("broken"));
  EXPECT_EQ(failing.plan().workers, 2);
}

TEST(RunnerTest, ThroughputComparesWithTheModelsAlone) {
  Bench bench;
  bench.runner.set_plan({.workers = 2, .recorded = false});
  const auto before = bench.state();
  const auto result = bench.runner.throughput(bench.inputs(0), {.repeats = 3});
  expect_same_bits(bench.state(), before);
  EXPECT_EQ(result.variants.front().name, "alone, 1 thread");
  EXPECT_EQ(result.variants.back().name, "array");
  EXPECT_EQ(result.variant("array").ms.size(), 3U);
  EXPECT_GT(result.ratio("array", "alone, 1 thread"), 0);
}

TEST(RunnerTest, RefusedRecordingGoesOnByPlainStepsAndIsReported) {
  Bench recorded, plain;
  const auto step = [](Bench& bench) {
    return hfta::lane_step(bench.array, [](Net& net, const torch::Tensor& x, const torch::Tensor& y) {
      const auto loss = loss_of(net, x, y);
      return loss / loss.item<float>() * 2;
    });
  };
  Runner refused({&recorded.array}, recorded.adam, step(recorded), {}, {.width = 2, .workers = 2});
  Runner oracle({&plain.array}, plain.adam, step(plain), {}, {.workers = 2, .recorded = false});
  for (std::size_t i = 0; i < 3; ++i) refused(recorded.inputs(i)), oracle(plain.inputs(i));
  expect_same_bits(recorded.state(), plain.state());
  EXPECT_FALSE(refused.plan().recorded);
  EXPECT_THAT(refused.report(), ::testing::StartsWith("plain steps: "));
}

TEST(MemoryProbeTest, CountsThePeakOfThisThread) {
  const auto bytes = hfta::train::peak_bytes_during([] {
    auto a = torch::empty({1000});
    a = torch::Tensor();
    const auto b = torch::empty({3000});
  });
  EXPECT_GE(bytes, 12'000);
  EXPECT_LT(bytes, 16'000);
}

TEST(MemoryProbeTest, ProfileIsThatOfTheModel) {
  Bench bench;
  const auto before = bench.state();
  const auto generator = bench.array.generator(0).get_state();
  const auto profile = bench.runner.memory_profile(bench.inputs(0));
  expect_same_bits(bench.state(), before);
  EXPECT_TRUE(torch::equal(bench.array.generator(0).get_state(), generator));
  std::int64_t trainable = 0, all = 0, buffers = 0;
  for (const auto& p : bench.array.lane_parameters(0)) all += p.nbytes(), trainable += p.requires_grad() ? p.nbytes() : 0;
  for (const auto& b : bench.array.lane_buffers(0)) buffers += b.nbytes();
  EXPECT_EQ(profile.gradient_bytes_per_lane, trainable);
  EXPECT_GE(profile.state_bytes_per_lane, all + buffers + 2 * trainable);
  EXPECT_LE(profile.state_bytes_per_lane, all + buffers + 2 * trainable + 100) << "besides Adam's moments there are step counts only";
  EXPECT_GT(profile.activation_bytes_per_lane, 6 * 3 * 4 * 3 * 4);
  EXPECT_LT(profile.activation_bytes_per_lane, 1 << 20);
}

}  // namespace
