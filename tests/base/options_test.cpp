#include "hfta/base/options.h"

#include <gtest/gtest.h>

#include <functional>

#include "hfta/base/error.h"

namespace {

using hfta::base::OptionReader;
using hfta::base::Options;

std::string error_of(const std::function<void()>& run) {
  try {
    run();
  } catch (const hfta::InvalidArgument& e) {
    return e.what();
  }
  return "nothing thrown";
}

TEST(OptionReaderTest, GivenValuesWinOverTheDefaults) {
  OptionReader reader("zoo::net", {{"hidden", 32}, {"p", 0.5}, {"act", "relu"}, {"sizes", std::vector<double>{3, 5}}, {"bias", false}, {"one", 7}});
  EXPECT_EQ(reader.integer("hidden", 1), 32);
  EXPECT_EQ(reader.number("p", 0.1), 0.5);
  EXPECT_EQ(reader.text("act", "tanh"), "relu");
  EXPECT_EQ(reader.integers("sizes", {}), (std::vector<std::int64_t>{3, 5}));
  EXPECT_EQ(reader.integers("one", {}), (std::vector<std::int64_t>{7}));
  EXPECT_FALSE(reader.flag("bias", true));
  EXPECT_EQ(reader.integer("layers", 2), 2);
  EXPECT_NO_THROW(reader.done());
}

TEST(OptionReaderTest, WholeRealCountsAsInteger) {
  EXPECT_EQ(OptionReader("a", {{"n", 4.0}}).integer("n", 1), 4);
  EXPECT_EQ(error_of([] { OptionReader("zoo::net", {{"n", 4.5}}).integer("n", 1); }),
            "zoo::net: expected a whole number of at least 1 as \"n\", got 4.5");
}

TEST(OptionReaderTest, UnknownOptionListsTheKnownOnes) {
  OptionReader reader("zoo::net", {{"hiden", 3}});
  reader.integer("hidden", 1);
  reader.number("dropout", 0);
  EXPECT_EQ(error_of([&] { reader.done(); }), "zoo::net: expected an option out of hidden, dropout, got \"hiden\"");
}

TEST(OptionReaderTest, ValueOutOfRangeIsRefused) {
  EXPECT_EQ(error_of([] { OptionReader("zoo::net", {{"p", 1.5}}).number("p", 0, 0, 1); }),
            "zoo::net: expected a finite number in [0, 1] as \"p\", got 1.5");
  EXPECT_EQ(error_of([] { OptionReader("zoo::net", {{"p", std::numeric_limits<double>::quiet_NaN()}}).number("p", 0); }),
            "zoo::net: expected a finite number as \"p\", got nan");
  EXPECT_EQ(error_of([] { OptionReader("zoo::net", {{"act", "swish"}}).word("act", "relu", {"relu", "tanh"}); }),
            "zoo::net: expected one of relu, tanh as \"act\", got \"swish\"");
}

TEST(OptionReaderTest, WrongTypeIsRefused) {
  EXPECT_EQ(error_of([] { OptionReader("a", {{"n", "x"}}).integer("n", 1); }), "a: expected a whole number of at least 1 as \"n\", got \"x\"");
  EXPECT_EQ(error_of([] { OptionReader("a", {{"n", 1}}).flag("n", true); }), "a: expected true or false as \"n\", got 1");
  EXPECT_EQ(error_of([] { OptionReader("a", {{"n", true}}).text("n", ""); }), "a: expected a text as \"n\", got true");
  EXPECT_EQ(error_of([] { OptionReader("a", {{"n", std::vector<double>{1, -2}}}).integers("n", {}); }),
            "a: expected whole numbers of at least 1 as \"n\", got [1, -2]");
  EXPECT_EQ(error_of([] { OptionReader("a", {{"n", "x"}}).numbers("n", {}); }), "a: expected a list of numbers as \"n\", got \"x\"");
}

}  // namespace
