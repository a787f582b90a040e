#include "hfta/tune/sampler.h"

#include <cmath>
#include <set>

#include "hfta/base/error.h"
#include "study_support.h"

namespace hfta::tune {
namespace {

std::vector<Trial> run(Sampler& sampler, const Space& space, std::uint64_t seed, std::int64_t count) {
  std::vector<Trial> trials;
  for (std::int64_t i = 0; i < count; ++i) {
    Random random(seed, i);
    auto parameters = sampler.suggest(space, trials, random);
    if (!parameters) break;
    trials.push_back({.number = i, .parameters = std::move(*parameters)});
  }
  return trials;
}

double number_of(const Trial& trial, const std::string& name) { return find(trial.parameters, name)->internal; }

const Space& mixed() {
  static const Space space({{"lr", loguniform(1e-5, 0.1)}, {"x", uniform(-10, 10)}, {"drop", quniform(0, 1, 0.25)}, {"layers", integer(1, 8)},
                            {"width", logint(1, 1024)}, {"act", choice({"relu", "gelu", 3})}});
  return space;
}

TEST(RandomSamplerTest, IsRepeatableFromSeedAndTrialNumberAlone) {
  RandomSampler one, two;
  const auto all = run(one, mixed(), 7, 20);
  // Another process that begins at trial 12, and one that draws trials out of order.
  for (const std::int64_t i : {12, 3, 19}) {
    Random random(7, i);
    EXPECT_EQ(two.suggest(mixed(), std::span(all).first(static_cast<std::size_t>(i)), random), all[static_cast<std::size_t>(i)].parameters);
  }
  EXPECT_NE(run(one, mixed(), 8, 1)[0].parameters, all[0].parameters);
  EXPECT_NE(all[0].parameters, all[1].parameters);
}

TEST(RandomSamplerTest, DrawsTheSameNumbersOnEveryPlatform) {
  EXPECT_EQ(Random(42, 0).next(), 9050367633831436209U);
  RandomSampler sampler;
  const auto trial = run(sampler, Space({{"n", integer(0, 1'000'000)}}), 42, 1)[0];
  EXPECT_EQ(number_of(trial, "n"), 852737);
}

TEST(RandomSamplerTest, StaysWithinBoundsAndCoversThem) {
  RandomSampler sampler;
  const auto trials = run(sampler, mixed(), 1, 4000);
  ASSERT_EQ(trials.size(), 4000U);
  std::set<double> layers, drops, acts;
  double below = 0, logs = 0, small_width = 0;
  for (const auto& trial : trials) {
    for (const auto& p : trial.parameters) ASSERT_TRUE(contains(p.distribution, p.internal)) << p.name << " " << p.internal;
    layers.insert(number_of(trial, "layers")), drops.insert(number_of(trial, "drop")), acts.insert(number_of(trial, "act"));
    below += number_of(trial, "x") < 0;
    logs += number_of(trial, "lr") < 1e-3;
    small_width += number_of(trial, "width") <= 32;
  }
  EXPECT_EQ(layers.size(), 8U);
  EXPECT_EQ(drops, (std::set<double>{0, 0.25, 0.5, 0.75, 1}));
  EXPECT_EQ(acts.size(), 3U);
  EXPECT_NEAR(below / 4000, 0.5, 0.03);
  EXPECT_NEAR(logs / 4000, 0.5, 0.03);          // 1e-3 is the middle of 1e-5..0.1 on a log scale
  const double share = std::log(32.5 / 0.5) / std::log(1024.5 / 0.5);
  EXPECT_NEAR(small_width / 4000, share, 0.03);
}

TEST(RandomSamplerTest, BoundsAreIncluded) {
  Random random(5, 0);
  EXPECT_EQ(draw(uniform(0.3, 0.3), random), 0.3);
  EXPECT_EQ(draw(loguniform(1e-3, 1e-3), random), 1e-3);
  std::set<double> drawn;
  for (int i = 0; i < 200; ++i) drawn.insert(draw(logint(1, 3), random));
  EXPECT_EQ(drawn, (std::set<double>{1, 2, 3}));
}

// Case T10.
TEST(RandomSamplerTest, GivesEachPointOfAFiniteSpaceOnce) {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    RandomSampler sampler;
    const auto trials = run(sampler, Space({{"act", choice({"relu", "gelu"})}}), seed, 5);
    ASSERT_EQ(trials.size(), 2U);
    EXPECT_NE(trials[0].parameters, trials[1].parameters);
  }
  RandomSampler sampler;
  const Space space({{"a", integer(1, 20)}, {"b", logint(1, 30)}});
  std::set<std::string> keys;
  const auto trials = run(sampler, space, 3, 1000);
  for (const auto& trial : trials) keys.insert(*space.key(trial.parameters));
  EXPECT_EQ(trials.size(), 600U);
  EXPECT_EQ(keys.size(), 600U);
}

TEST(RandomSamplerTest, RepeatsPointsWhenAllowed) {
  RandomSampler sampler({.allow_duplicates = true});
  EXPECT_EQ(run(sampler, Space({{"act", choice({"relu", "gelu"})}}), 1, 9).size(), 9U);
}

TEST(RandomSamplerTest, CountsOnlyTrialsOfTheSpace) {
  RandomSampler sampler;
  const Space space({{"act", choice({"relu"})}});
  const std::vector<Trial> other{{.number = 0, .parameters = {{"act", choice({"tanh"}), 0}}}};
  Random random(1, 1);
  EXPECT_TRUE(sampler.suggest(space, other, random).has_value());
}

TEST(GridSamplerTest, WalksEveryPointInOrderAndGoesOnWhereItStopped) {
  GridSampler grid({.points = 3});
  const Space space({{"lr", loguniform(1e-4, 1e-2)}, {"act", choice({"relu", "gelu"})}});
  EXPECT_EQ(grid.size(space), 6U);
  const auto trials = run(grid, space, 0, 100);
  ASSERT_EQ(trials.size(), 6U);
  EXPECT_EQ(number_of(trials[0], "lr"), 1e-4);
  EXPECT_EQ(number_of(trials[1], "lr"), 1e-4);
  EXPECT_EQ(number_of(trials[1], "act"), 1);
  EXPECT_NEAR(number_of(trials[2], "lr"), 1e-3, 1e-15);
  EXPECT_EQ(number_of(trials[5], "lr"), 1e-2);
  Random random(9, 4);
  EXPECT_EQ(GridSampler({.points = 3}).suggest(space, std::span(trials).first(4), random), trials[4].parameters);
}

TEST(GridSamplerTest, ThinsOutByName) {
  const Space space({{"n", integer(0, 100)}, {"w", logint(1, 1000)}, {"x", uniform(-1, 1)}});
  GridSampler grid({.points = 1, .points_of = {{"n", 3}, {"w", 4}}});
  EXPECT_EQ(grid.size(space), 12U);
  std::set<double> n, w, x;
  for (const auto& trial : run(grid, space, 0, 12)) n.insert(number_of(trial, "n")), w.insert(number_of(trial, "w")), x.insert(number_of(trial, "x"));
  EXPECT_EQ(n, (std::set<double>{0, 50, 100}));
  EXPECT_EQ(w, (std::set<double>{1, 10, 100, 1000}));
  EXPECT_EQ(x, (std::set<double>{0}));
}

TEST(GridSamplerTest, RefusesWhatItCannotList) {
  const Space space({{"n", integer(0, 5'000'000)}, {"x", uniform(0, 1)}});
  EXPECT_EQ(message_of<InvalidArgument>([] { GridSampler grid({.points = 0}); }), "tune::GridSampler: expected at least 1 point per parameter, got 0");
  EXPECT_EQ(message_of<InvalidArgument>([] { GridSampler grid({.points_of = {{"x", 0}}}); }), "tune::GridSampler: expected at least 1 point for \"x\", got 0");
  EXPECT_EQ(message_of<InvalidArgument>([&] { GridSampler().size(space); }), "tune::GridSampler: expected at most 1000000 points for \"n\", got 5000001");
  EXPECT_EQ(message_of<InvalidArgument>([&] { GridSampler({.points_of = {{"y", 2}}}).size(space); }),
            "tune::GridSampler: expected points of one of n, x, got \"y\"");
  EXPECT_EQ(message_of<InvalidArgument>([] { make_sampler("tpe"); }), "tune::Sampler: expected one of random, grid, got \"tpe\"");
}

}  // namespace
}  // namespace hfta::tune
