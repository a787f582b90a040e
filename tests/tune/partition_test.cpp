#include "hfta/tune/partition.h"

#include "hfta/base/error.h"
#include "study_support.h"

namespace hfta::tune {
namespace partition_test {

Trial trial(std::int64_t number, double batch, double lr, std::optional<double> momentum = {}) {
  Trial trial{.number = number, .parameters = {{"batch", choice({32, 64, 128}), batch}, {"lr", uniform(0, 1), lr}}};
  if (momentum) trial.parameters.push_back({"momentum", uniform(0, 1), *momentum});
  return trial;
}

std::vector<std::vector<std::int64_t>> numbers(const std::vector<Batch>& batches) {
  std::vector<std::vector<std::int64_t>> all;
  for (const auto& batch : batches) all.push_back(batch.trials);
  return all;
}

using Numbers = std::vector<std::vector<std::int64_t>>;

TEST(SplitTest, PutsTogetherWhatAgrees) {
  const std::vector<Trial> trials{trial(4, 1, 0.1), trial(5, 0, 0.2), trial(7, 1, 0.3), trial(9, 2, 0.4), trial(11, 0, 0.5)};
  const auto batches = split(trials, {.by = {"batch"}});
  EXPECT_EQ(numbers(batches), (Numbers{{4, 7}, {5, 11}, {9}}));
  EXPECT_EQ(batches[0].common, (std::vector<std::pair<std::string, Value>>{{"batch", 64}}));
  EXPECT_EQ(numbers(split(trials, {})), (Numbers{{4, 5, 7, 9, 11}}));
}

TEST(SplitTest, AMissingParameterIsAValueOfItsOwn) {
  const std::vector<Trial> trials{trial(0, 0, 0.1), trial(1, 0, 0.1, 0.9), trial(2, 0, 0.1), trial(3, 0, 0.1, 0.9)};
  EXPECT_EQ(numbers(split(trials, {.by = {"batch", "momentum"}})), (Numbers{{0, 2}, {1, 3}}));
}

TEST(SplitTest, DealsOutWhatExceedsTheLimitEvenly) {
  std::vector<Trial> trials;
  for (int i = 0; i < 7; ++i) trials.push_back(trial(i, 0, 0.1));
  EXPECT_EQ(numbers(split(trials, {.max_lanes = 3})), (Numbers{{0, 1}, {2, 3}, {4, 5, 6}}));
  EXPECT_EQ(numbers(split(trials, {.max_lanes = 7})), (Numbers{{0, 1, 2, 3, 4, 5, 6}}));
  EXPECT_EQ(split(trials, {.max_lanes = 1}).size(), 7U);
}

TEST(SplitTest, NoTrialsGiveNoArrays) { EXPECT_TRUE(split({}, {.by = {"batch"}, .max_lanes = 4}).empty()); }

TEST(SplitTest, RefusesUnknownNames) {
  const std::vector<Trial> trials{trial(0, 0, 0.1)};
  EXPECT_EQ(message_of<InvalidArgument>([&] { split(trials, {.by = {"batchsize"}}); }),
            "tune::split: expected one of the parameters batch, lr, got \"batchsize\"");
  EXPECT_EQ(message_of<InvalidArgument>([&] { split(trials, {.max_lanes = -1}); }), "tune::split: expected a limit of lanes from 0 on, got -1");
}

}  // namespace partition_test
}  // namespace hfta::tune
