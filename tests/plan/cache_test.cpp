#include "hfta/plan/cache.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "hfta/base/log.h"
#include "hfta/plan/choose.h"
#include "tests/plan/cache_folder.h"

namespace {

namespace fs = std::filesystem;
using hfta::plan::Cache;
using hfta::plan::choose;
using hfta::plan::Plan;
using hfta::plan::SearchResult;
using hfta::plan::SearchSpace;
using hfta::plan::Subject;
using ::testing::EndsWith;
using ::testing::HasSubstr;

class CacheTest : public ::testing::Test {
 protected:
  CacheTest() {
    hfta::base::set_log_console([this](std::string_view line) { lines_.emplace_back(line); });
  }
  ~CacheTest() override { hfta::base::set_log_console({}); }

  SearchResult choose_for(const std::string& key, const SearchSpace& space = {.lanes = 4, .cores = 1}, bool keeps = true) {
    return choose(space, {.key = key}, [this](const Plan& plan) { return ++measured_, plan.recorded && plan.width == 2 ? 1.0 : 3.0; }, {.repeats = 2, .keeps = keeps});
  }

  const hfta::test::CacheFolder kept_{"cache-test"};
  const fs::path& folder_ = kept_.path();
  std::vector<std::string> lines_;
  int measured_ = 0;
};

TEST_F(CacheTest, ChoiceIsTakenFromDiskAndToldSo) {
  const auto first = choose_for("a model");
  const auto times = measured_;
  const auto second = choose_for("a model");
  EXPECT_EQ(measured_, times);
  EXPECT_EQ(second.plan, first.plan);
  EXPECT_EQ(second.plan.width, 2);
  EXPECT_DOUBLE_EQ(second.step_ms, first.step_ms);
  EXPECT_EQ(second.timings.size(), first.timings.size());
  EXPECT_THAT(second.explanation, HasSubstr(first.explanation + ", as measured on 20"));
  EXPECT_THAT(second.explanation, EndsWith(".json"));
}

TEST_F(CacheTest, AnotherSubjectOrSpaceIsMeasuredAnew) {
  choose_for("32 images");
  for (const auto& space : {SearchSpace{.lanes = 4, .cores = 1}, SearchSpace{.lanes = 5, .cores = 1}, SearchSpace{.lanes = 4, .cores = 2}, SearchSpace{.lanes = 4, .cores = 1, .precision = "float64"},
                            SearchSpace{.lanes = 4, .cores = 1, .measures_lowerings = false}}) {
    const auto before = measured_;
    choose_for("64 images", space);
    EXPECT_GT(measured_, before);
  }
}

TEST_F(CacheTest, PlanIsKeptWithTheLoweringsThatItChose) {
  const Subject subject{.key = "a model", .complete = [](Plan plan) { return plan.lowerings["mm"] = "batched", plan; }};
  const auto measure = [](const Plan&) { return 1.0; };
  choose({.lanes = 2, .cores = 1}, subject, measure);
  EXPECT_EQ(choose({.lanes = 2, .cores = 1}, subject, measure).plan.lowerings.at("mm"), "batched");
}

TEST_F(CacheTest, NothingIsKeptWhereThatIsOff) {
  choose_for("a model", {.lanes = 4, .cores = 1}, /*keeps=*/false);
  choose_for("");
  setenv("HFTA_PLAN_CACHE", "off", 1);
  choose_for("a model");
  EXPECT_FALSE(fs::exists(folder_));
}

TEST_F(CacheTest, DamagedFileIsLeftAloneWithALine) {
  const auto key = hfta::plan::key_of({.lanes = 4, .cores = 1}, {.key = "a model"});
  const auto file = Cache(folder_).file(key);
  for (const std::string damaged : {"", "{", "[]", R"({"format": 99})", R"({"format": 1})"}) {
    fs::create_directories(folder_);
    std::ofstream(file) << damaged;
    const auto before = measured_;
    choose_for("a model");
    EXPECT_GT(measured_, before) << damaged;
    ASSERT_FALSE(lines_.empty()) << damaged;
    EXPECT_THAT(lines_.back(), HasSubstr("plan::Cache: " + file.string() + " is left alone, the plan is searched anew: ")) << damaged;
    EXPECT_TRUE(Cache(folder_).find(key)) << "a good one has taken its place";
    fs::remove_all(folder_);
  }
}

TEST_F(CacheTest, FolderThatCannotBeWrittenIsToldOnce) {
  std::ofstream(folder_.string()) << "a file, not a folder";
  EXPECT_EQ(choose_for("a model").plan.width, 2);
  ASSERT_EQ(lines_.size(), 1U);
  EXPECT_THAT(lines_[0], HasSubstr("plan::Cache: the plan is not kept in " + folder_.string()));
}

TEST_F(CacheTest, TwoKeysOfOneNameAreNotMixedUp) {
  const Cache cache(folder_);
  cache.store("one", {.plan = {.width = 7}, .explanation = "seven"});
  fs::copy_file(cache.file("one"), cache.file("two"));
  EXPECT_TRUE(cache.find("one"));
  EXPECT_FALSE(cache.find("two"));
}

TEST_F(CacheTest, NoHalfWrittenFileIsLeft) {
  const Cache cache(folder_);
  cache.store("one", {.plan = {.width = 7}, .explanation = "seven"});
  std::size_t files = 0;
  for (const auto& entry : fs::directory_iterator(folder_)) files += entry.path() == cache.file("one") ? 1 : 100;
  EXPECT_EQ(files, 1U);
}

TEST_F(CacheTest, TableTellsEachCandidate) {
  const SearchResult result{.plan = {.width = 2},
                            .timings = {{.plan = {.width = 1}, .step_ms = {4, 2}, .predicted_ms = 3}, {.plan = {.width = 2}, .step_ms = {1}}, {.plan = {.width = 4}, .predicted_ms = 9, .is_pruned = true},
                                        {.plan = {.width = 8}, .error = "no memory"}}};
  EXPECT_EQ(hfta::plan::table(result),
            "* 2 lanes x 1 worker x 1 thread, recorded, cpu, float32: 1 ms (timed 1 time)\n"
            "  1 lane x 1 worker x 1 thread, recorded, cpu, float32: 3 ms (timed 2 times; predicted 3 ms)\n"
            "  8 lanes x 1 worker x 1 thread, recorded, cpu, float32: could not run: no memory\n"
            "  4 lanes x 1 worker x 1 thread, recorded, cpu, float32: not timed, hopeless: predicted 9 ms\n");
}

TEST_F(CacheTest, FolderFollowsTheVariables) {
  EXPECT_EQ(Cache::default_folder(), folder_);
  unsetenv("HFTA_PLAN_CACHE");
  const char* base = getenv("XDG_CACHE_HOME");
  const std::string before = base ? base : "";
  setenv("XDG_CACHE_HOME", "/some/cache", 1);
  EXPECT_EQ(Cache::default_folder(), "/some/cache/hfta/plans");
  before.empty() ? unsetenv("XDG_CACHE_HOME") : setenv("XDG_CACHE_HOME", before.c_str(), 1);
}

}  // namespace
