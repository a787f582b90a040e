#include "hfta/optim/schedule.h"

#include <torch/csrc/jit/serialization/pickle.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <numbers>
#include <sstream>

#include "hfta/base/error.h"
#include "tests/optim/models.h"
#include "tests/optim/stock.h"

namespace hfta::test {
namespace schedule_test {

using namespace hfta::optim;

/// The schedules of `stock_optim.py`, by the same names; lane 1 has other numbers.
std::map<std::string, std::function<std::unique_ptr<Schedule>(Optimizer&)>> schedules() {
  using Parts = std::vector<SchedulePart>;
  return {
      {"step", [](Optimizer& o) { return std::make_unique<Schedule>(o, StepLR{.step_size = {3, 5}, .gamma = {0.5, 0.1}}); }},
      {"cosine", [](Optimizer& o) { return std::make_unique<Schedule>(o, CosineAnnealingLR{.t_max = {7, 3}, .eta_min = {0.001, 0}}); }},
      {"linear", [](Optimizer& o) { return std::make_unique<Schedule>(o, LinearLR{.start_factor = {0.1, 0.9}, .total_iters = {6, 2}}); }},
      {"warm_cosine", [](Optimizer& o) { return std::make_unique<Schedule>(o, Parts{LinearLR{.start_factor = 0.25, .total_iters = 4}, CosineAnnealingLR{.t_max = {9, 4}}}, std::vector<PerLane>{{4, 9}}); }},
      {"three",
       [](Optimizer& o) {
         return std::make_unique<Schedule>(o, Parts{LinearLR{.start_factor = 0.5, .total_iters = 3}, StepLR{.step_size = 2, .gamma = 0.7}, CosineAnnealingLR{.t_max = 5, .eta_min = 1e-4}},
                                           std::vector<PerLane>{{3, 1}, 8});
       }},
  };
}

/// Group 1 has the second learning rate.
std::vector<ParameterGroup> two_groups() {
  return {{.takes = [](const std::string&, const at::Tensor& row) { return row.dim() == 1; }, .hyper = {{"lr", PerLane{0.037, 0.5}}}}};
}

/// A schedule of an array of its own.
struct Scheduled {
  Array<OddNet> array = odd_array(2);
  SGD sgd{array, {.lr = {0.1, 1}, .groups = two_groups()}};
  std::unique_ptr<Schedule> schedule;

