#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <cmath>

#include "hfta/base/error.h"
#include "hfta/lanes/rows.h"
#include "hfta/optim/optimizer_state.h"

namespace hfta::optim {
namespace {

/// A thread's room for the numbers of a pass; kept, so that a step allocates nothing.
struct Scratch {
  std::vector<LaneNumbers> numbers;  ///< `[group][lane of the pass]`.
  std::vector<std::int64_t> made;    ///< For which step and state each was made; -1: not yet.
};

Scratch& scratch() {
  static thread_local Scratch of_thread;
  return of_thread;
}

/// Whether both lie in memory alike within a row, so that one index walks both.
bool same_row_layout(const at::Tensor& a, const at::Tensor& b) {
  for (std::int64_t d = 1; d < a.dim(); ++d)
    if (a.size(d) > 1 && a.stride(d) != b.stride(d)) return false;
  return true;
}

void* row_pointer(const at::Tensor& stack, std::int64_t lane) {
  return static_cast<char*>(stack.mutable_data_ptr()) + lane * stack.stride(0) * static_cast<std::int64_t>(stack.element_size());
}

}  // namespace

/// One call of `update`.
struct Optimizer::Pass {
  Optimizer& optimizer;
  State& state;
  std::int64_t first, width;
  const UpdateOptions& options;

  Pass(Optimizer& of, std::int64_t from, std::int64_t count, const UpdateOptions& how) : optimizer(of), state(*of.state_), first(from), width(count), options(how) {
    const auto entries = state.groups.size() * static_cast<std::size_t>(width);
    auto& room = scratch();
    if (room.numbers.size() < entries) room.numbers.resize(entries), room.made.resize(entries);
    std::fill_n(room.made.begin(), entries, -1);
  }

  void check(std::size_t parameter, const at::Tensor& gradient, std::int64_t count) const {
    const auto& p = state.array.parameters()[parameter];
    HFTA_CHECK(gradient.dim() == p.tensor.dim() && gradient.size(0) == count && gradient.sizes().slice(1) == p.tensor.sizes().slice(1), state.title(),
               ": expected the gradient of \"", p.name, "\" for ", count, " lanes of ", p.tensor.sizes().slice(1), ", got ", gradient.sizes());
    HFTA_CHECK(gradient.layout() == c10::kStrided, state.title(), ": expected a dense gradient of \"", p.name, "\", got ", gradient.layout());
    HFTA_CHECK(gradient.scalar_type() == p.tensor.scalar_type() && gradient.device() == p.tensor.device(), state.title(), ": expected the gradient of \"", p.name, "\" as ",
               p.tensor.scalar_type(), " on ", p.tensor.device(), ", got ", gradient.scalar_type(), " on ", gradient.device());
  }

  /// The numbers of lanes `[at, at + count)` of the pass for this parameter's next update. Parameters of a group share them.
  const LaneNumbers* numbers(std::size_t parameter, std::int64_t at, std::int64_t count, bool& keeps) const {
    const auto group = state.group_of[parameter];
    const auto base = group * static_cast<std::size_t>(width) + static_cast<std::size_t>(at);
    auto* const result = scratch().numbers.data() + base;
    auto* const made = scratch().made.data() + base;
    const auto& of = state.parameters[parameter];
    for (std::int64_t l = 0; l < count; ++l) {
      const auto lane = first + at + l;
      const auto step = of.steps[static_cast<std::size_t>(lane)] + 1;
      const bool has_state = of.has_state[static_cast<std::size_t>(lane)] != 0;
      if (made[l] != 2 * step + has_state) {
        const auto hyper = options.hypers ? state.of_lane((*options.hypers)[group], lane) : state.hyper(group, lane);
        for (std::size_t h = 0; h < hyper.size(); ++h)
          HFTA_CHECK(!std::isnan(hyper[h]), state.title(), ": expected ", state.definition.hyper[h].name, " to be set for added lane ", lane, ", got none");
        result[l] = optimizer.numbers(hyper, step, has_state);
        if (!options.scales.empty()) result[l].scale *= options.scales[static_cast<std::size_t>(at + l)];
        made[l] = 2 * step + has_state;
      }
      keeps |= result[l].keeps;
    }
    return result;
  }

