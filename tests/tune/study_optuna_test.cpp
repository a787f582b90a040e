#include <cmath>
#include <limits>

#include "hfta/base/error.h"
#include "hfta/tune/study.h"
#include "hfta/tune/study_state.h"
#include "study_support.h"

namespace hfta::tune {
namespace study_optuna_test {

using nlohmann::json;
using StudyOptunaTest = StudyFolder;

constexpr double kInf = std::numeric_limits<double>::infinity(), kNan = std::numeric_limits<double>::quiet_NaN();

std::vector<std::string> schema_of(const std::string& path) {
  Database database(path, Access::Read, std::chrono::seconds(1));
  std::vector<std::string> tables;
  for (auto row = database.prepare("SELECT type || ' ' || name || ' ' || IFNULL(sql, '') FROM sqlite_master ORDER BY type, name"); row.next();) {
    std::string text;
    for (const char c : row.text(0))
      if (!std::isspace(static_cast<unsigned char>(c))) text += c;
    tables.push_back(text);
  }
  auto row = database.prepare("SELECT version_info_id || ' ' || schema_version FROM version_info UNION ALL SELECT version_num FROM alembic_version");
  while (row.next()) tables.push_back(row.text(0));
  return tables;
}

TEST_F(StudyOptunaTest, HasTheTablesThatOptunaMakes) {
  Study::create(path("ours.db"));
  optuna("schema " + path("theirs.db"));
  EXPECT_EQ(schema_of(path("ours.db")), schema_of(path("theirs.db")));
}

Parameters all_kinds() {
  return {{"lr", loguniform(1e-5, 0.1), 0.0123456789012345678}, {"x", uniform(-10, 10), -10}, {"drop", quniform(0, 1, 0.25), 0.75}, {"layers", logint(1, 8), 3},
          {"width", integer(16, 128, 16), 48}, {"act", choice({"relu", 1, 2.5, false, std::monostate{}}), 2}};
}

TEST_F(StudyOptunaTest, OptunaReadsEverythingThatWeWrite) {
  {
    auto study = Study::create(path(), {.name = "ours", .directions = {Direction::Maximize}});
    study.set_user_attribute("hfta:plan", "{\"width\": 8, \"lowerings\": [\"ö\", null]}");
    for (int i = 0; i < 6; ++i) study.add(all_kinds(), i == 5 ? TrialState::Waiting : TrialState::Running);
    const std::vector<Report> reports{{0, 0, 0.5}, {0, 1, kNan}, {0, 2, kInf}, {0, 3, -kInf}, {2, 4, 0.25}};
    study.report(reports);
    study.set_user_attribute(0, "hfta:seed", "17");
    study.finish(0, TrialState::Complete, {0.91});
    study.finish(1, TrialState::Complete, {kNan});
    study.finish(2, TrialState::Pruned);
    study.finish(3, TrialState::Complete, {kInf});
  }
  const auto study = optuna_reads(path(), "ours");
  EXPECT_EQ(study["directions"], json::array({"MAXIMIZE"}));
  EXPECT_EQ(study["user_attrs"], json::parse(R"({"hfta:plan": {"width": 8, "lowerings": ["ö", null]}})"));
  EXPECT_EQ(study["best"], 3);
  ASSERT_EQ(study["trials"].size(), 6U);
  const std::vector<std::string> states{"COMPLETE", "FAIL", "PRUNED", "COMPLETE", "RUNNING", "WAITING"};
  for (std::size_t i = 0; i < 6; ++i) {
    const auto& trial = study["trials"][i];
    EXPECT_EQ(trial["number"], i);
    EXPECT_EQ(trial["state"], states[i]);
    EXPECT_EQ(trial["params"], json::parse(R"({"lr": 0.012345678901234568, "x": -10.0, "drop": 0.75, "layers": 3, "width": 48, "act": 2.5})"));
    for (const auto& parameter : all_kinds()) EXPECT_EQ(trial["distributions"][parameter.name], to_json(parameter.distribution));
  }
  const auto& trials = study["trials"];
  EXPECT_EQ(trials[0]["values"], json::array({0.91}));
  EXPECT_EQ(trials[0]["intermediate"], json::parse(R"({"0": 0.5, "1": "nan", "2": "inf", "3": "-inf"})"));
  EXPECT_EQ(trials[0]["user_attrs"]["hfta:seed"], 17);
  EXPECT_TRUE(trials[1]["values"].is_null());
  EXPECT_EQ(trials[1]["user_attrs"]["hfta:values"], json::array({"NaN"}));
  EXPECT_EQ(trials[2]["values"], json::array({0.25}));
  EXPECT_EQ(trials[3]["values"], json::array({"inf"}));
  EXPECT_LT(trials[0]["seconds"].get<double>(), 60);
  EXPECT_TRUE(trials[4]["seconds"].is_null());
  EXPECT_TRUE(trials[5]["started"].is_null());
  const double started = std::chrono::duration<double>(now().time_since_epoch()).count() - trials[0]["started"].get<double>();
  EXPECT_TRUE(started >= 0 && started < 300) << started;  // the same moment in Optuna's time zone
}

TEST_F(StudyOptunaTest, WeReadEverythingThatOptunaWrites) {
  optuna("make " + path());
  auto study = Study::open(path());
  EXPECT_EQ(study.name(), "theirs");
  EXPECT_EQ(study.directions(), std::vector{Direction::Maximize});
  EXPECT_EQ(study.user_attributes().at("note"), R"({"a": [1, NaN], "\u00f6": null})");
  const auto trials = study.trials();
  ASSERT_EQ(trials.size(), 8U);
  using enum TrialState;
  const std::vector<TrialState> states{Complete, Fail, Complete, Complete, Pruned, Running, Waiting, Waiting};
  for (std::size_t i = 0; i < 8; ++i) EXPECT_EQ(trials[i].state, states[i]) << i;
  for (std::size_t i = 0; i < 5; ++i) {
    std::vector<std::string> found;
    for (const auto& p : trials[i].parameters) {
      EXPECT_TRUE(contains(p.distribution, p.internal));
      found.push_back(p.name + " " + describe(p.distribution));
    }
    EXPECT_EQ(found, (std::vector<std::string>{"lr loguniform(1e-05, 0.1)", "x uniform(-10, 10)", "drop quniform(0, 1, 0.25)", "layers int(1, 8, log)",
                                               "width int(16, 128, step 16)", "act choice(\"relu\", 1, 2.5)"}));
    EXPECT_EQ(trials[i].intermediate.at(0), 0.5);
    EXPECT_TRUE(std::isnan(trials[i].intermediate.at(1)));
    EXPECT_EQ(trials[i].intermediate.at(2), kInf);
    EXPECT_EQ(trials[i].intermediate.at(3), -kInf);
    EXPECT_EQ(trials[i].user_attributes.at("who"), "\"\\u00f6\"");
    EXPECT_TRUE(trials[i].started && trials[i].completed);
    EXPECT_LT(now() - *trials[i].started, std::chrono::minutes(5));
  }
  EXPECT_EQ(trials[0].values, std::vector{1.0});
  EXPECT_EQ(trials[2].values, std::vector{kInf});
  EXPECT_EQ(trials[3].values, std::vector{-kInf});
  EXPECT_EQ(study.best()->number, 2);
}

TEST_F(StudyOptunaTest, WeGoOnWithAStudyOfOptunas) {
  optuna("make " + path());
  auto study = Study::open(path());
  const Space space({{"lr", loguniform(1e-5, 0.1)}, {"x", uniform(-10, 10)}, {"drop", quniform(0, 1, 0.25)}, {"layers", logint(1, 8)},
                     {"width", integer(16, 128, 16)}, {"act", choice({"relu", 1, 2.5})}});
  study.adopt(space);
  const StudyLock lock(path());
  // Trial 5 is another program's: it is not ours to reclaim.
  EXPECT_TRUE(study.reclaim(lock, space, [](const Trial&) { return Reclaim::Fail; }).empty());
  EXPECT_EQ(study.trial(5).state, TrialState::Running);
  RandomSampler sampler;
  const auto begun = study.ask(space, sampler, 1, 2);
  ASSERT_EQ(begun.size(), 2U);
  EXPECT_EQ(begun[0].number, 6);
  EXPECT_EQ(find(begun[0].parameters, "lr")->internal, 0.02);
  EXPECT_EQ(study.trial(7).state, TrialState::Fail);  // its rate lies outside of the space
  EXPECT_EQ(begun[1].number, 8);
  for (const auto& trial : begun) study.finish(trial.number, TrialState::Complete, {0.5});
  const auto read = optuna_reads(path(), "theirs");
  EXPECT_EQ(read["trials"][6]["state"], "COMPLETE");
  EXPECT_EQ(read["trials"][8]["state"], "COMPLETE");
  EXPECT_EQ(read["trials"][6]["params"]["lr"], 0.02);
}

TEST_F(StudyOptunaTest, OptunaRunsTheTrialsThatWait) {
  Study::create(path()).add({{"lr", loguniform(1e-5, 0.1), 0.03}}, TrialState::Waiting);
  EXPECT_EQ(optuna("fill " + path() + " hfta"), "0 0.03\n");
  EXPECT_EQ(Study::read(path()).trial(0).state, TrialState::Complete);
}

}  // namespace study_optuna_test
}  // namespace hfta::tune
