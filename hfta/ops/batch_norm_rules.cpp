#include <ATen/ops/empty.h>

#include <algorithm>

#include "hfta/ops/arguments.h"
#include "hfta/ops/batch_norm.h"
#include "hfta/ops/register.h"
#include "hfta/ops/rule.h"

namespace hfta::ops {
namespace {

using Results = std::optional<std::vector<LaneValue>>;

std::string_view name_of(BatchNormLowering lowering) {
  switch (lowering) {
    case BatchNormLowering::Fused: return "fused";
    case BatchNormLowering::Folded: return "folded";
    case BatchNormLowering::Looped: return "looped";
  }
  return {};
}

/// Where one of the forward operators has its arguments; all begin with input, weight, bias.
struct ForwardForm {
  const char* name;
  std::optional<std::size_t> running;   ///< Running mean; the variance follows.
  std::optional<std::size_t> training;  ///< Empty: always `trains`.
  bool trains;
  std::size_t momentum, eps;
  bool reserve;  ///< Has a fourth result, memory of the vendor's kernel that ours does not use.
};

constexpr std::array kForward{
    ForwardForm{"aten::native_batch_norm", 3, 5, true, 6, 7, false},
    ForwardForm{"aten::_native_batch_norm_legit", 3, 5, true, 6, 7, false},
    ForwardForm{"aten::_native_batch_norm_legit.no_stats", std::nullopt, 3, true, 4, 5, false},
    ForwardForm{"aten::_native_batch_norm_legit_no_training", 3, std::nullopt, false, 5, 6, false},
    ForwardForm{"aten::_batch_norm_with_update", 3, std::nullopt, true, 5, 6, true},
    ForwardForm{"aten::_batch_norm_no_update", 3, std::nullopt, false, 5, 6, true},
    ForwardForm{"aten::cudnn_batch_norm", 3, 5, true, 6, 7, true},
    ForwardForm{"aten::miopen_batch_norm", 3, 5, true, 6, 7, false},
};

Results forward(const ForwardForm& form, const Arguments& arguments, BatchNormLowering lowering) {
  BatchNormState state{arguments.tensor(1), arguments.tensor(2), std::nullopt, std::nullopt};
  if (form.running) state.running_mean = arguments.tensor(*form.running), state.running_var = arguments.tensor(*form.running + 1);
  const BatchNormOptions options{.training = form.training ? arguments.plain(*form.training).toBool() : form.trains,
                                 .momentum = arguments.numbers(form.momentum), .eps = arguments.numbers(form.eps)};
  const auto input = arguments.required(0);
  auto result = batch_norm(input, state, options, arguments.lanes(), lowering);
  if (!result) return std::nullopt;
  std::vector<LaneValue> values{result->output, result->mean, result->inverse_std};
  if (form.reserve) values.emplace_back(LaneTensor{at::empty({0}, input.tensor.options().dtype(at::kByte)), std::nullopt});
  return values;
}

/// Where one of the backward operators has its arguments; the saved mean is followed by the saved deviation.
struct BackwardForm {
  const char* name;
  std::size_t gradient, input, weight, running, saved;
  std::optional<std::size_t> training, mask;  ///< Empty: training, all three gradients.
  std::size_t eps;
};

constexpr std::array kBackward{
    BackwardForm{"aten::native_batch_norm_backward", 0, 1, 2, 3, 5, 7, 9, 8},
    BackwardForm{"aten::batch_norm_backward", 0, 1, 2, 3, 5, 7, 9, 8},
    BackwardForm{"aten::cudnn_batch_norm_backward", 1, 0, 2, 3, 5, std::nullopt, std::nullopt, 7},
    BackwardForm{"aten::miopen_batch_norm_backward", 1, 0, 2, 3, 5, std::nullopt, std::nullopt, 7},
};

Results backward(const BackwardForm& form, const Arguments& arguments, BatchNormLowering lowering) {
  BatchNormBackward read{
      .gradient = arguments.required(form.gradient),
      .input = arguments.required(form.input),
      .state = {arguments.tensor(form.weight), std::nullopt, arguments.tensor(form.running), arguments.tensor(form.running + 1)},
      .saved = {arguments.tensor(form.saved), arguments.tensor(form.saved + 1)},
      .options = {.training = form.training ? arguments.plain(*form.training).toBool() : true,
                  .momentum = std::vector<double>(static_cast<std::size_t>(arguments.lanes()), 0.0),
                  .eps = arguments.numbers(form.eps)}};
  if (form.mask) {
    const auto wanted = arguments.booleans(*form.mask);
    std::copy_n(wanted.begin(), read.mask.size(), read.mask.begin());
  }
  auto result = batch_norm_backward(read, arguments.lanes(), lowering);
  if (!result) return std::nullopt;
  return std::vector<LaneValue>{or_none(result->input), or_none(result->weight), or_none(result->bias)};
}

template <typename Form, typename Run>
void add_form(const Form& form, Run run) {
  OperatorRules rules{form.name, {}};
  for (const auto lowering : kBatchNormLowerings)
    rules.lowerings.push_back({name_of(lowering), [&form, run, lowering](const RuleContext& context, std::span<const LaneValue> values) {
      return run(form, Arguments(context, values), lowering);
    }, lowering == BatchNormLowering::Fused});
  add_rules(std::move(rules));
}

}  // namespace

void register_batch_norm_rules() {
  for (const auto& form : kForward) add_form(form, forward);
  for (const auto& form : kBackward) add_form(form, backward);
}

}  // namespace hfta::ops
