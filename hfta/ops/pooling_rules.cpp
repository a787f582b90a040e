#include <utility>

#include "hfta/ops/pooling.h"
#include "hfta/ops/register.h"
#include "hfta/ops/rule.h"

namespace hfta::ops {
namespace {

struct PoolingOperator {
  const char* name;
  std::int64_t spatial;
  bool direct = false;  ///< We have a kernel of our own.
};

// Poolings over one axis are made of these by LibTorch.
constexpr std::array kPoolings{
    PoolingOperator{"aten::max_pool2d_with_indices", 2, true},
    PoolingOperator{"aten::max_pool2d_with_indices_backward", 2, true},
    PoolingOperator{"aten::max_pool3d_with_indices", 3},
    PoolingOperator{"aten::max_pool3d_with_indices_backward", 3},
    PoolingOperator{"aten::avg_pool2d", 2},
    PoolingOperator{"aten::avg_pool2d_backward", 2},
    PoolingOperator{"aten::avg_pool3d", 3},
    PoolingOperator{"aten::avg_pool3d_backward", 3},
    PoolingOperator{"aten::_adaptive_avg_pool2d", 2},
    PoolingOperator{"aten::_adaptive_avg_pool2d_backward", 2},
    PoolingOperator{"aten::_adaptive_avg_pool3d", 3},
    PoolingOperator{"aten::_adaptive_avg_pool3d_backward", 3},
    PoolingOperator{"aten::adaptive_max_pool2d", 2},
    PoolingOperator{"aten::adaptive_max_pool2d_backward", 2},
    PoolingOperator{"aten::adaptive_max_pool3d", 3},
    PoolingOperator{"aten::adaptive_max_pool3d_backward", 3},
    PoolingOperator{"aten::max_unpool2d", 2},
};

}  // namespace

void register_pooling_rules() {
  for (const auto& entry : kPoolings) {
    OperatorRules rules{entry.name, {}};
    const auto op = c10::Dispatcher::singleton().findSchemaOrThrow(entry.name, "");
    for (const auto lowering : kPoolingLowerings) {
      if (lowering == PoolingLowering::Direct && !entry.direct) continue;
      const auto rule = [op, spatial = entry.spatial, lowering](const RuleContext& context, std::span<const LaneValue> values) {
        return pooling(op, values, context.lanes, spatial, lowering);
      };
      rules.lowerings.push_back({name_of(lowering), rule, lowering == PoolingLowering::Direct});
    }
    add_rules(std::move(rules));
  }
}

}  // namespace hfta::ops
