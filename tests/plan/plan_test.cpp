#include "hfta/plan/plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "hfta/base/error.h"
#include "hfta/plan/memory.h"

namespace {

using hfta::InvalidArgument;
using hfta::plan::Plan;

template <typename Action>
std::string error_of(Action&& action) {
  try {
    action();
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  return "nothing thrown";
}

Plan some_plan() {
  return {.width = 8, .workers = 2, .intra_op_threads = 3, .recorded = true, .device = "cuda:1", .precision = "bfloat16",
          .lowerings = {{"aten::convolution 3x3", "looped"}, {"aten::addmm", "batched"}}, .measures_lowerings = false};
}

TEST(PlanTest, JsonGivesThePlanBack) {
  EXPECT_EQ(hfta::plan::from_json(hfta::plan::to_json(some_plan())), some_plan());
  EXPECT_EQ(hfta::plan::from_json(hfta::plan::to_json({.recorded = false})), (Plan{.recorded = false}));
}

TEST(PlanTest, DescriptionIsOneLine) {
  EXPECT_EQ(describe(some_plan()), "8 lanes x 2 workers x 3 threads, recorded, cuda:1, bfloat16");
  EXPECT_EQ(describe(Plan{.recorded = false}), "1 worker x 1 thread, plain, cpu, float32");
}

TEST(PlanTest, ValidatorNamesTheWrongField) {
  EXPECT_NO_THROW(validate(some_plan(), 16));
  const auto wrong = [](auto change, std::int64_t lanes = 16) {
    return error_of([&] {
      Plan plan = some_plan();
      change(plan);
      validate(plan, lanes);
    });
  };
  EXPECT_EQ(wrong([](Plan& p) { p.width = 0; }), "plan::Plan: expected a width from 1 to 16 (the array's lanes), got 0");
  EXPECT_EQ(wrong([](Plan& p) { p.width = 17; }), "plan::Plan: expected a width from 1 to 16 (the array's lanes), got 17");
  EXPECT_EQ(wrong([](Plan& p) { p.workers = 3; }), "plan::Plan: expected from 1 to 2 workers (the groups of 16 lanes at width 8), got 3");
  EXPECT_EQ(wrong([](Plan& p) { p.workers = 0; }), "plan::Plan: expected from 1 to 2 workers (the groups of 16 lanes at width 8), got 0");
  EXPECT_EQ(wrong([](Plan& p) { p.intra_op_threads = 0; }), "plan::Plan: expected at least 1 intra-op thread, got 0");
  EXPECT_EQ(wrong([](Plan& p) { p.device = "cpuu"; }), "plan::Plan: expected a device such as cpu or cuda:0, got \"cpuu\"");
  EXPECT_EQ(wrong([](Plan& p) { p.device = "cuda:x"; }), "plan::Plan: expected a device such as cpu or cuda:0, got \"cuda:x\"");
  EXPECT_EQ(wrong([](Plan& p) { p.precision = "half"; }),
            "plan::Plan: expected one of float32, float64, bfloat16, float16 as precision, got \"half\"");
  EXPECT_EQ(wrong([](Plan&) {}, 0), "plan::Plan: expected an array of at least 1 lane, got 0");
}

TEST(PlanTest, FittedPlanIsValidForFewerLanes) {
  for (std::int64_t lanes = 1; lanes <= 20; ++lanes) EXPECT_NO_THROW(validate(fitted(some_plan(), lanes), lanes)) << lanes;
  EXPECT_EQ(fitted(some_plan(), 9), some_plan());
  EXPECT_EQ(fitted(some_plan(), 8).workers, 1);
  EXPECT_EQ(fitted(some_plan(), 3).width, 3);
}

TEST(PlanTest, GroupsCoverAllLanes) {
  EXPECT_EQ(hfta::plan::groups({.width = 8}, 17), 3);
  EXPECT_EQ(hfta::plan::groups({.width = 8}, 16), 2);
  EXPECT_EQ(hfta::plan::groups({.width = 1}, 5), 5);
}

// The text with one entry replaced, or taken away.
std::string with(const char* key, const nlohmann::json& value) {
  auto object = nlohmann::json::parse(hfta::plan::to_json(some_plan()));
  object[key] = value;
  return object.dump();
}

TEST(PlanTest, WrongJsonIsToldInOneLine) {
  const auto error = [](const std::string& text) { return error_of([&] { hfta::plan::from_json(text, "run/plan.json"); }); };
  EXPECT_EQ(error("{\"width\": 3"), "plan::Plan: run/plan.json: expected a JSON object, got text that is no JSON");
  EXPECT_EQ(error(""), "plan::Plan: run/plan.json: expected a JSON object, got text that is no JSON");
  EXPECT_EQ(error("[1]"), "plan::Plan: run/plan.json: expected a JSON object, got array");
  EXPECT_EQ(error("{}"), "plan::Plan: run/plan.json: expected the key \"format\", got none");
  EXPECT_EQ(error("{\"format\": 1}"), "plan::Plan: run/plan.json: expected the key \"device\", got none");
  EXPECT_EQ(error(with("format", 2)), "plan::Plan: run/plan.json: expected format 1, got 2");
  EXPECT_EQ(error(with("format", "1")), "plan::Plan: run/plan.json: expected an integer for \"format\", got \"1\"");
  EXPECT_EQ(error(with("widht", 2)),
            "plan::Plan: run/plan.json: expected one of device, format, intra_op_threads, lowerings, measures_lowerings, precision, recorded, width, workers, "
            "got the key \"widht\"");
  EXPECT_EQ(error(with("width", 2.5)), "plan::Plan: run/plan.json: expected an integer for \"width\", got 2.5");
  EXPECT_EQ(error(with("width", 0)), "plan::Plan: run/plan.json: expected a width of at least 1, got 0");
  EXPECT_EQ(error(with("workers", -1)), "plan::Plan: run/plan.json: expected at least 1 worker, got -1");
  EXPECT_EQ(error(with("intra_op_threads", 0)), "plan::Plan: run/plan.json: expected at least 1 intra-op thread, got 0");
  EXPECT_EQ(error(with("recorded", 1)), "plan::Plan: run/plan.json: expected true or false for \"recorded\", got 1");
  EXPECT_EQ(error(with("measures_lowerings", "no")), "plan::Plan: run/plan.json: expected true or false for \"measures_lowerings\", got \"no\"");
  EXPECT_EQ(error(with("device", 1)), "plan::Plan: run/plan.json: expected a string for \"device\", got 1");
  EXPECT_EQ(error(with("lowerings", 1)), "plan::Plan: run/plan.json: expected an object for \"lowerings\", got 1");
  EXPECT_EQ(error(with("lowerings", {{"aten::mm", 3}})), "plan::Plan: run/plan.json: expected a string for \"aten::mm\", got 3");
}

TEST(MemoryTest, PeakIsStateOfAllLanesAndWorkOfThoseThatRun) {
  const hfta::plan::MemoryProfile profile{.lanes = 10, .state_bytes_per_lane = 1000, .gradient_bytes_per_lane = 100, .activation_bytes_per_lane = 400};
  EXPECT_EQ(peak_bytes(profile, {.width = 1, .workers = 1}), 10'000 + 600);
  EXPECT_EQ(peak_bytes(profile, {.width = 2, .workers = 3}), 10'000 + 3'600);
  EXPECT_EQ(peak_bytes(profile, {.width = 8, .workers = 2}), 10'000 + 6'000) << "no more lanes are at work than there are";
  EXPECT_EQ(peak_bytes_accumulating(profile, {.width = 1, .workers = 1}), 11'000 + 600);
}

TEST(MemoryTest, BytesAreReadable) {
  EXPECT_EQ(hfta::plan::readable_bytes(640), "640 bytes");
  EXPECT_EQ(hfta::plan::readable_bytes(1536), "1.5 KiB");
  EXPECT_EQ(hfta::plan::readable_bytes(3LL << 30), "3.0 GiB");
  EXPECT_EQ(hfta::plan::readable_bytes(5000LL << 40), "5000.0 TiB");
}

}  // namespace
