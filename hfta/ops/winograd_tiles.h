#pragma once

#include "hfta/ops/channel_vectors.h"

// Winograd's transforms of tiles, sixteen channels at a time; inlined into functions that are compiled for several processors.

namespace hfta::ops {

/// `B^T d B` of each row, then of each column: `d` has its rows `stride` vectors apart, the sixteen results lie `step` floats apart.
HFTA_INLINE void transform_input(const float* tile, std::int64_t stride, float* to, std::int64_t step) {
  Lanes16 half[4][4];
  for (int k = 0; k < 4; ++k) {
    Lanes16 d[4];
    for (int r = 0; r < 4; ++r) load(d[r], tile + (r * stride + k) * kVector);
    half[0][k] = d[0] - d[2];
    half[1][k] = d[1] + d[2];
    half[2][k] = d[2] - d[1];
    half[3][k] = d[1] - d[3];
  }
  for (int r = 0; r < 4; ++r, to += 4 * step) {
    store(to, half[r][0] - half[r][2]);
    store(to + step, half[r][1] + half[r][2]);
    store(to + 2 * step, half[r][2] - half[r][1]);
    store(to + 3 * step, half[r][1] - half[r][3]);
  }
}

/// `A^T m A + bias`: two rows of two outputs.
HFTA_INLINE void transform_output(const float* from, std::int64_t step, const Lanes16& bias, float* tile, std::int64_t stride) {
  Lanes16 half[2][4];
  for (int k = 0; k < 4; ++k) {
    Lanes16 m[4];
    for (int r = 0; r < 4; ++r) load(m[r], from + (4 * r + k) * step);
    half[0][k] = m[0] + m[1] + m[2];
    half[1][k] = m[1] - m[2] - m[3];
  }
  for (int r = 0; r < 2; ++r) {
    store(tile + r * stride * kVector, half[r][0] + half[r][1] + half[r][2] + bias);
    store(tile + (r * stride + 1) * kVector, half[r][1] - half[r][2] - half[r][3] + bias);
  }
}

/// `A y A^T`: what two by two gradients of outputs give to the sixteen products.
HFTA_INLINE void transform_gradient(const float* tile, std::int64_t stride, float* to, std::int64_t step) {
  Lanes16 half[4][2];
  for (int k = 0; k < 2; ++k) {
    Lanes16 y[2];
    for (int r = 0; r < 2; ++r) load(y[r], tile + (r * stride + k) * kVector);
    half[0][k] = y[0];
    half[1][k] = y[0] + y[1];
    half[2][k] = y[0] - y[1];
    half[3][k] = -y[1];
  }
  for (int r = 0; r < 4; ++r, to += 4 * step) {
    store(to, half[r][0]);
    store(to + step, half[r][0] + half[r][1]);
    store(to + 2 * step, half[r][0] - half[r][1]);
    store(to + 3 * step, -half[r][1]);
  }
}

/// `G g G^T` of the kernels `g` `[3, 3]`; turned round where asked for.
HFTA_INLINE void transform_weight(const Lanes16 (&g)[16], bool turned, float* to, std::int64_t step) {
  Lanes16 half[4][3];
  for (int k = 0; k < 3; ++k) {
    const auto& first = turned ? g[8 - k] : g[k];
    const auto& middle = turned ? g[5 - k] : g[3 + k];
    const auto& last = turned ? g[2 - k] : g[6 + k];
    half[0][k] = first;
    half[1][k] = (first + last + middle) * 0.5F;
    half[2][k] = (first + last - middle) * 0.5F;
    half[3][k] = last;
  }
  for (int r = 0; r < 4; ++r, to += 4 * step) {
    store(to, half[r][0]);
    store(to + step, (half[r][0] + half[r][2] + half[r][1]) * 0.5F);
    store(to + 2 * step, (half[r][0] + half[r][2] - half[r][1]) * 0.5F);
    store(to + 3 * step, half[r][2]);
  }
}

/// `G^T u G`: the gradients of kernels `[3, 3]` from those of their transforms.
HFTA_INLINE void transform_weight_gradient(const float* from, std::int64_t step, Lanes16 (&g)[16]) {
  Lanes16 half[3][4];
  for (int k = 0; k < 4; ++k) {
    Lanes16 u[4];
    for (int r = 0; r < 4; ++r) load(u[r], from + (4 * r + k) * step);
    half[0][k] = u[0] + (u[1] + u[2]) * 0.5F;
    half[1][k] = (u[1] - u[2]) * 0.5F;
    half[2][k] = (u[1] + u[2]) * 0.5F + u[3];
  }
  for (int r = 0; r < 3; ++r) {
    g[3 * r] = half[r][0] + (half[r][1] + half[r][2]) * 0.5F;
    g[3 * r + 1] = (half[r][1] - half[r][2]) * 0.5F;
    g[3 * r + 2] = (half[r][1] + half[r][2]) * 0.5F + half[r][3];
  }
  for (int i = 9; i < 16; ++i) g[i] = Lanes16{};
}

}  // namespace hfta::ops
