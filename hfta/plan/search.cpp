#include "hfta/plan/search.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <optional>
#include <set>

#include "hfta/base/error.h"
#include "hfta/plan/measure.h"
#include "hfta/plan/throughput.h"

namespace hfta::plan {
namespace {

constexpr double kRunShare = 0.05;        // Of the run's time, at most, goes into the search.
constexpr double kHopeless = 2.5;         // The model may be wrong by so much: what is predicted slower than that is not timed.
constexpr std::size_t kCalibrated = 4;    // Recorded plans timed before the model is believed.
constexpr std::size_t kFew = 3;           // Measurements from which on their middle says more than the smallest.
constexpr double kNear = 1.10;  // One measurement is no more exact than this: whoever is so close to the best stays in the race.

// 1, 2, 4, ... up to and with `last`.
std::set<std::int64_t> doubling(std::int64_t last) {
  std::set<std::int64_t> values{last};
  for (std::int64_t value = 1; value < last; value *= 2) values.insert(value);
  return values;
}

Plan made(const SearchSpace& space, bool recorded, std::int64_t width, std::int64_t workers) {
  return {.width = width,
          .workers = workers,
          .intra_op_threads = static_cast<int>(std::max<std::int64_t>(1, space.cores / workers)),
          .recorded = recorded,
          .device = space.device,
          .precision = space.precision,
          .measures_lowerings = space.measures_lowerings};
}

// What a candidate costs besides time; the smaller of two equally fast ones is taken.
std::int64_t lanes_at_work(const Plan& plan) { return plan.width * plan.workers; }

class Race {
 public:
  Race(const std::vector<Plan>& candidates, const Measure& measure, const SearchOptions& options)
      : measure_(measure), options_(options), clock_(options.clock ? options.clock : steady_seconds), start_(clock_()) {
    for (const auto& plan : candidates) {
      timings_.push_back({plan});
      if (options_.predict) timings_.back().predicted_ms = options_.predict(plan);
    }
  }

  SearchResult run() {
    std::vector<std::size_t> racing(timings_.size());
    for (std::size_t i = 0; i < racing.size(); ++i) racing[i] = i;
    // The plan to be beaten first, then by what is expected of them.
    std::stable_sort(racing.begin() + 1, racing.end(), [&](auto a, auto b) { return timings_[a].predicted_ms < timings_[b].predicted_ms; });
    for (std::int64_t repeats = 1; !racing.empty(); repeats = std::min(2 * repeats, options_.repeats)) {
      const bool complete = measure_until(racing, repeats);
      std::erase_if(racing, [&](std::size_t i) { return timings_[i].step_ms.empty(); });
      if (!complete || racing.size() == 1 || repeats >= options_.repeats) break;
      keep_better_half(racing);
    }
    look_again(racing);
    return result(racing);
  }

 private:
  double elapsed() const { return clock_() - start_; }

  // On a loaded machine too: where plain steps alone fill the budget, nobody would learn what recorded ones gain. A short run gets the plan
  // to be beaten and the most promising one timed, and no more.
  bool is_due(const Timing& timing) const {
    double best = std::numeric_limits<double>::infinity();
    for (const auto& other : timings_) best = std::min(best, other.best_ms());
    if (!std::isfinite(best) || !tried_[timing.plan.recorded]) return true;
    const double share = options_.run_steps > 0 ? kRunShare * 1e-3 * best * static_cast<double>(options_.run_steps) : options_.budget_seconds;
    return elapsed() < std::min(share, options_.budget_seconds);
  }

  // By the model, scaled to what was measured of recorded plans (plain ones cost otherwise).
  bool is_hopeless(const Timing& timing) const {
    if (!options_.predict || !options_.prunes || !timing.plan.recorded || !timing.step_ms.empty()) return false;
    const auto scales = scales_of(true);
    double best = std::numeric_limits<double>::infinity();
    for (const auto& other : timings_) best = std::min(best, other.best_ms());
    return scales.size() >= kCalibrated && timing.predicted_ms * median(scales) > kHopeless * best;
  }

  std::vector<double> scales_of(bool recorded) const {
    std::vector<double> scales;
    for (const auto& timing : timings_)
      if (timing.plan.recorded == recorded && !timing.step_ms.empty()) scales.push_back(timing.best_ms() / timing.predicted_ms);
    return scales;
  }

