#include "hfta/optim/adam.h"

#include <ATen/ops/addcmul.h>
#include <ATen/ops/maximum.h>

#include <cmath>

namespace hfta::optim {
namespace {

Definition definition(const char* name, const AdamOptions& options, bool decoupled) {
  Definition d{.name = name,
               .hyper = {{"lr"}, {"beta1", 0, 1, true}, {"beta2", 0, 1, true}, {"eps"}, {"weight_decay"}},
               .slots = {"exp_avg", "exp_avg_sq"},
               .has_step = true,
               .group_keys = {{"lr", {}},
                              {"betas", {}},
                              {"eps", {}},
                              {"weight_decay", {}},
                              {"amsgrad", options.amsgrad, true},
                              {"maximize", options.maximize, true},
                              {"foreach", {}},
                              {"capturable", false},
                              {"differentiable", false},
                              {"fused", {}},
                              {"decoupled_weight_decay", decoupled, true}}};
  if (options.amsgrad) d.slots.emplace_back("max_exp_avg_sq");
  return d;
}

}  // namespace

Adam::Adam(lanes::ArrayBase& array, const char* name, const AdamOptions& options, bool decoupled)
    : Optimizer(array, definition(name, options, decoupled),
                {{"lr", options.lr}, {"beta1", options.beta1}, {"beta2", options.beta2}, {"eps", options.eps}, {"weight_decay", options.weight_decay}}, options.groups),
      maximize_(options.maximize),
      decoupled_(decoupled) {}

AdamW::AdamW(lanes::ArrayBase& array, const AdamWOptions& o)
    : Adam(array, "AdamW",
           {.lr = o.lr, .beta1 = o.beta1, .beta2 = o.beta2, .eps = o.eps, .weight_decay = o.weight_decay, .amsgrad = o.amsgrad, .maximize = o.maximize, .groups = o.groups},
           true) {}

LaneNumbers Adam::numbers(std::span<const double> hyper, std::int64_t step, bool) const {
  enum { Lr, Beta1, Beta2, Eps, WeightDecay };
  LaneNumbers n;
  n.scale = maximize_ ? -1 : 1;
  if (decoupled_)
    n.shrink = 1 - hyper[Lr] * hyper[WeightDecay];
  else
    n.decay = hyper[WeightDecay];
  n.keep = hyper[Beta1];
  n.add = 1 - hyper[Beta1];
  n.keep_square = hyper[Beta2];
  n.add_square = 1 - hyper[Beta2];
  n.eps = hyper[Eps];
  n.rate = -(hyper[Lr] / (1 - std::pow(hyper[Beta1], static_cast<double>(step))));
  n.root_divisor = std::sqrt(1 - std::pow(hyper[Beta2], static_cast<double>(step)));
  return n;
}

void Adam::update_rows(const Rows& rows, const LaneNumbers* numbers) const { adam_rows(rows, numbers); }

void Adam::update_stacked(const StackedRows& rows, const StackedNumbers& n) const {
  auto gradient = n.any_scale ? rows.gradient.mul(n.scale) : rows.gradient;
  if (n.any_decay) gradient = at::addcmul(gradient, rows.parameter, n.decay);
  if (n.any_shrink) rows.parameter.mul_(n.shrink);
  const auto &first = rows.state[0], &second = rows.state[1];
  first.mul_(n.keep).addcmul_(gradient, n.add);
  second.mul_(n.keep_square).addcmul_(gradient.mul(n.add_square), gradient);
  if (rows.state.size() == 3) rows.state[2].copy_(at::maximum(rows.state[2], second));
  const auto denominator = (rows.state.size() == 3 ? rows.state[2] : second).sqrt().div(n.root_divisor).add_(n.eps);
  rows.parameter.addcdiv_(first.mul(n.rate), denominator);
}

}  // namespace hfta::optim
