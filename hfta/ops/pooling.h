#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include <array>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "hfta/ops/rule.h"

namespace hfta::ops {

/// Ways to compute a fused pooling.
enum class PoolingLowering {
  Direct,  ///< Our own kernel where there is one (2-d max pooling on the CPU), lanes folded as in `Native`.
  Native,  ///< LibTorch's kernel, lanes folded into the batch or the channels.
};
/// Every lowering, best guess first: the chooser times them, the tests compare them.
inline constexpr std::array kPoolingLowerings{PoolingLowering::Direct, PoolingLowering::Native};
std::string_view name_of(PoolingLowering lowering);

/// Each lane's pooling, or gradient of one: `op` on tensors of planes `[N, C, spatial...]` or `[C, spatial...]` with `spatial` axes,
/// and numbers equal for all lanes. Planes are independent of each other, so the lanes are more of them.
/// Nothing where the lowering does not take these arguments.
std::optional<std::vector<LaneValue>> pooling(const c10::OperatorHandle& op, std::span<const LaneValue> arguments, std::int64_t lanes,
                                              std::int64_t spatial, PoolingLowering lowering);

}  // namespace hfta::ops