  void calibrate() {
    for (const bool recorded : {true, false}) {
      const auto scales = scales_of(recorded);
      if (scales.empty()) continue;
      for (auto& timing : timings_)
        if (timing.plan.recorded == recorded) timing.predicted_ms *= median(scales);
    }
  }

  // Brings all that race to `repeats` measurements, one each in turn; false when the budget ended first.
  bool measure_until(const std::vector<std::size_t>& racing, std::int64_t repeats) {
    bool is_complete = true;
    for (std::int64_t round = 0; round < repeats; ++round)
      for (const auto i : racing) {
        auto& timing = timings_[i];
        if (!timing.error.empty() || timing.is_pruned || static_cast<std::int64_t>(timing.step_ms.size()) > round) continue;
        if (!is_due(timing)) is_complete = false;
        else if (is_hopeless(timing)) timing.is_pruned = true;
        else measure(timing);
      }
    return is_complete;
  }

  void measure(Timing& timing) {
    tried_[timing.plan.recorded] = true;
    try {
      const double ms = measure_(timing.plan);
      HFTA_CHECK(std::isfinite(ms) && ms >= 0, "plan::search: expected a time in ms, got ", ms);
      timing.step_ms.push_back(ms);
    } catch (const std::exception& error) {
      timing.step_ms.clear();
      timing.error = error.what();
    }
  }

  // Where the budget ended after one measurement each, a slow moment of the machine may have made all the difference between plain and recorded
  // steps: the best of the slower kind is timed once more.
  void look_again(const std::vector<std::size_t>& racing) {
    std::array<std::optional<std::size_t>, 2> best;
    for (const auto i : racing)
      if (auto& known = best[timings_[i].plan.recorded]; !known || timings_[i].best_ms() < timings_[*known].best_ms()) known = i;
    if (!best[false] || !best[true]) return;
    auto& slower = timings_[*best[timings_[*best[true]].best_ms() < timings_[*best[false]].best_ms() ? false : true]];
    if (slower.step_ms.size() == 1) measure(slower);
  }

  void keep_better_half(std::vector<std::size_t>& racing) {
    std::stable_sort(racing.begin(), racing.end(), [&](auto a, auto b) { return timings_[a].best_ms() < timings_[b].best_ms(); });
    const double near = timings_[racing[0]].best_ms() * kNear;
    std::size_t kept = std::max<std::size_t>(1, racing.size() / 2);
    while (kept < racing.size() && timings_[racing[kept]].best_ms() <= near) ++kept;
    racing.resize(kept);
  }

  SearchResult result(std::vector<std::size_t> finalists) {
    std::erase_if(finalists, [&](std::size_t i) { return timings_[i].step_ms.empty(); });
    if (finalists.empty()) throw_reasons();
    // Where the budget ended inside a round some were timed more often: they are compared on as many measurements as all have. A median of
    // two or fewer would be whatever the machine did besides, which only ever adds.
    std::size_t least = std::numeric_limits<std::size_t>::max();
    for (const auto i : finalists) least = std::min(least, timings_[i].step_ms.size());
    const auto time = [&](std::size_t i) {
      const auto& ms = timings_[i].step_ms;
      if (least < kFew) return timings_[i].best_ms();
      return median({ms.begin(), ms.begin() + static_cast<std::ptrdiff_t>(least)});
    };
    double best = std::numeric_limits<double>::infinity();
    for (const auto i : finalists) best = std::min(best, time(i));
    std::erase_if(finalists, [&](std::size_t i) { return time(i) > best * (1 + options_.tie); });
    const auto chosen = *std::min_element(finalists.begin(), finalists.end(), [&](auto a, auto b) {
      return std::pair(lanes_at_work(timings_[a].plan), time(a)) < std::pair(lanes_at_work(timings_[b].plan), time(b));
    });
    if (options_.predict) calibrate();
    SearchResult result{.plan = timings_[chosen].plan, .step_ms = timings_[chosen].median_ms(), .timings = timings_, .seconds = elapsed()};
    result.explanation = explain(result);
    return result;
  }