  /// Updates lanes `[at, at + gradient.size(0))` of the pass.
  void update(std::size_t parameter, std::int64_t at, const at::Tensor& gradient) const {
    const auto count = gradient.size(0);
    bool keeps = false;
    const auto* const of_lanes = numbers(parameter, at, count, keeps);
    if (keeps) state.allocate(parameter);
    const auto& tensor = state.array.parameters()[parameter].tensor;
    const bool rows = state.lowering == UpdateLowering::Rows && tensor.is_cpu() && has_row_kernels(tensor.scalar_type());
    rows ? by_rows(parameter, first + at, gradient, of_lanes, keeps) : stacked(parameter, first + at, gradient, of_lanes, keeps);
    auto& of = state.parameters[parameter];
    for (std::int64_t l = 0; l < count; ++l) {
      const auto lane = static_cast<std::size_t>(first + at + l);
      ++of.steps[lane];
      if (of_lanes[l].keeps) of.has_state[lane] = 1;
    }
  }

  void by_rows(std::size_t parameter, std::int64_t lane, const at::Tensor& gradient, const LaneNumbers* of_lanes, bool keeps) const {
    const auto& tensor = state.array.parameters()[parameter].tensor;
    if (!same_row_layout(gradient, tensor)) return by_rows(parameter, lane, state.stage(parameter, lane, gradient), of_lanes, keeps);
    Rows rows;
    rows.lanes = gradient.size(0);
    if (rows.lanes == 0 || gradient.numel() == 0) return;
    rows.size = gradient.numel() / rows.lanes;
    rows.type = tensor.scalar_type();
    rows.rounds_freely = options.rounds_freely;
    rows.parameter = row_pointer(tensor, lane);
    rows.parameter_stride = tensor.stride(0);
    rows.gradient = gradient.const_data_ptr();
    rows.gradient_stride = gradient.stride(0);
    if (keeps) {
      const auto& slots = state.parameters[parameter].slots;
      for (std::size_t s = 0; s < slots.size(); ++s) rows.state[s] = row_pointer(slots[s], lane);
      rows.state_stride = slots[0].stride(0);
    }
    optimizer.update_rows(rows, of_lanes);
  }