  explicit Scheduled(const std::string& name) : schedule(schedules().at(name)(sgd)) {}
  /// Both groups' rates of lane 0 are the next two words.
  void expect_rates(std::istream& words, const std::string& where) const {
    for (std::size_t group = 0; group < 2; ++group) {
      std::string word;
      words >> word;
      EXPECT_EQ(sgd.get("lr", 0, group), std::strtod(word.c_str(), nullptr)) << where << ", group " << group;
    }
  }
};

constexpr int kResumedAt = 6;

/// What `stock_optim.py` goes on from: lane 0 after some steps.
void save(const std::filesystem::path& path, Scheduled& run) {
  for (int step = 0; step < kResumedAt; ++step) run.schedule->step();
  c10::impl::GenericList rates(c10::AnyType::get());
  for (std::size_t group = 0; group < 2; ++group) rates.push_back(run.sgd.get("lr", 0, group));
  c10::impl::GenericDict saved(c10::StringType::get(), c10::AnyType::get());
  saved.insert("schedule", run.schedule->lane_state_dict(0));
  saved.insert("rates", rates);
  const auto bytes = torch::pickle_save(saved);
  std::ofstream(path, std::ios::binary).write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

TEST(ScheduleTest, GivesExactlyTheRatesOfStockPyTorchWhichGoesOnFromItsState) {
  if (!has_stock_pytorch()) GTEST_SKIP() << "no Python with torch";
  const auto folder = std::filesystem::temp_directory_path() / ("hfta_schedule_test_" + std::to_string(::getpid()));
  std::filesystem::create_directories(folder);
  std::map<std::string, std::unique_ptr<Scheduled>> saved;
  for (const auto& entry : schedules()) save(folder / (entry.first + ".pt"), *(saved[entry.first] = std::make_unique<Scheduled>(entry.first)));
  std::istringstream lines(run_stock("schedules " + folder.string()));
  std::filesystem::remove_all(folder);
  std::size_t seen = 0;
  for (std::string line; std::getline(lines, line); ++seen) {
    std::istringstream words(line);
    std::string name;
    words >> name;
    if (name == "resumed") {
      words >> name;
      for (int step = 0; step < 12; ++step) saved.at(name)->schedule->step(), saved.at(name)->expect_rates(words, base::message(name, " resumed, step ", step));
      continue;
    }
    Scheduled run(name);
    for (int step = 0; step < 24; ++step) {
      if (step == 11) run.sgd.set("lr", 0, run.sgd.get("lr", 0) * 0.9);
      run.expect_rates(words, base::message(name, ", step ", step));
      run.schedule->step();
    }
  }
  EXPECT_EQ(seen, 2 * schedules().size());
}

TEST(ScheduleTest, FollowsTheClosedFormsInEveryLane) {
  auto array = odd_array(2);
  SGD sgd(array, {.lr = {0.1, 0.3}});
  const std::vector<double> base{0.1, 0.3}, period{4, 7}, length{10, 6}, warm_up{3, 5};
  const auto check = [&](Schedule& schedule, const auto& expected, int steps) {
    for (int step = 0; step < steps; ++step) {
      for (std::int64_t lane = 0; lane < 2; ++lane) EXPECT_NEAR(sgd.get("lr", lane), expected(lane, step), 1e-12) << "lane " << lane << ", step " << step;
      schedule.step();
    }
    sgd.set("lr", base);
  };
  Schedule stepped(sgd, StepLR{.step_size = period, .gamma = 0.5});
  check(stepped, [&](auto lane, int step) { return base[lane] * std::pow(0.5, std::floor(step / period[lane])); }, 30);
  Schedule cosine(sgd, CosineAnnealingLR{.t_max = length, .eta_min = 0.01});
  check(cosine, [&](auto lane, int step) { return 0.01 + (base[lane] - 0.01) * (1 + std::cos(std::numbers::pi * step / length[lane])) / 2; }, 30);
  Schedule both(sgd, {LinearLR{.start_factor = 0.2, .total_iters = warm_up}, CosineAnnealingLR{.t_max = length}}, {warm_up});
  check(both, [&](auto lane, int step) {
    if (step < warm_up[lane]) return base[lane] * (0.2 + 0.8 * step / warm_up[lane]);
    return base[lane] * (1 + std::cos(std::numbers::pi * (step - warm_up[lane]) / length[lane])) / 2;
  }, 6);
}

TEST(ScheduleTest, LanesStepOnTheirOwn) {
  auto array = odd_array(2);
  SGD sgd(array, {.lr = 1});
  Schedule schedule(sgd, StepLR{.step_size = 2, .gamma = 0.5});
  schedule.step(1), schedule.step(1), schedule.step();
  EXPECT_EQ(schedule.steps(0), 1);
  EXPECT_EQ(schedule.steps(1), 3);
  EXPECT_EQ(sgd.get("lr", 0), 1);
  EXPECT_EQ(sgd.get("lr", 1), 0.5);
  schedule.step(0);
  EXPECT_EQ(sgd.get("lr", 0), 0.5);
}

TEST(ScheduleTest, MovesWithItsLanes) {
  auto array = odd_array(3);
  SGD sgd(array, {.lr = {1, 2, 4}});
  Schedule schedule(sgd, StepLR{.step_size = {1, 2, 3}, .gamma = 0.5});
  for (int step = 0; step < 2; ++step) schedule.step();
  array.keep({2, 1});
  EXPECT_EQ(sgd.get("lr", 0), 4);
  schedule.step();
  EXPECT_EQ(sgd.get("lr", 0), 2);
  EXPECT_EQ(sgd.get("lr", 1), 1);
  array.copy_lane(1, 0);
  schedule.step();
  EXPECT_EQ(sgd.get("lr", 0), 0.5);
  EXPECT_EQ(sgd.get("lr", 1), 0.5);
}

TEST(ScheduleTest, AnAddedLaneStartsWhenItsNumbersAreKnown) {
  auto array = odd_array(2);
  SGD sgd(array, {.lr = 1});
  Schedule one(sgd, StepLR{.step_size = 1, .gamma = 0.5});
  one.step();
  array.append({5});
  EXPECT_EQ(one.steps(2), 0);
  one.step();
  EXPECT_EQ(sgd.get("lr", 1), 0.25);
  EXPECT_EQ(sgd.get("lr", 2), 0.5);

  auto other = odd_array(2);
  SGD listed(other, {.lr = {1, 2}});
  Schedule schedule(listed, StepLR{.step_size = {1, 2}, .gamma = 0.5});
  other.append({5});
  EXPECT_THROW(
      try { schedule.step(2); } catch (const InvalidArgument& e) {
        EXPECT_STREQ(e.what(), "optim::Schedule: expected added lane 2 to be started by restart(), got a step");
        throw;
      },
      InvalidArgument);
  listed.set("lr", 2, 8);
  schedule.restart(2, {StepLR{.step_size = 2, .gamma = 0.25}});
  schedule.step(), schedule.step();
  EXPECT_EQ(listed.get("lr", 2), 2);
}

TEST(ScheduleTest, StateGoesOnWhereItWas) {
  for (const auto& [name, make] : schedules()) {
    auto array = odd_array(2), other = odd_array(2);
    SGD sgd(array, {.lr = {0.1, 1}, .groups = two_groups()}), loaded(other, {.lr = 0.7, .groups = two_groups()});
    const auto schedule = make(sgd), again = make(loaded);
    for (int step = 0; step < 6; ++step) schedule->step();
    again->load_lane_state_dict(0, schedule->lane_state_dict(1));
    loaded.load_lane_state_dict(0, sgd.lane_state_dict(1));
    for (int step = 0; step < 12; ++step) {
      schedule->step(), again->step(0);
      for (std::size_t group = 0; group < 2; ++group) EXPECT_EQ(loaded.get("lr", 0, group), sgd.get("lr", 1, group)) << name;
    }
    EXPECT_EQ(again->steps(0), 18);
  }
}

TEST(ScheduleTest, TellsWhatIsWrong) {
  auto array = odd_array(2);
  SGD sgd(array);
  const auto error = [&](const std::vector<SchedulePart>& parts, const std::vector<PerLane>& milestones) -> std::string {
    try {
      Schedule(sgd, parts, milestones);
    } catch (const InvalidArgument& e) {
      return e.what();
    }
    return "no error";
  };
  EXPECT_EQ(error({}, {}), "optim::Schedule: expected at least one part, got none");
  EXPECT_EQ(error({StepLR{}}, {3}), "optim::Schedule: expected 0 milestones between 1 parts, got 1");
  EXPECT_EQ(error({StepLR{.step_size = {1, 2.5}}}, {}), "optim::StepLR: expected step_size of lane 1 as a whole number at least 1, got 2.5");
  EXPECT_EQ(error({StepLR{.step_size = {1, 2, 3}}}, {}), "optim::StepLR: step_size: expected one value or 2 (one per lane), got 3");
  EXPECT_EQ(error({LinearLR{.start_factor = 2}}, {}), "optim::LinearLR: expected start_factor of lane 0 at least 0 and at most 1, got 2");
  EXPECT_EQ(error({StepLR{}, StepLR{}, StepLR{}}, {5, 5}), "optim::Schedule: expected rising milestones for lane 0, got 5 after 5");
  EXPECT_EQ(sgd.get("lr", 0), 1e-3);
}

}  // namespace schedule_test
}  // namespace hfta::test
