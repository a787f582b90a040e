#include "hfta/plan/throughput.h"

#include <gtest/gtest.h>

#include "hfta/base/error.h"

namespace {

using hfta::plan::compare;
using hfta::plan::middle_ms;
using hfta::plan::Throughput;
using hfta::plan::Variant;

TEST(MiddleTest, MeasurementsEndWhereTheyAddUpOrAreMany) {
  int calls = 0;
  const auto counted = [&](double ms) { return [&calls, ms] { return ++calls, ms; }; };
  EXPECT_EQ(middle_ms(counted(20)), 20);
  EXPECT_EQ(calls, 1);
  EXPECT_EQ(middle_ms(counted(6), {1}), 6);
  EXPECT_EQ(calls, 1 + 3);
  EXPECT_EQ(middle_ms(counted(0.1)), 0.1);
  EXPECT_EQ(calls, 4 + 10);
  EXPECT_EQ(middle_ms(counted(1), {20}), 20);
  EXPECT_EQ(calls, 14);
}

TEST(ThroughputTest, MedianIsTheMiddle) {
  EXPECT_EQ(hfta::plan::median({3, 1, 2}), 2);
  EXPECT_EQ(hfta::plan::median({4, 1, 2, 3}), 2.5);
  EXPECT_TRUE(std::isinf(hfta::plan::median({})));
}

TEST(ThroughputTest, VariantsTakeTurns) {
  std::string order;
  double now = 0;
  const auto result = compare({{"alone", [&] { order += 'a', now += 0.012; }}, {"array", [&] { order += 'b', now += 0.004; }}},
                              {.repeats = 3, .clock = [&] { return now; }});
  EXPECT_EQ(order, "abababab");
  EXPECT_NEAR(result.ratio("array", "alone"), 3, 1e-9);
  EXPECT_EQ(result.describe(), "alone 12 ms, array 4 ms (3 times as fast); medians of 3 interleaved repeats, spread up to 0 %");
}

TEST(ThroughputTest, SlowMomentOfTheMachineCancels) {
  double now = 0, load = 1;
  const auto result = compare({{"alone", [&] { now += 0.02 * load; }}, {"array", [&] { now += 0.01 * load, load = load == 1 ? 7 : 1; }}},
                              {.repeats = 9, .clock = [&] { return now; }});
  EXPECT_NEAR(result.ratio("array", "alone"), 2, 1e-9);
  EXPECT_GT(result.variant("array").spread(), 0.5);
}

TEST(ThroughputTest, BudgetLeavesAtLeastThreeRepeats) {
  double now = 0;
  const auto result = compare({{"alone", [&] { now += 100; }}}, {.repeats = 9, .budget_seconds = 1, .clock = [&] { return now; }});
  EXPECT_EQ(result.variant("alone").ms.size(), 3U);
}

TEST(ThroughputTest, MisuseIsTold) {
  EXPECT_THROW(compare({}), hfta::InvalidArgument);
  EXPECT_THROW(compare({{"a", [] {}}, {"a", [] {}}}), hfta::InvalidArgument);
  try {
    compare({{"alone", [] {}}, {"array", [] {}}}).variant("arry");
    ADD_FAILURE() << "nothing thrown";
  } catch (const hfta::InvalidArgument& error) {
    EXPECT_STREQ(error.what(), "plan::Throughput: expected one of alone, array, got \"arry\"");
  }
}

}  // namespace
