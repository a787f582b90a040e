#include "hfta/tune/space.h"

#include <limits>

#include "hfta/base/error.h"
#include "hfta/tune/sampler.h"
#include "study_support.h"

namespace hfta::tune {
namespace {

std::string refusal(std::vector<Dimension> dimensions) {
  return message_of<InvalidArgument>([&] { Space space(std::move(dimensions)); });
}

TEST(SpaceTest, RefusesWhatCannotBeSearched) {
  const double nan = std::numeric_limits<double>::quiet_NaN(), inf = std::numeric_limits<double>::infinity();
  EXPECT_EQ(refusal({}), "tune::Space: expected at least one parameter, got none");
  EXPECT_EQ(refusal({{"", uniform(0, 1)}}), "tune::Space: expected a name for every parameter, got an empty one");
  EXPECT_EQ(refusal({{"lr", uniform(2, 1)}}), "tune::Space: expected low <= high for \"lr\", got uniform(2, 1)");
  EXPECT_EQ(refusal({{"lr", loguniform(0, 1)}}), "tune::Space: expected low > 0 for \"lr\" on a log scale, got loguniform(0, 1)");
  EXPECT_EQ(refusal({{"lr", uniform(nan, 1)}}), "tune::Space: expected finite bounds for \"lr\", got uniform(nan, 1)");
  EXPECT_EQ(refusal({{"lr", uniform(0, inf)}}), "tune::Space: expected finite bounds for \"lr\", got uniform(0, inf)");
  EXPECT_EQ(refusal({{"lr", quniform(0, 1, 0)}}), "tune::Space: expected step > 0 for \"lr\", got quniform(0, 1, 0)");
  EXPECT_EQ(refusal({{"lr", quniform(0, 1, 1e-17)}}), "tune::Space: expected a larger step for \"lr\", got quniform(0, 1, 1e-17)");
  EXPECT_EQ(refusal({{"lr", FloatDistribution{.low = 1, .high = 2, .log = true, .step = 1.0}}}),
            "tune::Space: expected no step for \"lr\" on a log scale, got loguniform(1, 2, 1)");
  EXPECT_EQ(refusal({{"n", integer(3, 1)}}), "tune::Space: expected low <= high for \"n\", got int(3, 1)");
  EXPECT_EQ(refusal({{"n", logint(0, 8)}}), "tune::Space: expected low > 0 for \"n\" on a log scale, got int(0, 8, log)");
  EXPECT_EQ(refusal({{"n", integer(0, 8, 0)}}), "tune::Space: expected step > 0 for \"n\", got int(0, 8, step 0)");
  EXPECT_EQ(refusal({{"n", integer(0, std::int64_t{1} << 60)}}), "tune::Space: expected bounds of \"n\" up to 2^53, got int(0, 1152921504606846976)");
  EXPECT_EQ(refusal({{"act", choice({})}}), "tune::Space: expected at least one choice for \"act\", got none");
  EXPECT_EQ(refusal({{"act", choice({"relu", "gelu", "relu"})}}), "tune::Space: expected different choices for \"act\", got \"relu\" and \"relu\"");
  EXPECT_EQ(refusal({{"act", choice({1, true})}}), "tune::Space: expected different choices for \"act\", got 1 and true");
  EXPECT_EQ(refusal({{"act", choice({1.0, nan})}}), "tune::Space: expected finite numbers as choices of \"act\", got nan");
  EXPECT_EQ(refusal({{"lr", uniform(0, 1)}, {"lr", uniform(0, 2)}}),
            "tune::Space: expected one definition of \"lr\", got uniform(0, 1) and uniform(0, 2)");
}

TEST(SpaceTest, RefusesConditionsThatCannotHold) {
  const Dimension a{"a", choice({1, 2})};
  EXPECT_EQ(refusal({{"b", uniform(0, 1), Condition{"a", {1}}}, a}), "tune::Space: expected the condition of \"b\" to ask for an earlier parameter, got \"a\"");
  EXPECT_EQ(refusal({a, {"b", uniform(0, 1), Condition{"a", {}}}}), "tune::Space: expected at least one value in the condition of \"b\", got none");
  EXPECT_EQ(refusal({a, {"b", uniform(0, 1), Condition{"a", {3}}}}), "tune::Space: expected values of \"a\" in the condition of \"b\", got 3");
  EXPECT_EQ(refusal({{"a", uniform(0, 1)}, {"b", uniform(0, 1), Condition{"a", {1}}}}),
            "tune::Space: expected the condition of \"b\" to ask for a parameter with finitely many values, got uniform(0, 1)");
  EXPECT_EQ(refusal({a, {"b", uniform(0, 1), Condition{"a", {1}}}, {"b", loguniform(1, 2), Condition{"a", {2}}}}),
            "tune::Space: expected definitions of \"b\" of one kind, got uniform(0, 1) and loguniform(1, 2)");
}

TEST(SpaceTest, CountsItsPoints) {
  EXPECT_EQ(Space({{"a", choice({1, 2, 3})}, {"b", integer(0, 4, 2)}, {"c", quniform(0, 1, 0.5)}}).points(), 27U);
  EXPECT_EQ(Space({{"a", choice({1, 2, 3})}, {"b", uniform(0, 1)}}).points(), std::nullopt);
  EXPECT_EQ(Space({{"a", uniform(2, 2)}, {"b", choice({"x", "y"})}}).points(), 2U);
  const auto wide = integer(0, std::int64_t{1} << 40);
  EXPECT_EQ(Space({{"a", wide}, {"b", wide}}).points(), std::nullopt);
}

// Case T25.
TEST(SpaceTest, ConditionsGiveFourPointsAndNotEight) {
  const Space space({{"a", choice({1, 2})}, {"b", choice({8, 9}), Condition{"a", {1}}}, {"b", choice({6, 7}), Condition{"a", {2}}}});
  EXPECT_EQ(space.points(), 4U);
  GridSampler grid;
  EXPECT_EQ(grid.size(space), 4U);
  std::vector<Trial> trials;
  std::vector<std::string> found;
  for (int i = 0; i < 5; ++i) {
    Random random(1, i);
    auto parameters = grid.suggest(space, trials, random);
    if (!parameters) break;
    found.push_back(to_json(find(*parameters, "a")->value()) + to_json(find(*parameters, "b")->value()));
    trials.push_back({.number = i, .parameters = *parameters});
  }
  EXPECT_EQ(found, (std::vector<std::string>{"18", "19", "26", "27"}));
  // Optuna wants one list of choices per name.
  EXPECT_EQ(describe(find(trials[0].parameters, "b")->distribution), "choice(8, 9, 6, 7)");
}

TEST(SpaceTest, KnowsItsOwnPointsFromOthers) {
  const Space space({{"act", choice({"relu", "gelu"})}, {"drop", quniform(0, 1, 0.1)}});
  const auto of = [&](const Distribution& act, double act_index, double drop) { return space.key({{"act", act, act_index}, {"drop", uniform(0, 1), drop}}); };
  EXPECT_EQ(of(choice({"relu", "gelu"}), 1, 0.3), of(choice({"gelu"}), 0, 0.1 + 0.2));
  EXPECT_NE(of(choice({"relu", "gelu"}), 1, 0.3), of(choice({"relu", "gelu"}), 0, 0.3));
  EXPECT_EQ(of(choice({"tanh"}), 0, 0.3), std::nullopt);
  EXPECT_EQ(of(choice({"relu"}), 0, 0.35), std::nullopt);
  EXPECT_EQ(space.key({{"act", choice({"relu"}), 0}}), std::nullopt);
  EXPECT_EQ(space.key({{"act", choice({"relu"}), 0}, {"drop", uniform(0, 1), 0}, {"lr", uniform(0, 1), 0}}), std::nullopt);
}

TEST(SpaceTest, IsReadBackFromItsJson) {
  const Space space({{"opt", choice({"adam", "sgd"})},
                     {"lr", loguniform(1e-5, 0.1)},
                     {"momentum", quniform(0, 0.95, 0.05), Condition{"opt", {"sgd"}}},
                     {"n", logint(1, 64)}});
  EXPECT_EQ(Space::from_json(space.to_json()).to_json(), space.to_json());
  EXPECT_EQ(message_of<InvalidArgument>([] { Space::from_json("[{}]"); }),
            "tune::Space: expected a list of {\"name\": ..., \"distribution\": ...}, got [{}]");
}

}  // namespace
}  // namespace hfta::tune
