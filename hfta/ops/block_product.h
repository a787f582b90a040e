#pragma once

#include <cstdint>

namespace hfta::ops {

/// A product `c = a @ b`, or `c += a @ b`, of numbers that lie in the caches.
struct BlockProduct {
  const float* a;  ///< `[rows, depth]`, at `a[row * a_row + k * a_depth]`.
  std::int64_t a_row, a_depth;
  const float* b;  ///< `[depth, columns]`, at `b[k * b_depth + column]`.
  std::int64_t b_depth;
  float* c;  ///< `[rows, columns]`, at `c[row * c_row + column]`.
  std::int64_t c_row;
  std::int64_t rows, columns, depth;  ///< Columns are a multiple of 16. Rows are computed by sixes: so many can be read and written.
  bool add;
};

inline constexpr std::int64_t kProductRows = 6;

/// Columns that lie side by side in a panel of `b` for the greatest speed, where so many are left: 64, 32 or 16.
std::int64_t panel_width(std::int64_t columns);

void multiply(const BlockProduct& product);

}  // namespace hfta::ops
