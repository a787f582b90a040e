#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>
#include <string>

#include "hfta/plan/cache.h"
#include "hfta/plan/choose.h"
#include "tests/plan/cache_folder.h"

namespace {

using hfta::plan::Plan;
using hfta::plan::SearchOptions;
using hfta::plan::SearchSpace;
using hfta::plan::Subject;
using ::testing::HasSubstr;
using ::testing::Not;

/// A machine on which every measurement takes a tenth of a second.
class ProofTest : public ::testing::Test {
 protected:
  double step_ms(const Plan& plan) {
    seconds_ += 0.1;
    ++measured_;
    const auto threads = plan.workers * plan.intra_op_threads;
    if (fails_ && plan.recorded) throw std::runtime_error("no memory");
    if (busy_ && threads > 1) return waiting_ms_;
    return (plan.recorded ? 3 : alone_ms_) / (static_cast<double>(plan.workers) + 0.5 * (plan.intra_op_threads - 1));
  }

  hfta::plan::SearchResult choose() {
    const auto measure = [this](const Plan& plan) { return step_ms(plan); };
    return hfta::plan::choose(space_, {.key = "a model"}, measure, {.budget_seconds = 1e6, .repeats = 3, .clock = [this] { return seconds_; }});
  }

  const hfta::test::CacheFolder kept_{"proof-test"};
  SearchSpace space_{.lanes = 4, .cores = 2};
  double seconds_ = 0, alone_ms_ = 12, waiting_ms_ = 40;
  bool busy_ = false, fails_ = false;
  int measured_ = 0;
};

TEST_F(ProofTest, PlanThatWasKeptIsTakenOnAQuietMachine) {
  const auto first = choose();
  EXPECT_EQ(first.plan.workers, 2);
  const auto second = choose();
  EXPECT_EQ(second.plan, first.plan);
  EXPECT_THAT(second.explanation, Not(HasSubstr("chosen again")));
}

TEST_F(ProofTest, PlanWhoseWorkersWaitForEachOtherIsChosenAgain) {
  const auto quiet = choose();
  busy_ = true;
  const auto again = choose();
  EXPECT_TRUE(again.plan.recorded);
  EXPECT_EQ(again.plan.workers, 1);
  EXPECT_DOUBLE_EQ(again.step_ms, 3);
  EXPECT_THAT(again.explanation, HasSubstr("chosen again, since on this busy machine " + describe(quiet.plan) + " was slower than one model after the other: " + describe(again.plan)));
  for (const auto& timing : again.timings) EXPECT_EQ(timing.plan.workers, 1) << describe(timing.plan);
  busy_ = false;
  EXPECT_EQ(choose().plan, quiet.plan) << "what a busy machine chose is not kept";
}

TEST_F(ProofTest, PlainStepsOfSeveralThreadsAreProvenToo) {
  space_.recorded = false;
  EXPECT_EQ(choose().plan.workers, 2);
  busy_ = true;
  const auto again = choose();
  EXPECT_EQ(again.plan.workers * again.plan.intra_op_threads, 1);
  EXPECT_THAT(again.explanation, HasSubstr("chosen again"));
}

TEST_F(ProofTest, OneModelAfterTheOtherIsTakenWhereNothingIsFaster) {
  choose();
  busy_ = true, alone_ms_ = 2;
  const auto again = choose();
  EXPECT_FALSE(again.plan.recorded);
  EXPECT_EQ(again.plan.workers, 1);
}

TEST_F(ProofTest, PlanThatIsSlowerByFivePerCentStays) {
  const auto quiet = choose();
  busy_ = true, waiting_ms_ = 12.5;
  EXPECT_EQ(choose().plan, quiet.plan);
  waiting_ms_ = 12.7;
  EXPECT_EQ(choose().plan.workers, 1);
}

TEST_F(ProofTest, ProofEndsInTime) {
  choose();
  measured_ = 0;
  choose();
  EXPECT_EQ(measured_, 4) << "a second round begins before 0.3 s are over, a third does not";
}

TEST_F(ProofTest, PlanIsNotComparedWithPlainStepsThatAreNotAskedFor) {
  space_.plain = false;
  choose();
  measured_ = 0;
  choose();
  EXPECT_EQ(measured_, 0);
}

TEST_F(ProofTest, PlanThatCannotBeMeasuredIsLeftToTheRun) {
  const auto quiet = choose();
  fails_ = true;
  EXPECT_EQ(choose().plan, quiet.plan);
}

}  // namespace
