#include "hfta/plan/cost.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <numeric>

#include "hfta/base/error.h"
#include "hfta/plan/choose.h"
#include "hfta/plan/search.h"

namespace {

using hfta::plan::Plan;
using hfta::plan::predicted_ms;
using hfta::plan::StepProfile;

// A row of the benchmark: what a step asks for, and the measured time of each plan (`./dev bench arrays --searches`).
struct Row {
  std::string name;
  StepProfile profile;
  std::vector<Plan> plans;
  std::vector<double> ms;

  double of(const Plan& plan) const {
    const auto found = std::find_if(plans.begin(), plans.end(), [&](const Plan& p) {
      return p.width == plan.width && p.workers == plan.workers && p.intra_op_threads == plan.intra_op_threads && p.recorded == plan.recorded;
    });
    HFTA_CHECK(found != plans.end(), name, ": nothing was measured for ", describe(plan));
    return ms[found - plans.begin()];
  }
  double best() const { return *std::min_element(ms.begin(), ms.end()); }
};

std::vector<Row> measured_rows() {
  std::ifstream in(HFTA_TIMINGS);
  std::vector<Row> rows;
  for (const auto& entry : nlohmann::json::parse(in)) {
    const auto& p = entry.at("profile");
    Row row{entry.at("row"), {p.at("lanes"), p.at("nodes"), p.at("flops"), p.at("moved_bytes"), p.at("made_bytes"), p.at("state_bytes")}, {}, {}};
    for (const auto& t : entry.at("timings")) {
      row.plans.push_back({.width = t.at("width"), .workers = t.at("workers"), .intra_op_threads = t.at("threads"), .recorded = t.at("recorded")});
      row.ms.push_back(t.at("ms"));
    }
    rows.push_back(std::move(row));
  }
  return rows;
}

std::vector<double> ranks(const std::vector<double>& values) {
  std::vector<std::size_t> order(values.size());
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(), [&](auto a, auto b) { return values[a] < values[b]; });
  std::vector<double> ranks(values.size());
  for (std::size_t place = 0; place < order.size(); ++place) ranks[order[place]] = static_cast<double>(place);
  return ranks;
}

// Spearman's: 1 for the same order, -1 for the reverse.
double rank_correlation(const std::vector<double>& a, const std::vector<double>& b) {
  const auto x = ranks(a), y = ranks(b);
  double squares = 0;
  for (std::size_t i = 0; i < x.size(); ++i) squares += (x[i] - y[i]) * (x[i] - y[i]);
  const auto n = static_cast<double>(x.size());
  return 1 - 6 * squares / (n * (n * n - 1));
}

TEST(CostTest, EveryRowOfTheBenchmarkIsThere) { EXPECT_EQ(measured_rows().size(), 13U); }

TEST(CostTest, PlansAreRankedAsMeasured) {
  double sum = 0;
  const auto rows = measured_rows();
  for (const auto& row : rows) {
    std::vector<double> predicted, measured;
    for (std::size_t i = 0; i < row.plans.size(); ++i)
      if (row.plans[i].recorded) predicted.push_back(predicted_ms(row.profile, row.plans[i])), measured.push_back(row.ms[i]);
    const double correlation = rank_correlation(predicted, measured);
    EXPECT_GE(correlation, 0.5) << row.name;
    sum += correlation;
  }
  EXPECT_GE(sum / static_cast<double>(rows.size()), 0.7);
}

TEST(CostTest, OneOfTheThreeMostPromisingIsNearTheBest) {
  for (const auto& row : measured_rows()) {
    std::vector<std::size_t> order;
    for (std::size_t i = 0; i < row.plans.size(); ++i)
      if (row.plans[i].recorded) order.push_back(i);
    std::sort(order.begin(), order.end(), [&](auto a, auto b) { return predicted_ms(row.profile, row.plans[a]) < predicted_ms(row.profile, row.plans[b]); });
    ASSERT_FALSE(order.empty()) << row.name;
    const auto least = [&](std::size_t count) {
      double ms = row.ms[order[0]];
      for (std::size_t k = 1; k < std::min(count, order.size()); ++k) ms = std::min(ms, row.ms[order[k]]);
      return ms;
    };
    EXPECT_LE(least(3), 1.05 * least(order.size())) << row.name << ", " << describe(row.plans[order[0]]);
  }
}

TEST(CostTest, SearchFindsTheBestWithoutTimingAll) {
  std::size_t timed = 0, all = 0;
  for (const auto& row : measured_rows()) {
    double seconds = 0;
    hfta::plan::SearchOptions options{.budget_seconds = 1e9, .clock = [&] { return seconds; }, .keeps = false};
    const hfta::plan::Subject subject{.profile = row.profile};
    const auto result = choose({.lanes = row.profile.lanes, .cores = 2}, subject, [&](const Plan& plan) { return row.of(plan); }, options);
    EXPECT_LE(row.of(result.plan), 1.03 * row.best()) << row.name << '\n' << table(result);
    for (const auto& timing : result.timings) timed += !timing.step_ms.empty(), ++all;
  }
  EXPECT_LT(timed, all);
}

TEST(CostTest, WorkersShareGroupsAndThreadsShareLargeKernels) {
  const StepProfile large{.lanes = 8, .nodes = 20, .flops = 1e9, .moved_bytes = 1e6, .made_bytes = 1e5, .state_bytes = 1e5};
  const double one = predicted_ms(large, {.width = 1, .workers = 1});
  EXPECT_NEAR(predicted_ms(large, {.width = 1, .workers = 4}), one / 4, 0.01 * one);
  EXPECT_LT(predicted_ms(large, {.width = 1, .workers = 1, .intra_op_threads = 2}), 0.8 * one);
  const StepProfile small{.lanes = 64, .nodes = 20, .flops = 1e4, .moved_bytes = 1e4, .made_bytes = 1e4, .state_bytes = 1e4};
  EXPECT_LT(predicted_ms(small, {.width = 32, .workers = 2}), predicted_ms(small, {.width = 1, .workers = 2}));
  EXPECT_GT(predicted_ms(small, {.width = 1, .workers = 2, .recorded = false}), predicted_ms(small, {.width = 1, .workers = 2}));
}

TEST(CostTest, GroupsThatExceedTheCacheCostMore) {
  const StepProfile profile{.lanes = 64, .nodes = 20, .flops = 1e8, .moved_bytes = 3e7, .made_bytes = 1e7, .state_bytes = 3e5};
  EXPECT_GT(predicted_ms(profile, {.width = 64, .workers = 1}), 1.15 * predicted_ms(profile, {.width = 1, .workers = 1}));
}

}  // namespace
