#include "hfta/optim/adadelta.h"

#include <ATen/ops/addcmul.h>

namespace hfta::optim {
namespace {

Definition definition(const AdadeltaOptions& options) {
  return {.name = "Adadelta",
          .hyper = {{"lr"}, {"rho", 0, 1}, {"eps"}, {"weight_decay"}},
          .slots = {"square_avg", "acc_delta"},
          .has_step = true,
          .group_keys = {{"lr", {}},
                         {"rho", {}},
                         {"eps", {}},
                         {"weight_decay", {}},
                         {"maximize", options.maximize, true},
                         {"capturable", false},
                         {"foreach", {}},
                         {"differentiable", false}}};
}

}  // namespace

Adadelta::Adadelta(lanes::ArrayBase& array, const AdadeltaOptions& options)
    : Optimizer(array, definition(options), {{"lr", options.lr}, {"rho", options.rho}, {"eps", options.eps}, {"weight_decay", options.weight_decay}}, options.groups),
      maximize_(options.maximize) {}

LaneNumbers Adadelta::numbers(std::span<const double> hyper, std::int64_t, bool) const {
  enum { Lr, Rho, Eps, WeightDecay };
  LaneNumbers n;
  n.scale = maximize_ ? -1 : 1;
  n.decay = hyper[WeightDecay];
  n.rate = -hyper[Lr];
  n.keep = hyper[Rho];
  n.add = 1 - hyper[Rho];
  n.eps = hyper[Eps];
  return n;
}

void Adadelta::update_rows(const Rows& rows, const LaneNumbers* numbers) const { adadelta_rows(rows, numbers); }

void Adadelta::update_stacked(const StackedRows& rows, const StackedNumbers& n) const {
  auto gradient = n.any_scale ? rows.gradient.mul(n.scale) : rows.gradient;
  if (n.any_decay) gradient = at::addcmul(gradient, rows.parameter, n.decay);
  const auto &squares = rows.state[0], &deltas = rows.state[1];
  squares.mul_(n.keep).addcmul_(gradient.mul(n.add), gradient);
  const auto delta = deltas.add(n.eps).sqrt_().div_(squares.add(n.eps).sqrt_()).mul_(gradient);
  deltas.mul_(n.keep).addcmul_(delta.mul(n.add), delta);
  rows.parameter.addcmul_(delta, n.rate);
}

}  // namespace hfta::optim
