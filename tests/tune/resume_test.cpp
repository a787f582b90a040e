#include "hfta/tune/resume.h"

#include "hfta/base/error.h"
#include "study_support.h"

namespace hfta::tune {
namespace {

// Case T9.
TEST(PlanTrialsTest, CountsInTotalUnlessMoreAreAskedFor) {
  const auto check = [](std::int64_t existing, const TrialRequest& request, std::int64_t create, const std::string& summary) {
    const auto plan = plan_trials(existing, request);
    EXPECT_EQ(plan.create, create);
    EXPECT_EQ(plan.summary, summary);
  };
  check(0, {.total = 100}, 100, "the study has 0 trials, 100 wanted in total: 100 new");
  check(1, {.total = 100}, 99, "the study has 1 trial, 100 wanted in total: 99 new");
  check(100, {.total = 100}, 0, "the study has 100 trials, 100 wanted in total: 0 new (ask for more than it has to go on)");
  check(120, {.total = 100}, 0, "the study has 120 trials, 100 wanted in total: 0 new (ask for more than it has to go on)");
  check(100, {.total = 100, .more = 100}, 100, "the study has 100 trials, 100 more wanted: 100 new");
  check(100, {.total = 100, .more = 0}, 0, "the study has 100 trials, 0 more wanted: 0 new");
  check(0, {.total = 10, .points = 4}, 4, "the study has 0 trials, 10 wanted in total: 4 new, since the space has 4 points");
  check(4, {.total = 10, .more = 5, .points = 4}, 0, "the study has 4 trials, 5 more wanted: 0 new, since the space has 4 points");
  check(0, {.total = 4, .points = 4}, 4, "the study has 0 trials, 4 wanted in total: 4 new");
}

TEST(PlanTrialsTest, RefusesNegativeNumbers) {
  EXPECT_EQ(message_of<InvalidArgument>([] { plan_trials(0, {.total = -1}); }), "tune::plan_trials: expected a number of trials from 0 on, got -1");
  EXPECT_EQ(message_of<InvalidArgument>([] { plan_trials(0, {.total = 1, .more = -2}); }),
            "tune::plan_trials: expected a number of further trials from 0 on, got -2");
}

TEST(SpaceChangesTest, NamesWhatDiffersAndOnlyThat) {
  const Space before({{"opt", choice({"adam", "sgd"})}, {"m", uniform(0, 1), Condition{"opt", {"sgd"}}}, {"lr", uniform(0, 1)}});
  EXPECT_TRUE(space_changes(before, before).empty());
  // The order of the parameters is not the space.
  EXPECT_TRUE(space_changes(before, Space({{"lr", uniform(0, 1)}, {"opt", choice({"adam", "sgd"})}, {"m", uniform(0, 1), Condition{"opt", {"sgd"}}}})).empty());
  EXPECT_EQ(space_changes(before, Space({{"opt", choice({"adam", "sgd"})}, {"m", uniform(0, 1)}, {"lr", uniform(0, 2)}})),
            (std::vector<std::string>{"\"m\" to be uniform(0, 1) where \"opt\" is \"sgd\" as in the study, got uniform(0, 1)",
                                      "\"lr\" to be uniform(0, 1) as in the study, got uniform(0, 2)"}));
}

}  // namespace
}  // namespace hfta::tune
