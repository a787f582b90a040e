#include "hfta/tune/distribution.h"

#include <fstream>
#include <limits>
#include <sstream>

#include "hfta/base/error.h"
#include "hfta/tune/json.h"
#include "study_support.h"

namespace hfta::tune {
namespace {

std::vector<std::string> lines(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

using DistributionTest = StudyFolder;

TEST_F(DistributionTest, IsWrittenExactlyAsOptunaWritesIt) {
  const std::vector<Distribution> all{uniform(-10, 10),     loguniform(1e-5, 0.1),  quniform(0, 1, 0.25), integer(-3, 8),  integer(0, 100, 5), logint(1, 1024),
                                      uniform(1e16, 2e300), choice({"adam", "ö\"\\\n", 1, 2.5, false, std::monostate{}}), choice({true}), uniform(5e-324, 0.1)};
  std::ofstream file(path("in"));
  for (const auto& d : all) file << to_json(validated(d, "x")) << "\n";
  file.close();
  const auto theirs = lines(optuna("distributions < " + path("in")));
  ASSERT_EQ(theirs.size(), all.size());
  for (std::size_t i = 0; i < all.size(); ++i) {
    EXPECT_EQ(to_json(all[i]), theirs[i]);
    EXPECT_EQ(distribution_from_json(theirs[i]), all[i]) << theirs[i];
  }
}

TEST_F(DistributionTest, WritesValuesAsPythonDoes) {
  const double inf = std::numeric_limits<double>::infinity(), nan = std::numeric_limits<double>::quiet_NaN();
  const std::vector<Value> values{0.1, 1.0, -10.0, 1e-5, 1e-4, 123456.789, 1e15, 1e16, 1.5e300, 5e-324, 3, true, std::monostate{}, "adam", "ö\"\\\n\x7f😀", nan, inf, -inf};
  const auto theirs = lines(optuna("values"));
  ASSERT_EQ(theirs.size(), values.size());
  for (std::size_t i = 0; i < values.size(); ++i) {
    EXPECT_EQ(to_json(values[i]), theirs[i]);
    EXPECT_EQ(to_json(value_of(parse_json(theirs[i], "test"), "test")), theirs[i]);
  }
}

TEST_F(DistributionTest, LowersTheUpperBoundToTheLastStepAsOptunaDoes) {
  std::ofstream file(path("in"));
  for (const auto& d : {quniform(0, 1, 0.3), quniform(-0.05, 0.2, 0.1), integer(1, 10, 4)}) file << to_json(d) << "\n";
  file.close();
  const auto theirs = lines(optuna("distributions < " + path("in")));
  ASSERT_EQ(theirs.size(), 3U);
  EXPECT_EQ(to_json(validated(quniform(0, 1, 0.3), "x")), theirs[0]);
  EXPECT_EQ(to_json(validated(quniform(-0.05, 0.2, 0.1), "x")), theirs[1]);
  EXPECT_EQ(to_json(validated(integer(1, 10, 4), "x")), theirs[2]);
}

TEST(DistributionJsonTest, ReadsTheClassesOfOlderReleases) {
  const auto read = [](const std::string& name, const std::string& attributes) {
    return distribution_from_json("{\"name\": \"" + name + "\", \"attributes\": {" + attributes + "}}");
  };
  EXPECT_EQ(read("UniformDistribution", "\"low\": 0, \"high\": 1"), uniform(0, 1));
  EXPECT_EQ(read("LogUniformDistribution", "\"low\": 0.1, \"high\": 1"), loguniform(0.1, 1));
  EXPECT_EQ(read("DiscreteUniformDistribution", "\"low\": 0, \"high\": 1, \"q\": 0.5"), quniform(0, 1, 0.5));
  EXPECT_EQ(read("IntUniformDistribution", "\"low\": 1, \"high\": 9, \"step\": 2"), integer(1, 9, 2));
  EXPECT_EQ(read("IntLogUniformDistribution", "\"low\": 1, \"high\": 9, \"step\": 1"), logint(1, 9));
}

TEST(DistributionJsonTest, RefusesWhatIsNone) {
  EXPECT_EQ(message_of<InvalidArgument>([] { distribution_from_json("{"); }), "tune::Distribution: expected JSON, got {");
  EXPECT_EQ(message_of<InvalidArgument>([] { distribution_from_json("{\"a\": 1}"); }),
            "tune::Distribution: expected Optuna's {\"name\": ..., \"attributes\": ...}, got {\"a\": 1}");
  EXPECT_EQ(message_of<InvalidArgument>([] { distribution_from_json("{\"name\": \"Normal\", \"attributes\": {}}"); }),
            "tune::Distribution: expected CategoricalDistribution, FloatDistribution or IntDistribution, got {\"name\": \"Normal\", \"attributes\": {}}");
}

TEST(DistributionValueTest, StepsAreExactInDecimal) {
  const auto d = quniform(0, 1, 0.1);
  ASSERT_EQ(points(d), 11U);
  EXPECT_EQ(point(d, 3), 0.3);
  EXPECT_EQ(point(d, 7), 0.7);
  EXPECT_EQ(point(d, 10), 1.0);
  EXPECT_EQ(point_index(d, 0.1 + 0.2), 3U);
  EXPECT_EQ(point_index(d, 0.35), std::nullopt);
  EXPECT_EQ(points(quniform(1e-7, 1, 1e-7)), 10'000'000U);
  EXPECT_TRUE(contains(quniform(1e-7, 1, 1e-7), point(quniform(1e-7, 1, 1e-7), 9'876'543)));
}

TEST(DistributionValueTest, GoesFromInternalToValueAndBack) {
  const auto optimizer = choice({"adam", 1, 2.5, false, std::monostate{}});
  EXPECT_EQ(value(optimizer, 0), Value("adam"));
  EXPECT_EQ(value(optimizer, 4), Value(std::monostate{}));
  EXPECT_EQ(internal(optimizer, 2.5), 2.0);
  EXPECT_EQ(internal(optimizer, 1.0), 1.0);
  EXPECT_EQ(internal(optimizer, "1"), std::nullopt);
  EXPECT_EQ(value(integer(1, 9, 2), 3.0), Value(3));
  EXPECT_EQ(internal(integer(1, 9, 2), 4), std::nullopt);
  EXPECT_EQ(internal(uniform(0, 1), 1), 1.0);
  EXPECT_EQ(internal(uniform(0, 1), 1.0000001), std::nullopt);
  EXPECT_EQ(internal(uniform(0, 1), "0.5"), std::nullopt);
  EXPECT_EQ(message_of<InvalidArgument>([&] { value(optimizer, 5); }), "tune::Distribution: expected the index of one of 5 choices, got 5");
}

TEST(DistributionValueTest, IsDescribedAsItIsWritten) {
  EXPECT_EQ(describe(uniform(-10, 10)), "uniform(-10, 10)");
  EXPECT_EQ(describe(loguniform(1e-5, 0.1)), "loguniform(1e-05, 0.1)");
  EXPECT_EQ(describe(quniform(0, 1, 0.25)), "quniform(0, 1, 0.25)");
  EXPECT_EQ(describe(integer(1, 8)), "int(1, 8)");
  EXPECT_EQ(describe(integer(0, 8, 2)), "int(0, 8, step 2)");
  EXPECT_EQ(describe(logint(1, 8)), "int(1, 8, log)");
  EXPECT_EQ(describe(choice({"adam", 1, true})), "choice(\"adam\", 1, true)");
}

}  // namespace
}  // namespace hfta::tune
