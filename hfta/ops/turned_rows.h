#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "hfta/ops/softmax.h"
#include "hfta/ops/vector_square.h"

namespace hfta::ops {

/// Up to a vector's numbers of rows of at most `kMostClasses` classes, turned so that vectors run across rows: `values[class][row]`.
template <typename T>
struct TurnedRows {
  static constexpr std::int64_t kRows = Wide<T>::kSize;
  static constexpr std::int64_t kSquares = (kMostClasses + kRows - 1) / kRows;
  typename Wide<T>::Vector values[kSquares * kRows];

  /// Rows beyond `rows` become zeros. @param readable numbers that may be read from `x` on.
  HFTA_INLINE void load(const T* x, std::int64_t rows, std::int64_t classes, std::int64_t readable) {
    for (std::int64_t from = 0; from < classes; from += kRows) {
      auto* const square = values + from;
#pragma GCC unroll 16
      for (std::int64_t r = 0; r < kRows; ++r) {
        square[r] = typename Wide<T>::Vector{};
        const auto place = r * classes + from;
        if (r >= rows) continue;
        if (place + kRows <= readable) ops::load(square[r], x + place);
        else std::memcpy(&square[r], x + place, static_cast<std::size_t>(std::min(kRows, classes - from)) * sizeof(T));
      }
      turn_square<T>(square);
    }
  }

  /// Rows are written in order, each by whole vectors of which the next row overwrites the rest; the last one ends where it ends. Turns the block.
  HFTA_INLINE void store(T* y, std::int64_t rows, std::int64_t classes) {
    const auto count = (classes + kRows - 1) / kRows;
    for (std::int64_t s = 0; s < count; ++s) turn_square<T>(values + s * kRows);
    for (std::int64_t r = 0; r < rows; ++r)
      for (std::int64_t s = 0; s < count; ++s) {
        const auto from = r * classes + s * kRows;
        if (from + kRows <= rows * classes) ops::store(y + from, values[s * kRows + r]);
        else std::memcpy(y + from, &values[s * kRows + r], static_cast<std::size_t>(std::min(kRows, classes - s * kRows)) * sizeof(T));
      }
  }
};

}  // namespace hfta::ops