  void stacked(std::size_t parameter, std::int64_t lane, const at::Tensor& gradient, const LaneNumbers* of_lanes, bool keeps) const {
    const at::NoGradGuard no_grad;
    const auto count = gradient.size(0);
    const auto& tensor = state.array.parameters()[parameter].tensor;
    StackedRows rows{tensor.detach().narrow(0, lane, count), gradient.detach(), {}};
    if (keeps)
      for (const auto& slot : state.parameters[parameter].slots) rows.state.push_back(slot.narrow(0, lane, count));
    optimizer.update_stacked(rows, StackedNumbers(of_lanes, count, rows.parameter));
  }
};

StackedNumbers::StackedNumbers(const LaneNumbers* numbers, std::int64_t width, const at::Tensor& like) {
  static constexpr std::array kColumns{&LaneNumbers::scale, &LaneNumbers::decay, &LaneNumbers::shrink,     &LaneNumbers::rate,         &LaneNumbers::keep,
                                       &LaneNumbers::add,   &LaneNumbers::keep_square, &LaneNumbers::add_square, &LaneNumbers::root_divisor, &LaneNumbers::eps};
  const std::array tensors{&scale, &decay, &shrink, &rate, &keep, &add, &keep_square, &add_square, &root_divisor, &eps};
  auto table = at::empty({static_cast<std::int64_t>(kColumns.size()) + 2, width}, at::kDouble);
  auto* const values = table.mutable_data_ptr<double>();
  all_keep = true;
  for (std::int64_t l = 0; l < width; ++l) {
    for (std::size_t c = 0; c < kColumns.size(); ++c) values[static_cast<std::int64_t>(c) * width + l] = numbers[l].*kColumns[c];
    values[static_cast<std::int64_t>(kColumns.size()) * width + l] = numbers[l].keeps;
    values[static_cast<std::int64_t>(kColumns.size() + 1) * width + l] = numbers[l].begins;
    any_scale |= numbers[l].scale != 1;
    any_decay |= numbers[l].decay != 0;
    any_shrink |= numbers[l].shrink != 1;
    any_keeps |= numbers[l].keeps;
    all_keep &= numbers[l].keeps;
    any_begins |= numbers[l].begins;
  }
  // Types with few digits compute in float: a learning rate rounded to bfloat16 would be another one.
  const auto type = like.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  table = table.to(at::TensorOptions(type).device(like.device()));
  std::vector<std::int64_t> shape(static_cast<std::size_t>(like.dim()), 1);
  shape[0] = width;
  for (std::size_t c = 0; c < kColumns.size(); ++c) *tensors[c] = table.select(0, static_cast<std::int64_t>(c)).view(shape);
  keeps = table.select(0, static_cast<std::int64_t>(kColumns.size())).view(shape).to(at::kBool);
  begins = table.select(0, static_cast<std::int64_t>(kColumns.size()) + 1).view(shape).to(at::kBool);
}

void Optimizer::update(std::int64_t first, std::int64_t width, std::span<const at::Tensor> gradients, const UpdateOptions& options) {
  auto& s = *state_;
  HFTA_CHECK(first >= 0 && width >= 0 && first + width <= s.array.lanes(), s.title(), ": expected lanes within 0 to ", s.array.lanes() - 1, ", got ", width, " from ", first);
  HFTA_CHECK(gradients.size() == s.parameters.size(), s.title(), ": expected one gradient for each of ", s.parameters.size(), " parameters, got ", gradients.size());
  HFTA_CHECK(options.scales.empty() || static_cast<std::int64_t>(options.scales.size()) == width, s.title(), ": expected one scale for each of ", width, " lanes, got ",
             options.scales.size());
  const Pass pass(*this, first, width, options);
  for (std::size_t p = 0; p < gradients.size(); ++p)
    if (gradients[p].defined()) pass.check(p, gradients[p], width);
  for (std::size_t p = 0; p < gradients.size(); ++p)
    if (gradients[p].defined()) pass.update(p, 0, gradients[p]);
  for (std::int64_t lane = first; lane < first + width; ++lane) ++s.steps[static_cast<std::size_t>(lane)];
}

void Optimizer::step() {
  const at::NoGradGuard no_grad;
  auto& s = *state_;
  s.array.stack_gradients();
  const auto lanes = s.array.lanes();
  const UpdateOptions options;
  const Pass pass(*this, 0, lanes, options);
  std::vector<bool> updated(static_cast<std::size_t>(lanes));
  const auto has_gradient = [&](std::size_t p, std::int64_t lane) { return s.array.lane_parameters(lane)[p].grad().defined(); };
  for (std::size_t p = 0; p < s.parameters.size(); ++p) {
    const auto& gradient = s.array.parameters()[p].tensor.grad();
    if (!gradient.defined()) continue;
    for (std::int64_t from = 0, end; from < lanes; from = end + 1) {
      for (end = from; end < lanes && has_gradient(p, end); ++end) updated[static_cast<std::size_t>(end)] = true;
      if (end - from == lanes) pass.update(p, 0, gradient);
      else if (end > from) pass.update(p, from, gradient.narrow(0, from, end - from));
      // A graph that saved the old values must notice, as with LibTorch's own optimizers.
      for (auto lane = from; lane < end; ++lane) s.array.lane_parameters(lane)[p].unsafeGetTensorImpl()->bump_version();
    }
  }
  for (std::int64_t lane = 0; lane < lanes; ++lane) s.steps[static_cast<std::size_t>(lane)] += updated[static_cast<std::size_t>(lane)];
}

}  // namespace hfta::optim
