#include "hfta/optim/schedule.h"

#include <ATen/core/Dict.h>
#include <ATen/core/List.h>
#include <ATen/core/jit_type.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <utility>

#include "hfta/base/error.h"

namespace hfta::optim {
namespace {

using Dict = c10::impl::GenericDict;

/// A number of a part: `torch.optim.lr_scheduler`'s name, and whether it counts steps.
struct Number {
  const char* name;
  bool counts;
  double least, most;
};

constexpr double kNone = std::numeric_limits<double>::infinity();

/// One kind of part: its numbers and the learning rate it gives. `n` are the lane's numbers, `count` the steps since the part began.
struct Kind {
  const char* name;
  std::vector<Number> numbers;
  double (*first)(const std::vector<double>& n, double lr);
  double (*next)(const std::vector<double>& n, double lr, double base, std::int64_t count);
  double (*entry)(const std::vector<double>& n, double base);  ///< At step 0 of a part that follows another.
};

// PyTorch computes a rate from the one before, so that a change by hand lasts; the order of operations is its own.

double unchanged(const std::vector<double>&, double lr) { return lr; }

double next_step(const std::vector<double>& n, double lr, double, std::int64_t count) { return count % static_cast<std::int64_t>(n[0]) != 0 ? lr : lr * n[1]; }
double step_entry(const std::vector<double>& n, double base) { return base * std::pow(n[1], 0.0); }

double next_cosine(const std::vector<double>& n, double lr, double base, std::int64_t count) {
  const auto t_max = static_cast<std::int64_t>(n[0]);
  const double eta_min = n[1], length = n[0];
  constexpr double pi = std::numbers::pi;
  if ((count - 1 - t_max) % (2 * t_max) == 0) return lr + (base - eta_min) * (1 - std::cos(pi / length)) / 2;
  const auto at = static_cast<double>(count);
  return (1 + std::cos(pi * at / length)) / (1 + std::cos(pi * (at - 1) / length)) * (lr - eta_min) + eta_min;
}
double cosine_entry(const std::vector<double>& n, double base) { return n[1] + (base - n[1]) * (1 + std::cos(0.0)) / 2; }

double first_linear(const std::vector<double>& n, double lr) { return lr * n[0]; }
double next_linear(const std::vector<double>& n, double lr, double, std::int64_t count) {
  const auto at = static_cast<double>(count);
  if (at > n[2]) return lr;
  return lr * (1.0 + (n[1] - n[0]) / (n[2] * n[0] + (at - 1) * (n[1] - n[0])));
}
double linear_entry(const std::vector<double>& n, double base) { return base * (n[0] + (n[1] - n[0]) * 0.0 / n[2]); }

/// By the variant's index.
const Kind& kind(std::size_t index) {
  static const std::array<Kind, 3> kinds{
      Kind{"StepLR", {{"step_size", true, 1, kNone}, {"gamma", false, 0, kNone}}, unchanged, next_step, step_entry},
      Kind{"CosineAnnealingLR", {{"T_max", true, 1, kNone}, {"eta_min", false, 0, kNone}}, unchanged, next_cosine, cosine_entry},
      Kind{"LinearLR", {{"start_factor", false, 0, 1}, {"end_factor", false, 0, 1}, {"total_iters", true, 1, kNone}}, first_linear, next_linear, linear_entry}};
  return kinds[index];
}

std::vector<PerLane> numbers_of(const SchedulePart& part) {
  if (const auto* p = std::get_if<StepLR>(&part)) return {p->step_size, p->gamma};
  if (const auto* p = std::get_if<CosineAnnealingLR>(&part)) return {p->t_max, p->eta_min};
  const auto& p = std::get<LinearLR>(part);
  return {p.start_factor, p.end_factor, p.total_iters};
}

/// The part in which step `count` lies.
std::size_t part_at(const std::vector<std::int64_t>& milestones, std::int64_t count) {
  return static_cast<std::size_t>(std::upper_bound(milestones.begin(), milestones.end(), count) - milestones.begin());
}

std::int64_t begin_of(const std::vector<std::int64_t>& milestones, std::size_t part) { return part == 0 ? 0 : milestones[part - 1]; }

void check_number(const Number& number, double value, const char* part, std::int64_t lane) {
  const bool fits = value >= number.least && value <= number.most && (!number.counts || value == std::floor(value));
  HFTA_CHECK(fits, "optim::", part, ": expected ", number.name, " of lane ", lane, number.counts ? " as a whole number" : "", " at least ", number.least,
             std::isinf(number.most) ? "" : base::message(" and at most ", number.most), ", got ", value);
}

c10::IValue need(const Dict& dict, const std::string& key, const char* title) {
  const auto found = dict.find(key);
  HFTA_CHECK(found != dict.end(), title, ": expected \"", key, "\" in the state dict, got none");
  return found->value();
}

double number_in(const Dict& dict, const std::string& key, const char* title) {
  const auto value = need(dict, key, title);
  HFTA_CHECK(value.isDouble() || value.isInt(), title, ": expected a number as \"", key, "\", got ", value.tagKind());
  return value.isDouble() ? value.toDouble() : static_cast<double>(value.toInt());
}

c10::impl::GenericList list_of(const auto& values) {
  c10::impl::GenericList list(c10::AnyType::get());
  for (const auto& value : values) list.push_back(value);
  return list;
}

std::vector<c10::IValue> list_in(const Dict& dict, const std::string& key, std::size_t size, const char* title) {
  const auto value = need(dict, key, title);
  HFTA_CHECK(value.isList() && value.toList().size() == size, title, ": expected a list of ", size, " as \"", key, "\", got ", value);
  std::vector<c10::IValue> elements;
  for (const auto& element : value.toListRef()) elements.push_back(element);
  return elements;
}

}  // namespace

Schedule::Schedule(Optimizer& optimizer, std::vector<SchedulePart> parts, const std::vector<PerLane>& milestones)
    : optimizer_(optimizer), parts_(std::move(parts)), milestones_(milestones) {
  HFTA_CHECK(!parts_.empty(), "optim::Schedule: expected at least one part, got none");
  HFTA_CHECK(milestones_.size() + 1 == parts_.size(), "optim::Schedule: expected ", parts_.size() - 1, " milestones between ", parts_.size(), " parts, got ", milestones_.size());
  for (std::int64_t lane = 0; lane < optimizer_.array().lanes(); ++lane) {
    lanes_.push_back(lane_of(parts_, milestones_, lane, false));
    check(lanes_.back(), lane);
  }
  for (std::int64_t lane = 0; lane < optimizer_.array().lanes(); ++lane) start(lane);
  optimizer_.array().follow(this);
}

Schedule::~Schedule() { optimizer_.array().unfollow(this); }

Schedule::LaneSchedule Schedule::lane_of(const std::vector<SchedulePart>& parts, const std::vector<PerLane>& milestones, std::int64_t lane, bool is_new) const {
  LaneSchedule result;
  const auto value = [&](const PerLane& number, const std::string& what) {
    return is_new ? number.of_new_lane() : number.of_lanes(optimizer_.array().lanes(), what)[static_cast<std::size_t>(lane)];
  };
  for (const auto& part : parts) {
    const auto& of = kind(part.index());
    const auto numbers = numbers_of(part);
    auto& into = result.numbers.emplace_back();
    for (std::size_t k = 0; k < numbers.size(); ++k) into.push_back(value(numbers[k], base::message("optim::", of.name, ": ", of.numbers[k].name)));
  }
  for (const auto& milestone : milestones) {
    const double at = value(milestone, "optim::Schedule: milestone");
    result.milestones.push_back(std::isnan(at) ? -1 : static_cast<std::int64_t>(at));
    HFTA_CHECK(std::isnan(at) || at == std::floor(at), "optim::Schedule: expected milestones of lane ", lane, " as whole numbers, got ", at);
  }
  return result;
}

void Schedule::check(const LaneSchedule& of, std::int64_t lane) const {
  for (std::size_t p = 0; p < parts_.size(); ++p) {
    const auto& k = kind(parts_[p].index());
    for (std::size_t n = 0; n < k.numbers.size(); ++n) check_number(k.numbers[n], of.numbers[p][n], k.name, lane);
    HFTA_CHECK(parts_[p].index() != 2 || of.numbers[p][0] > 0, "optim::LinearLR: expected start_factor of lane ", lane, " above 0, got 0");
  }
  for (std::size_t m = 0; m < of.milestones.size(); ++m)
    HFTA_CHECK(of.milestones[m] > (m ? of.milestones[m - 1] : -1), "optim::Schedule: expected rising milestones for lane ", lane, ", got ", of.milestones[m], " after ",
               m ? of.milestones[m - 1] : 0);
}

bool Schedule::can_start(const LaneSchedule& of, std::int64_t lane) const {
  for (const auto& numbers : of.numbers)
    if (std::any_of(numbers.begin(), numbers.end(), [](double n) { return std::isnan(n); })) return false;
  for (std::size_t group = 0; group < optimizer_.groups(); ++group)
    if (std::isnan(optimizer_.get("lr", lane, group))) return false;
  return std::none_of(of.milestones.begin(), of.milestones.end(), [](std::int64_t m) { return m < 0; });
}

void Schedule::start(std::int64_t lane) {
  auto& of = lanes_[static_cast<std::size_t>(lane)];
  of.count = 0;
  of.base.clear();
  const auto part = part_at(of.milestones, 0);
  for (std::size_t group = 0; group < optimizer_.groups(); ++group) {
    of.base.push_back(optimizer_.get("lr", lane, group));
    optimizer_.set("lr", lane, kind(parts_[part].index()).first(of.numbers[part], of.base.back()), group);
  }
}

Schedule::LaneSchedule& Schedule::at(std::int64_t lane) {
  HFTA_CHECK(lane >= 0 && lane < static_cast<std::int64_t>(lanes_.size()), "optim::Schedule: expected a lane from 0 to ", lanes_.size() - 1, ", got ", lane);
  return lanes_[static_cast<std::size_t>(lane)];
}

void Schedule::step() {
  for (std::int64_t lane = 0; lane < static_cast<std::int64_t>(lanes_.size()); ++lane) step(lane);
}

void Schedule::step(std::int64_t lane) {
  auto& of = at(lane);
  HFTA_CHECK(!of.base.empty(), "optim::Schedule: expected added lane ", lane, " to be started by restart(), got a step");
  ++of.count;
  const auto part = part_at(of.milestones, of.count);
  const auto count = of.count - begin_of(of.milestones, part);
  const auto& k = kind(parts_[part].index());
  for (std::size_t group = 0; group < of.base.size(); ++group) {
    const double now = optimizer_.get("lr", lane, group);
    optimizer_.set("lr", lane, count == 0 ? k.entry(of.numbers[part], of.base[group]) : k.next(of.numbers[part], now, of.base[group], count), group);
  }
}

std::int64_t Schedule::steps(std::int64_t lane) const { return const_cast<Schedule*>(this)->at(lane).count; }

void Schedule::restart(std::int64_t lane) {
  check(at(lane), lane);
  HFTA_CHECK(can_start(at(lane), lane), "optim::Schedule: expected lr to be set for added lane ", lane, ", got none");
  start(lane);
}

void Schedule::restart(std::int64_t lane, const std::vector<SchedulePart>& parts, const std::vector<double>& milestones) {
  auto& of = at(lane);
  HFTA_CHECK(parts.size() == parts_.size() && milestones.size() == milestones_.size(), "optim::Schedule: expected ", parts_.size(), " parts and ", milestones_.size(),
             " milestones, got ", parts.size(), " and ", milestones.size());
  for (std::size_t p = 0; p < parts.size(); ++p)
    HFTA_CHECK(parts[p].index() == parts_[p].index(), "optim::Schedule: expected part ", p, " as ", kind(parts_[p].index()).name, ", got ", kind(parts[p].index()).name);
  auto fresh = lane_of(parts, std::vector<PerLane>(milestones.begin(), milestones.end()), lane, true);
  check(fresh, lane);
  of = std::move(fresh);
  restart(lane);
}

c10::IValue Schedule::lane_state_dict(std::int64_t lane) const {
  const auto& of = const_cast<Schedule*>(this)->at(lane);
  std::vector<double> rates;
  for (std::size_t group = 0; group < optimizer_.groups(); ++group) rates.push_back(optimizer_.get("lr", lane, group));
  const auto now = part_at(of.milestones, of.count);
  const auto part_dict = [&](std::size_t part) {
    Dict dict(c10::StringType::get(), c10::AnyType::get());
    const auto& k = kind(parts_[part].index());
    for (std::size_t n = 0; n < k.numbers.size(); ++n)
      dict.insert(k.numbers[n].name, k.numbers[n].counts ? c10::IValue(static_cast<std::int64_t>(of.numbers[part][n])) : c10::IValue(of.numbers[part][n]));
    // A part that has not begun stands before its step 0; one that is over, at its last step.
    const auto begin = begin_of(of.milestones, part);
    const std::int64_t count = part > now ? -1 : (part < now ? of.milestones[part] - 1 : of.count) - begin;
    dict.insert("base_lrs", list_of(of.base));
    dict.insert("last_epoch", count);
    // PyTorch counts calls; the first step of a part after another is not one.
    dict.insert("_step_count", part == 0 || count < 0 ? std::max<std::int64_t>(count, 0) + 1 : count + 1);
    dict.insert("_last_lr", list_of(rates));
    return dict;
  };
  if (parts_.size() == 1) return part_dict(0);
  Dict dict(c10::StringType::get(), c10::AnyType::get());
  dict.insert("_milestones", list_of(of.milestones));
  dict.insert("last_epoch", of.count);
  dict.insert("_last_lr", list_of(rates));
  std::vector<c10::IValue> inner;
  for (std::size_t part = 0; part < parts_.size(); ++part) inner.emplace_back(part_dict(part));
  dict.insert("_schedulers", list_of(inner));
  return dict;
}

void Schedule::load_lane_state_dict(std::int64_t lane, const c10::IValue& state) {
  auto& of = at(lane);
  constexpr auto title = "optim::Schedule";
  HFTA_CHECK(state.isGenericDict(), title, ": expected a state dict, got ", state.tagKind());
  const auto dict = state.toGenericDict();
  LaneSchedule loaded;
  std::vector<c10::IValue> inner{state};
  if (parts_.size() > 1) {
    inner = list_in(dict, "_schedulers", parts_.size(), title);
    for (const auto& milestone : list_in(dict, "_milestones", milestones_.size(), title)) {
      HFTA_CHECK(milestone.isInt(), title, ": expected whole numbers as \"_milestones\", got ", milestone);
      loaded.milestones.push_back(milestone.toInt());
    }
  }
  for (std::size_t part = 0; part < parts_.size(); ++part) {
    const auto& k = kind(parts_[part].index());
    HFTA_CHECK(inner[part].isGenericDict(), title, ": expected the state of part ", part, " as a dict, got ", inner[part].tagKind());
    auto& numbers = loaded.numbers.emplace_back();
    for (const auto& number : k.numbers) numbers.push_back(number_in(inner[part].toGenericDict(), number.name, title));
  }
  for (const auto& base : list_in(inner[0].toGenericDict(), "base_lrs", optimizer_.groups(), title)) {
    HFTA_CHECK(base.isDouble() || base.isInt(), title, ": expected numbers as \"base_lrs\", got ", base);
    loaded.base.push_back(base.isDouble() ? base.toDouble() : static_cast<double>(base.toInt()));
  }
  loaded.count = static_cast<std::int64_t>(number_in(dict, "last_epoch", title));
  check(loaded, lane);
  of = std::move(loaded);
}

void Schedule::lanes_moved(const std::vector<std::int64_t>& from) {
  std::vector<LaneSchedule> moved;
  for (std::size_t lane = 0; lane < from.size(); ++lane)
    moved.push_back(from[lane] < 0 ? lane_of(parts_, milestones_, static_cast<std::int64_t>(lane), true) : lanes_[static_cast<std::size_t>(from[lane])]);
  lanes_ = std::move(moved);
  for (std::size_t lane = 0; lane < from.size(); ++lane)
    if (from[lane] < 0 && can_start(lanes_[lane], static_cast<std::int64_t>(lane))) start(static_cast<std::int64_t>(lane));
}

void Schedule::lane_copied(std::int64_t source, std::int64_t target) { lanes_[static_cast<std::size_t>(target)] = lanes_[static_cast<std::size_t>(source)]; }

}  // namespace hfta::optim
