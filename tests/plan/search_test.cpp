#include "hfta/plan/search.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <random>
#include <utility>

#include "hfta/base/error.h"

namespace {

using hfta::plan::candidates;
using hfta::plan::MemoryProfile;
using hfta::plan::Plan;
using hfta::plan::search;
using hfta::plan::SearchOptions;
using hfta::plan::SearchSpace;

TEST(CandidatesTest, OneModelPerWorkerIsToBeBeaten) {
  const auto plans = candidates({.lanes = 32, .cores = 4});
  EXPECT_EQ(plans[0], (Plan{.width = 1, .workers = 4, .intra_op_threads = 1, .recorded = false}));
  EXPECT_THAT(plans, ::testing::Contains(Plan{.width = 1, .workers = 1, .intra_op_threads = 4, .recorded = false}));
  EXPECT_THAT(plans, ::testing::Contains(Plan{.width = 1, .workers = 4, .intra_op_threads = 1, .recorded = true}));
  EXPECT_THAT(plans, ::testing::Contains(Plan{.width = 8, .workers = 4, .intra_op_threads = 1, .recorded = true}));
  EXPECT_THAT(plans, ::testing::Contains(Plan{.width = 32, .workers = 1, .intra_op_threads = 4, .recorded = true}));
}

TEST(CandidatesTest, EachIsValidUniqueAndWithinTheCores) {
  for (std::int64_t lanes : {1, 2, 3, 7, 12, 64})
    for (std::int64_t cores : {1, 2, 3, 6, 16}) {
      const auto plans = candidates({.lanes = lanes, .cores = cores});
      for (std::size_t i = 0; i < plans.size(); ++i) {
        EXPECT_NO_THROW(validate(plans[i], lanes)) << describe(plans[i]);
        EXPECT_LE(plans[i].workers * plans[i].intra_op_threads, cores) << describe(plans[i]);
        EXPECT_EQ(std::count(plans.begin(), plans.end(), plans[i]), 1) << describe(plans[i]);
      }
      const auto even = (lanes + std::min(lanes, cores) - 1) / std::min(lanes, cores);
      EXPECT_TRUE(std::any_of(plans.begin(), plans.end(), [&](const Plan& p) { return p.recorded && p.width == even; })) << lanes << " " << cores;
    }
}

TEST(CandidatesTest, OnlyPlainOrOnlyRecordedOnRequest) {
  for (const auto& plan : candidates({.lanes = 8, .cores = 2, .recorded = false})) EXPECT_FALSE(plan.recorded);
  for (const auto& plan : candidates({.lanes = 8, .cores = 2, .plain = false})) EXPECT_TRUE(plan.recorded);
  EXPECT_THROW(candidates({.lanes = 8, .cores = 2, .recorded = false, .plain = false}), hfta::InvalidArgument);
  const auto one_by_one = candidates({.lanes = 8, .cores = 2, .recorded = false, .plain_workers = false});
  ASSERT_EQ(one_by_one.size(), 1U);
  EXPECT_EQ(describe(one_by_one[0]), "1 worker x 2 threads, plain, cpu, float32");
}

TEST(CandidatesTest, ThoseThatNeedTooMuchMemoryAreLeftOut) {
  SearchSpace space{.lanes = 8, .cores = 2};
  space.memory = MemoryProfile{.lanes = 8, .state_bytes_per_lane = 1 << 20, .activation_bytes_per_lane = 1 << 20};
  space.memory_limit_bytes = 13 << 20;
  for (const auto& plan : candidates(space)) EXPECT_LE(plan.width * plan.workers, 4) << describe(plan);
  space.memory_limit_bytes = 9 << 20;
  try {
    candidates(space);
    ADD_FAILURE() << "nothing thrown";
  } catch (const hfta::InvalidArgument& error) {
    EXPECT_STREQ(error.what(),
                 "plan::candidates: expected an array that fits into 9.0 MiB, got one of 8 lanes that needs 9.2 MiB one lane at a time");
  }
}

// A machine whose clock moves only by what is measured.
struct Machine {
  double seconds = 0;
  std::map<std::string, int> calls{};
  std::function<double(const Plan&)> ms;

