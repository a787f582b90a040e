#include "hfta/base/error.h"

#include <gtest/gtest.h>

namespace {

TEST(ErrorTest, PartsBecomeOneLine) {
  try {
    HFTA_CHECK(1 > 2, "base::Test: expected ", 1, ", got ", 2.5);
    FAIL() << "nothing thrown";
  } catch (const hfta::InvalidArgument& e) {
    EXPECT_STREQ(e.what(), "base::Test: expected 1, got 2.5");
  }
}

TEST(ErrorTest, PartsAreEvaluatedOnlyOnFailure) {
  int evaluated = 0;
  HFTA_CHECK(true, "x", ++evaluated);
  EXPECT_EQ(evaluated, 0);
}

}  // namespace
