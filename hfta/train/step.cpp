#include "hfta/train/step.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/stack.h>

#include <algorithm>

#include "hfta/base/error.h"
#include "hfta/lanes/rows.h"

namespace hfta::train {
namespace {

constexpr std::int64_t kMostTogether = 8;  // Memory traffic shrinks with the number, but hardly beyond this.
constexpr double kTogetherMs = 100;        // What someone who interrupts or looks at progress does not notice.

}  // namespace

std::int64_t steps_together(double step_ms) { return std::clamp(static_cast<std::int64_t>(kTogetherMs / std::max(step_ms, 1e-3)), std::int64_t{1}, kMostTogether); }

void check_arrays(std::span<lanes::ArrayBase* const> arrays, const optim::Optimizer* optimizer, const std::string& who) {
  HFTA_CHECK(!arrays.empty() && arrays[0], who, ": expected at least 1 array, got none");
  bool found = optimizer == nullptr;
  for (const auto* array : arrays) {
    HFTA_CHECK(array, who, ": expected arrays, got a null pointer");
    HFTA_CHECK(array->lanes() == arrays[0]->lanes(), who, ": expected arrays of ", arrays[0]->lanes(), " lanes, got one of ", array->lanes());
    HFTA_CHECK(array->device() == arrays[0]->device(), who, ": expected arrays on ", arrays[0]->device(), ", got one on ", array->device());
    found |= optimizer && &optimizer->array() == array;
  }
  HFTA_CHECK(found, who, ": expected an optimizer of ", arrays.size() == 1 ? "this array" : "one of these arrays", ", got another array's");
}

void check_inputs(std::span<const Input> inputs, const lanes::ArrayBase& array, const std::string& who) {
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const auto& [tensor, per_lane] = inputs[i];
    HFTA_CHECK(tensor.defined(), who, ": expected a tensor as input ", i, ", got an undefined one");
    const bool number = !per_lane && tensor.dim() == 0 && tensor.is_cpu();
    HFTA_CHECK(number || tensor.device() == array.device(), who, ": expected input ", i, " on ", array.device(), ", got it on ", tensor.device());
    HFTA_CHECK(!per_lane || (tensor.dim() > 0 && tensor.size(0) == array.lanes()), who, ": expected per-lane input ", i, " of shape [",
               array.lanes(), ", ...], got ", tensor.sizes());
  }
}

std::vector<at::Tensor> inputs_of_lane(std::span<const Input> inputs, std::int64_t lane) {
  std::vector<at::Tensor> mine;
  mine.reserve(inputs.size());
  for (const auto& [tensor, per_lane] : inputs) {
    mine.push_back(per_lane ? tensor.select(0, lane) : tensor);
    // Some kernels round by the alignment of their memory: a slice must give the bits of a tensor of its own.
    const auto& slice = mine.back();
    if (per_lane && slice.is_cpu() && slice.numel() > 0 && reinterpret_cast<std::uintptr_t>(slice.const_data_ptr()) % lanes::kRowAlignment != 0)
      mine.back() = slice.clone();
  }
  return mine;
}

void check_loss(const at::Tensor& loss, std::int64_t lane, const std::string& who) {
  HFTA_CHECK(loss.defined(), who, ": expected a loss from lane ", lane, ", got an undefined tensor");
  HFTA_CHECK(loss.numel() == 1, who, ": expected a scalar loss from lane ", lane, ", got shape ", loss.sizes());
  HFTA_CHECK(loss.requires_grad(), who, ": expected a loss that depends on a trainable parameter from lane ", lane, ", got one without a gradient");
}

std::vector<at::Tensor> stack_results(const std::vector<std::vector<at::Tensor>>& values, const std::string& who) {
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> stacked;
  if (values.empty()) return stacked;
  for (std::size_t lane = 0; lane < values.size(); ++lane)
    HFTA_CHECK(values[lane].size() == values[0].size(), who, ": expected ", values[0].size(), " results from lane ", lane, " as from lane 0, got ",
               values[lane].size());
  for (std::size_t i = 0; i < values[0].size(); ++i) {
    std::vector<at::Tensor> rows;
    for (std::size_t lane = 0; lane < values.size(); ++lane) {
      const auto &value = values[lane][i], &first = values[0][i];
      HFTA_CHECK(value.defined(), who, ": expected a tensor as result ", i, " of lane ", lane, ", got an undefined one");
      HFTA_CHECK(value.sizes() == first.sizes() && value.scalar_type() == first.scalar_type(), who, ": expected result ", i, " of lane ", lane,
                 " as lane 0's ", first.scalar_type(), " ", first.sizes(), ", got ", value.scalar_type(), " ", value.sizes());
      rows.push_back(value.detach());
    }
    stacked.push_back(at::stack(rows));
  }
  return stacked;
}

}  // namespace hfta::train
