#include "hfta/tune/export.h"

#include <limits>

#include "study_support.h"

namespace hfta::tune {
namespace {

using ExportTest = StudyFolder;
using nlohmann::json;

// Case T4.
TEST_F(ExportTest, IsValidJsonWhateverTheNumbers) {
  const double inf = std::numeric_limits<double>::infinity(), nan = std::numeric_limits<double>::quiet_NaN();
  auto study = Study::create(path(), {.name = "s", .directions = {Direction::Maximize}});
  study.set_user_attribute("note", R"({"loss": NaN, "text": "NaN is \" no number"})");
  for (int i = 0; i < 3; ++i) study.add({{"lr", uniform(0, 1), 0.5}, {"act", choice({"relu", std::monostate{}}), 1}});
  const std::vector<Report> reports{{0, 0, nan}, {0, 1, inf}, {0, 2, -inf}, {0, 10, 0.5}};
  study.report(reports);
  study.finish(0, TrialState::Complete, {nan});
  study.finish(1, TrialState::Complete, {inf});
  const auto text = export_json(study);
  const auto read = json::parse(text);  // throws for what is no JSON
  EXPECT_EQ(read["format"], 1);
  EXPECT_EQ(read["study"], "s");
  EXPECT_EQ(read["directions"], json::array({"MAXIMIZE"}));
  EXPECT_EQ(read["best"], 1);
  EXPECT_EQ(read["user_attributes"]["note"], json::parse(R"({"loss": "NaN", "text": "NaN is \" no number"})"));
  const auto& trials = read["trials"];
  ASSERT_EQ(trials.size(), 3U);
  EXPECT_EQ(trials[0]["state"], "FAIL");
  EXPECT_EQ(trials[0]["values"], json::array());
  EXPECT_EQ(trials[0]["user_attributes"]["hfta:values"], json::array({"NaN"}));
  EXPECT_EQ(trials[0]["intermediate_values"], json::parse(R"({"0": "NaN", "1": "Infinity", "2": "-Infinity", "10": 0.5})"));
  EXPECT_EQ(trials[0]["parameters"], json::parse(R"({"lr": 0.5, "act": null})"));
  EXPECT_EQ(trials[1]["values"], json::array({"Infinity"}));
  EXPECT_EQ(trials[1]["started"].get<std::string>().size(), 27U);
  EXPECT_TRUE(trials[2]["completed"].is_null());
  // The order is the study's: steps by number.
  EXPECT_LT(text.find("\"2\": \"-Infinity\""), text.find("\"10\": 0.5"));
}

TEST_F(ExportTest, AnEmptyStudyHasNoBestTrial) {
  const auto study = Study::create(path());
  const auto read = json::parse(export_json(study));
  EXPECT_TRUE(read["best"].is_null());
  EXPECT_EQ(read["trials"], json::array());
}

TEST_F(ExportTest, PythonReadsIt) {
  auto study = Study::create(path());
  study.finish(study.add({{"lr", uniform(0, 1), 0.5}}), TrialState::Complete, {std::numeric_limits<double>::infinity()});
  std::ofstream(path("s.json")) << export_json(study);
  EXPECT_EQ(output_of(std::string(HFTA_PYTHON) + " -c 'import json; d = json.load(open(\"" + path("s.json") +
                      "\")); print(float(d[\"trials\"][0][\"values\"][0]))'"),
            "inf\n");
}

}  // namespace
}  // namespace hfta::tune