  SearchOptions options(double budget = 1e9) {
    return {.budget_seconds = budget, .clock = [this] { return seconds; }};
  }
  double operator()(const Plan& plan) {
    ++calls[describe(plan)];
    const double time = ms(plan);
    seconds += time * 1e-3;
    return time;
  }
};

// A step with an inside optimum at width 8 on two workers.
double inside_optimum(const Plan& plan) {
  if (!plan.recorded) return 20;
  return (4 + std::abs(std::log2(static_cast<double>(plan.width)) - 3)) * (plan.workers == 2 ? 1 : 1.7);
}

TEST(SearchTest, FindsAnInsideOptimum) {
  Machine machine{.ms = inside_optimum};
  const auto result = search(candidates({.lanes = 32, .cores = 2}), std::ref(machine), machine.options());
  EXPECT_EQ(result.plan, (Plan{.width = 8, .workers = 2, .intra_op_threads = 1}));
  EXPECT_DOUBLE_EQ(result.step_ms, 4);
  EXPECT_THAT(result.explanation,
              ::testing::MatchesRegex("8 lanes x 2 workers x 1 thread, recorded, cpu, float32: 4 ms a step, 5 times as fast as 2 workers x 1 "
                                      "thread, plain, cpu, float32 \\([0-9]+ of [0-9]+ plans timed in .* s\\)"));
}

TEST(SearchTest, NoiseDoesNotHideALargeDifference) {
  std::mt19937 random(3);
  std::lognormal_distribution<double> noise(0, 0.15);
  for (int round = 0; round < 50; ++round) {
    Machine machine{.ms = [&](const Plan& plan) { return inside_optimum(plan) * noise(random); }};
    const auto result = search(candidates({.lanes = 32, .cores = 2}), std::ref(machine), machine.options());
    EXPECT_LE(inside_optimum(result.plan), 1.3 * 4) << describe(result.plan);
  }
}

TEST(SearchTest, LosersAreTimedLessOftenThanFinalists) {
  Machine machine{.ms = inside_optimum};
  search(candidates({.lanes = 32, .cores = 2}), std::ref(machine), machine.options());
  EXPECT_EQ(machine.calls["8 lanes x 2 workers x 1 thread, recorded, cpu, float32"], 8);
  EXPECT_EQ(machine.calls["2 workers x 1 thread, plain, cpu, float32"], 1);
}

TEST(SearchTest, PlainStepsWinWhereTheyAreFaster) {
  Machine machine{.ms = [](const Plan& plan) { return plan.recorded ? 9.0 : 3.0 + static_cast<double>(plan.intra_op_threads); }};
  const auto result = search(candidates({.lanes = 32, .cores = 2}), std::ref(machine), machine.options());
  EXPECT_EQ(result.plan, (Plan{.width = 1, .workers = 2, .intra_op_threads = 1, .recorded = false}));
}

TEST(SearchTest, OfEquallyFastPlansTheSmallerIsTaken) {
  Machine machine{.ms = [](const Plan& plan) { return plan.width >= 4 ? 1.0 : 5.0; }};
  const auto result = search(candidates({.lanes = 32, .cores = 2}), std::ref(machine), machine.options());
  EXPECT_EQ(result.plan, (Plan{.width = 4, .workers = 1, .intra_op_threads = 2}));
}

TEST(SearchTest, CandidateThatCannotRunIsLeftOutAndExplained) {
  Machine machine{.ms = [](const Plan& plan) -> double {
    if (plan.width == 8) throw hfta::Unsupported("no memory");
    return inside_optimum(plan);
  }};
  const auto result = search(candidates({.lanes = 16, .cores = 1}), std::ref(machine), machine.options());
  EXPECT_EQ(result.plan.width, 4);
  EXPECT_THAT(result.explanation, ::testing::HasSubstr("could not run: 8 lanes x 1 worker x 1 thread, recorded, cpu, float32: no memory"));
}

TEST(SearchTest, AllReasonsAreToldWhenNothingRuns) {
  try {
    search(candidates({.lanes = 4, .cores = 1}), [](const Plan& plan) -> double {
      throw hfta::Unsupported(plan.recorded ? "cannot be recorded" : "cannot run at all");
    });
    ADD_FAILURE() << "nothing thrown";
  } catch (const hfta::Error& error) {
    EXPECT_STREQ(error.what(), "plan::search: expected a plan that runs, got none of 4; cannot be recorded; cannot run at all");
  }
}

TEST(SearchTest, BudgetEndsTheSearchButThePlanToBeatAndARecordedOneAreTimed) {
  Machine machine{.ms = inside_optimum};
  const auto plans = candidates({.lanes = 32, .cores = 2});
  const auto none = search(plans, std::ref(machine), machine.options(0));
  EXPECT_EQ(none.plan, (Plan{.width = 1, .workers = 2, .intra_op_threads = 1}));
  EXPECT_EQ(machine.calls, (std::map<std::string, int>{{"1 lane x 2 workers x 1 thread, recorded, cpu, float32", 1}, {"2 workers x 1 thread, plain, cpu, float32", 2}}))
      << "the slower kind twice";
  Machine refusing{.ms = [](const Plan& plan) -> double { return plan.recorded ? throw hfta::Unsupported("cannot be recorded") : 20; }};
  EXPECT_EQ(search(plans, std::ref(refusing), refusing.options(0)).plan, plans[0]);
  Machine slow{.ms = inside_optimum};
  const auto some = search(plans, std::ref(slow), slow.options(0.1));
  EXPECT_LT(some.seconds, 0.13);
  EXPECT_TRUE(some.plan.recorded);
}

TEST(SearchTest, ASlowMomentOfTheMachineDoesNotDecideAlone) {
  const auto plans = candidates({.lanes = 32, .cores = 2});
  for (const bool recorded : {false, true})
    for (const double budget : {0.0, 0.05}) {
      bool stalled = false;
      Machine machine{.ms = [&](const Plan& plan) {
        const bool stalls = plan.recorded == recorded && !std::exchange(stalled, stalled || plan.recorded == recorded);
        return (plan.recorded == recorded ? 5 : 10) + (stalls ? 2000 : 0);
      }};
      EXPECT_EQ(search(plans, std::ref(machine), machine.options(budget)).plan.recorded, recorded) << "budget " << budget;
    }
}

TEST(SearchTest, PromisingPlansAreTimedFirstAndHopelessOnesNever) {
  std::vector<Plan> order;
  Machine machine{.ms = inside_optimum};
  auto options = machine.options();
  options.predict = [](const Plan& plan) { return 7 * inside_optimum(plan); };
  const auto plans = candidates({.lanes = 32, .cores = 2});
  const auto result = search(plans, [&](const Plan& plan) { return order.push_back(plan), machine(plan); }, options);
  EXPECT_EQ(order[0], plans[0]) << "the plan to be beaten";
  EXPECT_EQ(order[1], (Plan{.width = 8, .workers = 2, .intra_op_threads = 1}));
  EXPECT_EQ(result.plan, order[1]);
  for (const auto& timing : result.timings) {
    EXPECT_EQ(timing.is_pruned, timing.plan.recorded && inside_optimum(timing.plan) > 2.5 * 4) << describe(timing.plan);
    EXPECT_EQ(timing.is_pruned, timing.step_ms.empty()) << describe(timing.plan);
    if (timing.is_pruned) continue;
    EXPECT_NEAR(timing.predicted_ms, inside_optimum(timing.plan), 1e-9) << "predictions are scaled to what was measured";
  }
  EXPECT_THAT(result.explanation, ::testing::HasSubstr(" left out as hopeless)"));
  options.prunes = false;
  for (const auto& timing : search(plans, std::ref(machine), options).timings) EXPECT_FALSE(timing.is_pruned);
}

TEST(SearchTest, PlainStepsAreNeverPruned) {
  Machine machine{.ms = [](const Plan& plan) { return plan.recorded ? 9.0 : 3.0 + static_cast<double>(plan.intra_op_threads); }};
  auto options = machine.options();
  options.predict = [](const Plan& plan) { return plan.recorded ? 1.0 : 1e6; };
  EXPECT_FALSE(search(candidates({.lanes = 32, .cores = 2}), std::ref(machine), options).plan.recorded);
  EXPECT_FALSE(search(candidates({.lanes = 1, .cores = 2}), std::ref(machine), options).plan.recorded) << "not at one lane either";
}

TEST(SearchTest, ShortRunIsNotSearchedForLong) {
  Machine machine{.ms = inside_optimum};
  auto options = machine.options();
  options.predict = inside_optimum;
  options.run_steps = 10;
  const auto plans = candidates({.lanes = 32, .cores = 2});
  const auto tiny = search(plans, std::ref(machine), options);
  EXPECT_EQ(tiny.plan, (Plan{.width = 8, .workers = 2, .intra_op_threads = 1})) << "the most promising one";
  EXPECT_EQ(machine.calls.size(), 2U) << "which was timed beside the one to be beaten, and no more";
  Machine longer{.ms = inside_optimum};
  options = longer.options();
  options.run_steps = 1000;
  EXPECT_LE(search(plans, std::ref(longer), options).seconds, 0.05 * 4e-3 * 1000 + 0.02);
  EXPECT_GT(longer.calls.size(), 5U);
}

TEST(SearchTest, ATimeThatIsNoNumberIsAnError) {
  const auto nan = [](const Plan&) { return std::numeric_limits<double>::quiet_NaN(); };
  EXPECT_THROW(search({Plan{}}, nan), hfta::Error);
  EXPECT_THROW(search({}, nan), hfta::InvalidArgument);
}

}  // namespace
