#include "hfta/tune/study.h"

#include <cmath>
#include <limits>

#include "hfta/base/error.h"
#include "hfta/tune/study_state.h"
#include "study_support.h"

namespace hfta::tune {
namespace study_test {

constexpr double kInf = std::numeric_limits<double>::infinity(), kNan = std::numeric_limits<double>::quiet_NaN();
using StudyTest = StudyFolder;

Space space() { return Space({{"lr", loguniform(1e-5, 0.1)}, {"act", choice({"relu", "gelu"})}}); }

Parameters parameters(double lr, double act = 0) {
  return {{"lr", loguniform(1e-5, 0.1), lr}, {"act", choice({"relu", "gelu"}), act}};
}

TEST_F(StudyTest, KeepsWhatItIsTold) {
  auto study = Study::create(path(), {.name = "s", .directions = {Direction::Maximize}});
  EXPECT_EQ(study.add(parameters(0.01, 1)), 0);
  EXPECT_EQ(study.add(parameters(0.02), TrialState::Waiting), 1);
  study.report(0, 1, 0.5);
  study.report(0, 1, 0.25);
  study.set_user_attribute(0, "hfta:checkpoint", "{\"epoch\":3}");
  study.set_user_attribute("hfta:seed", "17");
  EXPECT_EQ(study.finish(0, TrialState::Complete, {0.75}), TrialState::Complete);

  const auto again = Study::open(path());
  EXPECT_EQ(again.name(), "s");
  EXPECT_EQ(again.directions(), std::vector{Direction::Maximize});
  EXPECT_EQ(again.user_attributes().at("hfta:seed"), "17");
  const auto trials = again.trials();
  ASSERT_EQ(trials.size(), 2U);
  EXPECT_EQ(trials[0].state, TrialState::Complete);
  EXPECT_EQ(trials[0].parameters, parameters(0.01, 1));
  EXPECT_EQ(trials[0].values, std::vector{0.75});
  EXPECT_EQ(trials[0].intermediate, (std::map<std::int64_t, double>{{1, 0.25}}));
  EXPECT_EQ(trials[0].user_attributes.at("hfta:checkpoint"), "{\"epoch\": 3}");
  ASSERT_TRUE(trials[0].started && trials[0].completed);
  EXPECT_LE(*trials[0].started, *trials[0].completed);
  EXPECT_LT(now() - *trials[0].completed, std::chrono::minutes(5));
  EXPECT_EQ(trials[1].state, TrialState::Waiting);
  EXPECT_FALSE(trials[1].started);
  EXPECT_EQ(again.best()->number, 0);
}

// Case T4.
TEST_F(StudyTest, NanAndInfinitiesAreStoredAndReadBack) {  // case T4
  auto study = Study::create(path());
  for (int i = 0; i < 4; ++i) study.add(parameters(0.01));
  const std::vector<Report> reports{{0, 0, kNan}, {0, 1, kInf}, {0, 2, -kInf}, {0, 3, 0.5}};
  study.report(reports);
  EXPECT_EQ(study.finish(0, TrialState::Complete, {kNan}), TrialState::Fail);
  EXPECT_EQ(study.finish(1, TrialState::Complete, {kInf}), TrialState::Complete);
  EXPECT_EQ(study.finish(2, TrialState::Complete, {-kInf}), TrialState::Complete);
  EXPECT_EQ(study.finish(3, TrialState::Fail, {2.5}, "out of memory"), TrialState::Fail);
  const auto trials = study.trials();
  EXPECT_TRUE(std::isnan(trials[0].intermediate.at(0)));
  EXPECT_EQ(trials[0].intermediate.at(1), kInf);
  EXPECT_EQ(trials[0].intermediate.at(2), -kInf);
  EXPECT_EQ(trials[0].intermediate.at(3), 0.5);
  EXPECT_TRUE(trials[0].values.empty());
  EXPECT_EQ(trials[0].user_attributes.at("hfta:values"), "[\"NaN\"]");
  EXPECT_EQ(trials[0].user_attributes.at("hfta:reason"), "\"the final value is NaN\"");
  EXPECT_EQ(trials[1].values, std::vector{kInf});
  EXPECT_EQ(trials[2].values, std::vector{-kInf});
  EXPECT_EQ(trials[3].user_attributes.at("hfta:values"), "[2.5]");
  EXPECT_EQ(trials[3].user_attributes.at("hfta:reason"), "\"out of memory\"");
  EXPECT_EQ(study.best()->number, 2);
}

TEST_F(StudyTest, APrunedTrialTakesItsLastIntermediateValue) {
  auto study = Study::create(path());
  for (int i = 0; i < 3; ++i) study.add(parameters(0.01));
  study.report(0, 0, 0.5);
  study.report(0, 3, 0.25);
  study.report(1, 0, kNan);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(study.finish(i, TrialState::Pruned), TrialState::Pruned);
  const auto trials = study.trials();
  EXPECT_EQ(trials[0].values, std::vector{0.25});
  EXPECT_TRUE(trials[1].values.empty());
  EXPECT_TRUE(trials[2].values.empty());
}

// Case T13.
TEST_F(StudyTest, AnEmptyStudyAndOneOfNanHaveNoBestTrial) {
  auto study = Study::create(path());
  EXPECT_FALSE(study.best());
  for (int i = 0; i < 3; ++i) study.finish(study.add(parameters(0.01)), TrialState::Complete, {kNan});
  EXPECT_FALSE(study.best());
}

TEST_F(StudyTest, TheEarliestOfEqualTrialsIsBest) {
  auto study = Study::create(path());
  for (const double value : {2.0, 1.0, 1.0, kInf}) study.finish(study.add(parameters(0.01)), TrialState::Complete, {value});
  EXPECT_EQ(study.best()->number, 1);
}

TEST_F(StudyTest, AsksForWaitingTrialsFirstAndThenForNewOnes) {
  auto study = Study::create(path());
  study.add(parameters(0.05, 1), TrialState::Waiting);
  study.add({{"lr", uniform(0, 1), 0.5}}, TrialState::Waiting);
  study.add({{"lr", uniform(0, 1), 0.02}}, TrialState::Waiting);
  RandomSampler sampler;
  const auto begun = study.ask(space(), sampler, 5, 4);
  ASSERT_EQ(begun.size(), 4U);
  EXPECT_EQ(begun[0].parameters, parameters(0.05, 1));
  EXPECT_EQ(begun[1].number, 2);  // what it lacked was drawn, what it had is kept
  EXPECT_EQ(find(begun[1].parameters, "lr")->internal, 0.02);
  EXPECT_EQ(find(begun[1].parameters, "lr")->distribution, loguniform(1e-5, 0.1));
  EXPECT_NE(find(begun[1].parameters, "act"), nullptr);
  EXPECT_EQ(begun[2].number, 3);
  EXPECT_EQ(begun[3].number, 4);
  const auto trials = study.trials();
  EXPECT_EQ(trials[1].state, TrialState::Fail);
  EXPECT_EQ(trials[1].user_attributes.at("hfta:reason"), "\"its parameters lie outside of the space\"");
  for (const auto i : {0U, 2U, 3U, 4U}) EXPECT_EQ(trials[i].state, TrialState::Running);
  EXPECT_EQ(trials[3].parameters, begun[2].parameters);
}

TEST_F(StudyTest, AskingOneByOneGivesWhatAskingForManyGives) {
  RandomSampler sampler;
  auto one = Study::create(path("one.db")), many = Study::create(path("many.db"));
  const auto all = many.ask(space(), sampler, 5, 8);
  for (const auto& trial : all) EXPECT_EQ(one.ask(space(), sampler, 5)[0].parameters, trial.parameters);
}

TEST_F(StudyTest, AsksForNoMoreThanTheSpaceHas) {
  auto study = Study::create(path());
  RandomSampler sampler;
  EXPECT_EQ(study.ask(Space({{"act", choice({"relu", "gelu"})}}), sampler, 1, 5).size(), 2U);
  EXPECT_TRUE(study.ask(Space({{"act", choice({"relu", "gelu"})}}), sampler, 1, 5).empty());
}

TEST_F(StudyTest, SeveralStudiesShareAFileByName) {
  auto a = Study::create(path(), {.name = "a"}), b = Study::create(path(), {.name = "b", .directions = {Direction::Minimize, Direction::Maximize}});
  a.add(parameters(0.01));
  EXPECT_EQ(b.add(parameters(0.02)), 0);
  EXPECT_EQ(b.finish(0, TrialState::Complete, {1, 2}), TrialState::Complete);
  EXPECT_EQ(Study::open(path(), "b").trials()[0].values, (std::vector<double>{1, 2}));
  EXPECT_EQ(Study::open(path(), "a").trials().size(), 1U);
}

// Case T12.
TEST_F(StudyTest, RefusesAnotherSpaceUnlessItIsAskedFor) {
  auto study = Study::create(path());
  const Space before({{"lr", uniform(-10, 10)}, {"act", choice({"relu", "gelu"})}}), now({{"lr", loguniform(1e-5, 0.1)}, {"drop", uniform(0, 1)}});
  study.adopt(before);
  study.adopt(before);
  EXPECT_EQ(message_of<InvalidArgument>([&] { study.adopt(now); }),
            "tune::Study: expected \"lr\" to be uniform(-10, 10) as in the study, got loguniform(1e-05, 0.1), and \"act\" to be choice(\"relu\", \"gelu\") as in "
            "the study, got nothing, and \"drop\" to be nothing as in the study, got uniform(0, 1); new_space allows it");
  EXPECT_EQ(study.space()->to_json(), before.to_json());
  study.add({{"lr", uniform(-10, 10), -5}}, TrialState::Waiting);
  study.adopt(now, /*new_space=*/true);
  EXPECT_EQ(study.space()->to_json(), now.to_json());
  RandomSampler sampler;
  for (const auto& trial : study.ask(now, sampler, 1, 20)) EXPECT_TRUE(now.key(trial.parameters)) << trial.number;
  EXPECT_EQ(study.trial(0).state, TrialState::Fail);
}

TEST_F(StudyTest, ComparesTheSpaceWithTheTrialsOfAForeignStudy) {
  auto study = Study::create(path());
  study.add({{"lr", uniform(-10, 10), -5}});
  EXPECT_EQ(message_of<InvalidArgument>([&] { study.adopt(Space({{"lr", loguniform(1e-5, 0.1)}})); }),
            "tune::Study: expected \"lr\" to be uniform(-10, 10) as in the study, got loguniform(1e-05, 0.1); new_space allows it");
  study.adopt(Space({{"lr", uniform(-10, 10)}}));
}

TEST_F(StudyTest, TimesAreWrittenAsOptunaWritesThem) {
  const auto time = time_of("2026-12-01 23:41:07.000824");
  EXPECT_EQ(to_text(time), "2026-12-01 23:41:07.000824");
  EXPECT_EQ(time.time_since_epoch().count(), 1796168467000824);
  EXPECT_EQ(to_text(time_of("1999-02-28 00:00:00")), "1999-02-28 00:00:00.000000");
}

}  // namespace study_test
}  // namespace hfta::tune
