#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/grad_mode.h>

#include "hfta/ops/looped.h"
#include "hfta/ops/register.h"

namespace hfta::ops {
namespace {

/// The kernel keeps what its backward needs only with gradients on, in evaluation mode too; rules run without.
std::optional<std::vector<LaneValue>> recurrent_layer(const c10::OperatorHandle& op, const RuleContext& context, std::span<const LaneValue> values) {
  const at::AutoGradMode gradients(true);
  return loop_lanes(op, context, values);
}

}  // namespace

void register_recurrent_rules() {
  for (const char* name : {"aten::mkldnn_rnn_layer", "aten::mkldnn_rnn_layer_backward"}) {
    const auto op = c10::Dispatcher::singleton().findSchema({name, ""});
    if (!op) continue;
    add_rules({name, {{"looped", [op = *op](const RuleContext& context, std::span<const LaneValue> values) {
      return recurrent_layer(op, context, values);
    }, true}}});
  }
}

}  // namespace hfta::ops
