#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "hfta/optim/kernels.h"

namespace hfta::optim {

/// A number of an optimizer and the values that it takes.
struct Hyper {
  std::string name;
  double least = 0;                                      ///< Inclusive.
  double most = std::numeric_limits<double>::infinity();  ///< Inclusive unless `below`.
  bool below = false;                                    ///< `most` itself is not allowed.
};

/// An entry of a parameter group in `torch.optim`'s state dict: a hyper-parameter's number, "betas", or a constant.
struct GroupKey {
  std::string name;
  c10::IValue constant;     ///< Where `name` is neither a hyper-parameter nor "betas".
  bool must_match = false;  ///< A state dict with another constant does not fit.
};

/// What sets one class of optimizers apart in the base class's eyes.
struct Definition {
  std::string name;                 ///< `torch.optim`'s.
  std::vector<Hyper> hyper;         ///< In the order in which `numbers` reads them.
  std::vector<std::string> slots;   ///< State tensors of a parameter, by `torch.optim`'s names; at most three.
  bool has_step = true;             ///< `torch.optim` keeps a step count per parameter.
  std::vector<GroupKey> group_keys;  ///< In `torch.optim`'s order, without "params".
};

/// Parameter, gradient and state of some lanes, `[width, ...]` each; written in place.
struct StackedRows {
  at::Tensor parameter, gradient;
  std::vector<at::Tensor> state;
};

/// `LaneNumbers` of some lanes as tensors `[width, 1, ...]` that broadcast over a stacked parameter.
struct StackedNumbers {
  at::Tensor scale, decay, shrink, rate, keep, add, keep_square, add_square, root_divisor, eps;
  at::Tensor keeps, begins;  ///< Boolean.
  bool any_scale = false, any_decay = false, any_shrink = false, any_keeps = false, all_keep = false, any_begins = false;

  StackedNumbers(const LaneNumbers* numbers, std::int64_t width, const at::Tensor& like);
};

}  // namespace hfta::optim