  std::string explain(const SearchResult& result) const {
    std::size_t timed = 0;
    std::map<std::string, std::vector<std::string>> plans_of;
    for (const auto& timing : timings_) {
      timed += !timing.step_ms.empty();
      if (!timing.error.empty()) plans_of[timing.error].push_back(describe(timing.plan));
    }
    std::string failed;
    for (const auto& [reason, plans] : plans_of)
      failed += (failed.empty() ? "" : "; ") + plans[0] + (plans.size() > 1 ? " and " + std::to_string(plans.size() - 1) + " more" : "") + ": " + reason;
    std::size_t pruned = 0;
    for (const auto& timing : timings_) pruned += timing.is_pruned;
    std::string text = describe(result.plan) + ": " + short_number(result.step_ms) + " ms a step";
    const auto& first = timings_[0];
    if (first.plan != result.plan && !first.step_ms.empty())
      text += ", " + short_number(first.median_ms() / result.step_ms) + " times as fast as " + describe(first.plan);
    text += " (" + std::to_string(timed) + " of " + std::to_string(timings_.size()) + " plans timed in " + short_number(result.seconds) + " s";
    if (pruned > 0) text += ", " + std::to_string(pruned) + " left out as hopeless";
    return text + (failed.empty() ? ")" : "; could not run: " + failed + ")");
  }

  [[noreturn]] void throw_reasons() const {
    std::set<std::string> reasons;
    for (const auto& timing : timings_) reasons.insert(timing.error);
    std::string text = "plan::search: expected a plan that runs, got none of " + std::to_string(timings_.size());
    for (const auto& reason : reasons) text += "; " + reason;
    throw Error(text);
  }

  const Measure& measure_;
  const SearchOptions& options_;
  std::function<double()> clock_;
  double start_;
  std::vector<Timing> timings_{};
  std::array<bool, 2> tried_{};  ///< A plain plan, a recorded one.
};

}  // namespace

double Timing::median_ms() const { return median(step_ms); }

double Timing::best_ms() const {
  return step_ms.empty() ? std::numeric_limits<double>::infinity() : *std::min_element(step_ms.begin(), step_ms.end());
}

std::vector<Plan> candidates(const SearchSpace& space) {
  HFTA_CHECK(space.lanes >= 1, "plan::candidates: expected at least 1 lane, got ", space.lanes);
  HFTA_CHECK(space.cores >= 1, "plan::candidates: expected at least 1 core, got ", space.cores);
  HFTA_CHECK(space.recorded || space.plain, "plan::candidates: expected recorded or plain steps, got neither");
  const std::int64_t all = std::min(space.cores, space.lanes);
  std::vector<Plan> plans;
  const auto add = [&](Plan plan) {
    if (std::find(plans.begin(), plans.end(), plan) == plans.end()) plans.push_back(std::move(plan));
  };
  if (space.plain && space.plain_workers) add(made(space, false, 1, all));
  if (space.plain) add(made(space, false, 1, 1));
  if (space.recorded) {
    add(made(space, true, 1, all));
    for (const auto workers : doubling(all)) {
      auto widths = doubling((space.lanes + workers - 1) / workers);
      for (const auto width : widths)
        if (groups({.width = width}, space.lanes) >= workers) add(made(space, true, width, workers));
    }
  }
  if (space.memory && space.memory_limit_bytes > 0) {
    const auto smallest = *std::min_element(plans.begin(), plans.end(), [](const Plan& a, const Plan& b) { return lanes_at_work(a) < lanes_at_work(b); });
    std::erase_if(plans, [&](const Plan& plan) { return peak_bytes(*space.memory, plan) > space.memory_limit_bytes; });
    HFTA_CHECK(!plans.empty(), "plan::candidates: expected an array that fits into ", readable_bytes(space.memory_limit_bytes), ", got one of ",
               space.lanes, " lanes that needs ", readable_bytes(peak_bytes(*space.memory, smallest)), " one lane at a time");
  }
  return plans;
}

SearchResult search(const std::vector<Plan>& candidates, const Measure& measure, const SearchOptions& options) {
  HFTA_CHECK(!candidates.empty(), "plan::search: expected at least 1 candidate, got none");
  HFTA_CHECK(options.repeats >= 1, "plan::search: expected at least 1 repeat, got ", options.repeats);
  return Race(candidates, measure, options).run();
}

}  // namespace hfta::plan
