#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <optional>

#include "hfta/ops/lane_tensor.h"

namespace hfta::ops {

/// Ways to look rows up in the lanes' tables.
enum class EmbeddingLowering {
  Fused,   ///< One kernel over lanes and indices. CPU only.
  Looped,  ///< LibTorch's operator once per lane.
};
inline constexpr std::array kEmbeddingLowerings{EmbeddingLowering::Fused, EmbeddingLowering::Looped};

/// Rows `indices` of each lane's table `[V, D]`. Nothing where the lowering does not take the arguments.
std::optional<LaneTensor> embedding(const LaneTensor& table, const LaneTensor& indices, std::int64_t lanes, EmbeddingLowering lowering);

struct EmbeddingGradientOptions {
  std::int64_t rows;            ///< V.
  std::int64_t padding_index;   ///< Its row gets no gradient; negative: none.
  bool scale_by_frequency;      ///< Divides by how often the index occurs in the lane's indices.
};

/// Gradient of the lanes' tables `[V, D]`.
std::optional<LaneTensor> embedding_backward(const LaneTensor& gradient, const LaneTensor& indices, const EmbeddingGradientOptions& options,
                                             std::int64_t lanes, EmbeddingLowering lowering);

}  // namespace hfta::ops
