#include "hfta/optim/sgd.h"

#include <ATen/ops/addcmul.h>
#include <ATen/ops/where.h>

#include "hfta/base/error.h"

namespace hfta::optim {
namespace {

Definition definition(const SGDOptions& options) {
  return {.name = "SGD",
          .hyper = {{"lr"}, {"momentum"}, {"dampening", -std::numeric_limits<double>::infinity()}, {"weight_decay"}},
          .slots = {"momentum_buffer"},
          .has_step = false,
          .group_keys = {{"lr", {}},
                         {"momentum", {}},
                         {"dampening", {}},
                         {"weight_decay", {}},
                         {"nesterov", options.nesterov, true},
                         {"maximize", options.maximize, true},
                         {"foreach", {}},
                         {"differentiable", false},
                         {"fused", {}}}};
}

}  // namespace

SGD::SGD(lanes::ArrayBase& array, const SGDOptions& options)
    : Optimizer(array, definition(options),
                {{"lr", options.lr}, {"momentum", options.momentum}, {"dampening", options.dampening}, {"weight_decay", options.weight_decay}}, options.groups),
      nesterov_(options.nesterov),
      maximize_(options.maximize) {
  if (!nesterov_) return;
  for (std::size_t group = 0; group < groups(); ++group)
    for (std::int64_t lane = 0; lane < array.lanes(); ++lane)
      HFTA_CHECK(get("momentum", lane, group) > 0 && get("dampening", lane, group) == 0,
                 "optim::SGD: expected a momentum and no dampening with nesterov, got momentum ", get("momentum", lane, group), " and dampening ",
                 get("dampening", lane, group), " in lane ", lane);
}

LaneNumbers SGD::numbers(std::span<const double> hyper, std::int64_t, bool has_state) const {
  enum { Lr, Momentum, Dampening, WeightDecay };
  LaneNumbers n;
  n.scale = maximize_ ? -1 : 1;
  n.decay = hyper[WeightDecay];
  n.rate = -hyper[Lr];
  n.keep = hyper[Momentum];
  n.add = 1 - hyper[Dampening];
  n.keeps = hyper[Momentum] != 0;
  n.begins = n.keeps && !has_state;
  return n;
}

void SGD::update_rows(const Rows& rows, const LaneNumbers* numbers) const { sgd_rows(rows, numbers, nesterov_); }

void SGD::update_stacked(const StackedRows& rows, const StackedNumbers& n) const {
  auto gradient = n.any_scale ? rows.gradient.mul(n.scale) : rows.gradient;
  if (n.any_decay) gradient = at::addcmul(gradient, rows.parameter, n.decay);
  auto direction = gradient;
  if (n.any_keeps) {
    const auto& buffer = rows.state[0];
    auto next = at::addcmul(buffer.mul(n.keep), gradient, n.add);
    if (n.any_begins) next = at::where(n.begins, gradient, next);
    direction = nesterov_ ? at::addcmul(gradient, next, n.keep) : next;
    if (!n.all_keep) {
      next = at::where(n.keeps, next, buffer);
      direction = at::where(n.keeps, direction, gradient);
    }
    buffer.copy_(next);
  }
  rows.parameter.addcmul_(direction, n.rate);
}

}  // namespace hfta::optim
