#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/grad_mode.h>

#include "hfta/ops/arguments.h"
#include "hfta/ops/looped.h"
#include "hfta/ops/register.h"

namespace hfta::ops {
namespace {

/// The kernel keeps what its backward needs only with gradients on, which rules run without.
std::optional<std::vector<LaneValue>> recurrent_layer(const c10::OperatorHandle& op, std::size_t train, const RuleContext& context,
                                                      std::span<const LaneValue> values) {
  const at::AutoGradMode gradients(Arguments(context, values).plain(train).toBool());
  return loop_lanes(op, context, values);
}

}  // namespace

void register_recurrent_rules() {
  for (const auto& [name, train] : {std::pair("aten::mkldnn_rnn_layer", 15UL), std::pair("aten::mkldnn_rnn_layer_backward", 18UL)}) {
    const auto op = c10::Dispatcher::singleton().findSchema({name, ""});
    if (!op) continue;
    add_rules({name, {{"looped", [op = *op, train = train](const RuleContext& context, std::span<const LaneValue> values) {
      return recurrent_layer(op, train, context, values);
    }, true}}});
  }
}

}  // namespace hfta::ops
