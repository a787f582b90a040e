#include "hfta/optim/optimizer.h"

#include <ATen/core/grad_mode.h>

#include <cmath>
#include <utility>

#include "hfta/base/error.h"
#include "hfta/lanes/rows.h"
#include "hfta/optim/optimizer_state.h"

namespace hfta::optim {

ParameterGroup without_decay() {
  return {.takes = [](const std::string&, const at::Tensor& row) { return row.dim() <= 1; }, .hyper = {{"weight_decay", 0.0}}};
}

std::size_t Optimizer::State::index_of(const std::string& hyper) const {
  std::string known;
  for (std::size_t h = 0; h < hypers(); ++h) {
    if (definition.hyper[h].name == hyper) return h;
    known += (h ? ", " : "") + definition.hyper[h].name;
  }
  throw InvalidArgument(base::message(title(), ": expected one of ", known, ", got \"", hyper, "\""));
}

void Optimizer::State::check_lane(std::int64_t lane) const {
  HFTA_CHECK(lane >= 0 && lane < array.lanes(), title(), ": expected a lane from 0 to ", array.lanes() - 1, ", got ", lane);
}

void Optimizer::State::check_group(std::size_t group) const {
  HFTA_CHECK(group < groups.size(), title(), ": expected a parameter group below ", groups.size(), ", got ", group);
}

void Optimizer::State::check_value(std::size_t hyper, double value, std::int64_t lane) const {
  const auto& h = definition.hyper[hyper];
  const bool fits = value >= h.least && (h.below ? value < h.most : value <= h.most);  // false for NaN
  HFTA_CHECK(fits, title(), ": expected ", h.name, " of lane ", lane, " ",
             std::isinf(h.most) ? base::message("at least ", h.least) : base::message("in [", h.least, ", ", h.most, h.below ? ")" : "]"), ", got ", value);
}

void Optimizer::State::set(std::size_t group, std::size_t hyper, const PerLane& value) {
  const auto values = value.of_lanes(array.lanes(), title() + ": " + definition.hyper[hyper].name);
  for (std::size_t lane = 0; lane < values.size(); ++lane) check_value(hyper, values[lane], static_cast<std::int64_t>(lane));
  for (std::size_t lane = 0; lane < values.size(); ++lane) groups[group].hyper[lane * hypers() + hyper] = values[lane];
  groups[group].of_new_lane[hyper] = value.of_new_lane();
}

void Optimizer::State::assign(const std::vector<ParameterGroup>& chosen) {
  const auto& all = array.parameters();
  group_of.assign(all.size(), 0);
  for (std::size_t g = 0; g < chosen.size(); ++g) {
    HFTA_CHECK(chosen[g].takes != nullptr, title(), ": expected parameter group ", g + 1, " to say what it takes, got nothing");
    for (std::size_t p = 0; p < all.size(); ++p)
      if (group_of[p] == 0 && chosen[g].takes(all[p].name, lanes::row(all[p].tensor, 0))) group_of[p] = g + 1;
  }
  for (std::size_t g = 0; g <= chosen.size(); ++g)
    for (std::size_t p = 0; p < all.size(); ++p)
      if (group_of[p] == g) order.push_back(p);
}

void Optimizer::State::allocate(std::size_t parameter) {
  auto& state = parameters[parameter];
  if (state.allocated.load(std::memory_order_acquire)) return;
  const std::lock_guard lock(allocation);
  if (state.allocated.load(std::memory_order_relaxed)) return;
  const auto& tensor = array.parameters()[parameter].tensor;
  for (std::size_t s = 0; s < definition.slots.size(); ++s) state.slots.push_back(lanes::allocate_rows(lanes::row(tensor, 0), array.lanes(), tensor.options()));
  state.allocated.store(true, std::memory_order_release);
}

at::Tensor Optimizer::State::stage(std::size_t parameter, std::int64_t lane, const at::Tensor& gradient) {
  auto& state = parameters[parameter];
  if (!state.staged.load(std::memory_order_acquire)) {
    const std::lock_guard lock(allocation);
    const auto& tensor = array.parameters()[parameter].tensor;
    if (!state.staged.load(std::memory_order_relaxed)) state.staging = lanes::allocate_rows(lanes::row(tensor, 0), array.lanes(), tensor.options());
    state.staged.store(true, std::memory_order_release);
  }
  return state.staging.narrow(0, lane, gradient.size(0)).copy_(gradient);
}

Optimizer::Optimizer(lanes::ArrayBase& array, Definition definition, const std::map<std::string, PerLane>& hyper, const std::vector<ParameterGroup>& groups)
    : state_(std::make_unique<State>(array, std::move(definition))) {
  auto& s = *state_;
  const auto lanes = static_cast<std::size_t>(array.lanes());
  const auto take = [&](std::size_t group, const std::map<std::string, PerLane>& values) {
    for (const auto& [name, value] : values) s.set(group, s.index_of(name), value);
  };
  for (std::size_t g = 0; g <= groups.size(); ++g) {
    s.groups.push_back({std::vector<double>(lanes * s.hypers()), std::vector<double>(s.hypers())});
    take(g, hyper);
    if (g > 0) take(g, groups[g - 1].hyper);
  }
  s.assign(groups);
  s.steps.assign(lanes, 0);
  for (std::size_t p = 0; p < array.parameters().size(); ++p) {
    auto& parameter = s.parameters.emplace_back();
    parameter.steps.assign(lanes, 0);
    parameter.has_state.assign(lanes, 0);
  }
  array.follow(this);
}

Optimizer::~Optimizer() { state_->array.unfollow(this); }

lanes::ArrayBase& Optimizer::array() const { return state_->array; }
const std::string& Optimizer::name() const { return state_->definition.name; }

double Optimizer::get(const std::string& name, std::int64_t lane, std::size_t group) const {
  state_->check_lane(lane);
  state_->check_group(group);
  return state_->hyper(group, lane)[state_->index_of(name)];
}

void Optimizer::set(const std::string& name, std::int64_t lane, double value, std::size_t group) {
  state_->check_lane(lane);
  state_->check_group(group);
  const auto hyper = state_->index_of(name);
  state_->check_value(hyper, value, lane);
  state_->groups[group].hyper[static_cast<std::size_t>(lane) * state_->hypers() + hyper] = value;
}

void Optimizer::set(const std::string& name, const PerLane& value) {
  const auto hyper = state_->index_of(name);
  for (std::size_t g = 0; g < groups(); ++g) state_->set(g, hyper, value);
}

Hypers Optimizer::hypers() const {
  Hypers now;
  for (const auto& group : state_->groups) now.push_back(group.hyper);
  return now;
}

std::vector<std::string> Optimizer::hyper_names() const {
  std::vector<std::string> names;
  for (const auto& h : state_->definition.hyper) names.push_back(h.name);
  return names;
}

std::size_t Optimizer::groups() const { return state_->groups.size(); }
const std::vector<std::size_t>& Optimizer::group_of_parameters() const { return state_->group_of; }

std::int64_t Optimizer::steps(std::int64_t lane) const {
  state_->check_lane(lane);
  return state_->steps[static_cast<std::size_t>(lane)];
}

void Optimizer::zero_grad() { state_->array.zero_grad(); }
UpdateLowering Optimizer::lowering() const { return state_->lowering; }
void Optimizer::use(UpdateLowering lowering) { state_->lowering = lowering; }

std::int64_t Optimizer::state_bytes() const {
  std::int64_t bytes = 0;
  for (const auto& parameter : state_->parameters)
    for (const auto& slot : parameter.slots) bytes += static_cast<std::int64_t>(slot.storage().nbytes());
  return bytes;
}

void Optimizer::lanes_moved(const std::vector<std::int64_t>& from) {
  const at::NoGradGuard no_grad;
  const auto hypers = state_->hypers();
  const auto pick = [&](auto& values, auto fresh) {
    std::remove_reference_t<decltype(values)> moved;
    for (const auto lane : from) moved.push_back(lane < 0 ? fresh : values[static_cast<std::size_t>(lane)]);
    values = std::move(moved);
  };
  for (auto& group : state_->groups) {
    std::vector<double> moved;
    for (const auto lane : from) {
      const auto* values = lane < 0 ? group.of_new_lane.data() : group.hyper.data() + static_cast<std::size_t>(lane) * hypers;
      moved.insert(moved.end(), values, values + hypers);
    }
    group.hyper = std::move(moved);
  }
  pick(state_->steps, std::int64_t{0});
  for (auto& parameter : state_->parameters) {
    pick(parameter.steps, std::int64_t{0});
    pick(parameter.has_state, std::uint8_t{0});
    for (auto& slot : parameter.slots) {
      auto moved = lanes::allocate_rows(lanes::row(slot, 0), static_cast<std::int64_t>(from.size()), slot.options());
      lanes::copy_rows(slot, moved, from);
      slot = std::move(moved);
    }
    parameter.staging.reset();
    parameter.staged = false;
  }
}

void Optimizer::lane_copied(std::int64_t source, std::int64_t target) {
  const auto giver = static_cast<std::size_t>(source), taker = static_cast<std::size_t>(target);
  for (auto& group : state_->groups)
    for (std::size_t h = 0; h < state_->hypers(); ++h) group.hyper[taker * state_->hypers() + h] = group.hyper[giver * state_->hypers() + h];
  state_->steps[taker] = state_->steps[giver];
  const at::NoGradGuard no_grad;
  for (auto& parameter : state_->parameters) {
    parameter.steps[taker] = parameter.steps[giver];
    parameter.has_state[taker] = parameter.has_state[giver];
    for (auto& slot : parameter.slots) lanes::row(slot, target).copy_(lanes::row(slot, source));
  }
}

void Optimizer::tensors_replaced() {
  const at::NoGradGuard no_grad;
  for (std::size_t p = 0; p < state_->parameters.size(); ++p) {
    const auto& tensor = state_->array.parameters()[p].tensor;
    auto& parameter = state_->parameters[p];
    for (auto& slot : parameter.slots) slot = lanes::allocate_rows(lanes::row(tensor, 0), state_->array.lanes(), tensor.options()).copy_(slot);
    parameter.staging.reset();
    parameter.staged = false;
  }
}

}  // namespace hfta::optim
