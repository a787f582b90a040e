#include "hfta/tune/tuner.h"

#include <gmock/gmock.h>

#include "hfta/base/error.h"
#include "hfta/tune/ledger.h"
#include "tests/tune/study_support.h"

namespace hfta::tune {
namespace tuner_test {

using ::testing::ElementsAre;
using Numbers = std::vector<std::int64_t>;

std::vector<Trial> numbered(std::int64_t count) {
  std::vector<Trial> trials(static_cast<std::size_t>(count));
  for (std::int64_t i = 0; i < count; ++i) trials[static_cast<std::size_t>(i)].number = i;
  return trials;
}

TEST(ArraysOfTest, KindsComeInTheOrderOfTheirFirstTrial) {
  const auto kind = [](const Trial& trial) { return trial.number % 3 == 1 ? std::string("sgd") : std::string("adam"); };
  EXPECT_THAT(arrays_of(numbered(5), kind, 64), ElementsAre(Numbers{0, 2, 3}, Numbers{1, 4}));
}

TEST(ArraysOfTest, TooManyLanesAreDealtOutEvenly) {
  const auto kind = [](const Trial&) { return std::string(); };
  EXPECT_THAT(arrays_of(numbered(9), kind, 8), ElementsAre(Numbers{0, 1, 2, 3}, Numbers{4, 5, 6, 7, 8}));
  EXPECT_TRUE(arrays_of({}, kind, 8).empty());
  EXPECT_THROW(arrays_of(numbered(1), kind, 0), InvalidArgument);
}

using LedgerTest = StudyFolder;

TEST_F(LedgerTest, ArraysAndPlansAreKeptWithTheStudy) {
  const plan::Plan plan{.width = 3, .workers = 2, .intra_op_threads = 1, .recorded = false, .device = "cpu", .precision = "float32", .lowerings = {{"a", "b"}}};
  {
    auto study = Study::create(path());
    Ledger ledger(study);
    ledger.add({{0, 2}, {1}});
    ledger.add({});
    ledger.add({{3}});
    ledger.set_plan(1, {.plan = plan, .explanation = "why", .report = "what", .array_ms = 2, .alone_ms = 5, .throughput = "fast"});
  }
  auto study = Study::open(path());
  const Ledger ledger(study);
  EXPECT_THAT(ledger.arrays(), ElementsAre(Numbers{0, 2}, Numbers{1}, Numbers{3}));
  EXPECT_TRUE(ledger.has(3));
  EXPECT_FALSE(ledger.has(4));
  EXPECT_FALSE(ledger.plan(0).has_value());
  const auto kept = ledger.plan(1);
  ASSERT_TRUE(kept.has_value());
  EXPECT_EQ(kept->plan, plan);
  EXPECT_EQ(kept->alone_ms, 5);
  EXPECT_EQ(kept->report, "what");
  ASSERT_EQ(array_plans(study).size(), 1u);
  EXPECT_EQ(array_plans(study)[0].first, Numbers{1});
}

}  // namespace tuner_test
}  // namespace hfta::tune
