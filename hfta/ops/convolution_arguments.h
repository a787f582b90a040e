#pragma once

#include <vector>

#include "hfta/ops/arguments.h"
#include "hfta/ops/convolution.h"

// What the rules of convolutions share.

namespace hfta::ops {

/// Options from argument `first` on: stride, padding, dilation, transposed, output_padding, groups.
inline ConvolutionOptions options_at(const Arguments& arguments, std::size_t first) {
  return {.stride = arguments.integers(first),
          .padding = arguments.integers(first + 1),
          .dilation = arguments.integers(first + 2),
          .transposed = arguments.plain(first + 3).toBool(),
          .output_padding = arguments.integers(first + 4),
          .groups = arguments.plain(first + 5).toInt()};
}

/// Those that were not asked for as undefined tensors.
inline std::vector<LaneValue> results_of(const ConvolutionGradients& gradients) {
  std::vector<LaneValue> results;
  for (const auto& gradient : gradients) results.push_back(gradient ? LaneValue(*gradient) : LaneValue(c10::IValue(at::Tensor())));
  return results;
}

/// Marked for the CPU, so that one lane takes it too: LibTorch's own kernels for this case are slow there only.
inline bool is_for_cpu(ConvolutionLowering lowering) {
  return lowering == ConvolutionLowering::Product || lowering == ConvolutionLowering::Direct || lowering == ConvolutionLowering::Winograd ||
         lowering == ConvolutionLowering::Samples;
}

}  // namespace hfta::ops
