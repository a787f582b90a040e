#include "hfta/cli/board.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace hfta::cli {
namespace {

Board three_trials() {
  Board board;
  board.study = "toy";
  board.metric = "accuracy";
  board.plan = "2 lanes x 1 worker";
  board.epochs = 3;
  board.trials = {{0, "running", 1, 0.51234, 0.8123, {{"lr", "0.01"}, {"optimizer", "adam"}}},
                  {1, "complete", 3, 0.41, 0.9, {{"lr", "0.1"}, {"optimizer", "sgd"}}},
                  {2, "waiting", 0, std::nan(""), std::nan(""), {{"lr", "0.5"}, {"optimizer", "sgd"}}}};
  board.steps = 50;
  board.steps_ahead = 150;
  board.seconds = 10;
  return board;
}

TEST(BoardTest, DrawsTitleTableProgressAndBest) {
  EXPECT_THAT(draw(three_trials(), {80, 24}),
              ::testing::ElementsAre("toy: 2 lanes x 1 worker", "trial  state     epoch    loss  accuracy  lr    optimizer",
                                     "    0  running     1/3  0.5123    0.8123  0.01  adam     ", "    1  complete    3/3    0.41       0.9  0.1   sgd      ",
                                     "    2  waiting     0/3       -         -  0.5   sgd      ",
                                     "[##########..............................]  25 %  5 model-steps/s  0:30 left", "best so far: trial 1, accuracy 0.9"));
}

TEST(BoardTest, NarrowFrameLeavesParametersOutAndSaysHowMany) {
  const auto lines = draw(three_trials(), {50, 24});
  EXPECT_EQ(lines[1], "trial  state     epoch    loss  accuracy  lr   +1");
  for (const auto& line : lines) EXPECT_LE(line.size(), 50u);
}

TEST(BoardTest, NoLineIsWiderAndThereAreNoMoreLinesThanTheFrame) {
  auto board = three_trials();
  for (std::int64_t i = 3; i < 200; ++i) board.trials.push_back({i, "waiting", 0, std::nan(""), std::nan(""), {{"lr", "0.5"}}});
  for (const int width : {1, 7, 20, 45, 200})
    for (const int height : {1, 2, 6, 24}) {
      const auto lines = draw(board, {width, height});
      EXPECT_LE(lines.size(), static_cast<std::size_t>(height));
      for (const auto& line : lines) EXPECT_LE(line.size(), static_cast<std::size_t>(width));
    }
}

TEST(BoardTest, LongListShowsRunningThenBestAndCountsTheRest) {
  auto board = three_trials();
  board.trials.push_back({3, "complete", 3, 0.3, 0.95, {}});
  const auto lines = draw(board, {80, 8});
  EXPECT_THAT(lines[2], ::testing::StartsWith("    0  running"));
  EXPECT_THAT(lines[3], ::testing::StartsWith("    3  complete"));
  EXPECT_THAT(lines[4], ::testing::StartsWith("    1  complete"));
  EXPECT_EQ(lines[5], "... and 1 more");
}

TEST(BoardTest, FailedTrialIsNeverBest) {
  auto board = three_trials();
  board.trials[1].state = "failed";
  EXPECT_EQ(best_trial(board)->number, 0);
  board.maximize = false;
  board.trials[1].state = "complete";
  EXPECT_EQ(best_trial(board)->number, 0);
}

TEST(BoardTest, StoppingSaysHowToStopNow) {
  auto board = three_trials();
  board.is_stopping = true;
  EXPECT_THAT(draw(board, {100, 24}), ::testing::Contains(::testing::HasSubstr("stopping after this epoch; Ctrl-C again stops now")));
}

TEST(BoardTest, ColourMarksTheBestAndTheFailed) {
  auto board = three_trials();
  board.trials[0].state = "failed";
  const auto lines = draw(board, {80, 24, true});
  EXPECT_THAT(lines, ::testing::Contains(::testing::StartsWith("\033[1;32m    1  complete")));
  EXPECT_THAT(lines, ::testing::Contains(::testing::StartsWith("\033[31m    0  failed")));
}

TEST(RoundedTest, NanHasNoSign) {
  EXPECT_EQ(rounded(std::numeric_limits<double>::quiet_NaN()), "nan");
  EXPECT_EQ(rounded(-std::numeric_limits<double>::quiet_NaN()), "nan");
  EXPECT_EQ(rounded(0.123456), "0.1235");
}

TEST(DurationTest, HasMinutesAndHours) {
  EXPECT_EQ(duration(7.4), "0:07");
  EXPECT_EQ(duration(765), "12:45");
  EXPECT_EQ(duration(7389), "2:03:09");
}

}  // namespace
}  // namespace hfta::cli
