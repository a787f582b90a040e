#pragma once

#include <algorithm>
#include <cstdint>

#include "hfta/ops/bfloat16_parts.h"
#include "hfta/ops/vector_square.h"

// Floats split in bfloat16 parts, in tiles as the processor's matrix unit takes them. For sources of x86-64 only.

namespace hfta::ops {

constexpr std::int64_t kSide = 16;               ///< Rows or columns of a tile.
constexpr std::int64_t kDepth = 32;              ///< Of the inner axis, in a tile of bfloat16.
constexpr std::int64_t kTile = kSide * kDepth;   ///< Numbers of a tile.
constexpr std::int64_t kStep = 3 * kTile;        ///< A tile's parts, largest first.

inline std::int64_t steps_of(std::int64_t inner) { return (inner + kDepth - 1) / kDepth; }
inline std::int64_t tiles_of(std::int64_t side) { return (side + kSide - 1) / kSide; }

/// A factor as the unit sees it: `(i, k)`, where `k` is the inner axis, lies at `data[i * side + k * inner]`.
struct Side {
  const float* data;
  std::int64_t side, inner, size;
};

inline __mmask16 first_of(std::int64_t count) { return static_cast<__mmask16>(count >= 16 ? 0xFFFF : (1U << std::max<std::int64_t>(count, 0)) - 1U); }

HFTA_TILES_INLINE void put(const Parts& parts, std::uint16_t* to) {
  for (int p = 0; p < 3; ++p) _mm512_store_si512(to + p * kTile, parts.part[p]);
}

/// Splits tiles of a factor, a few rows at a time: between what the unit is given to multiply, which takes it longer.
/// @tparam AsRows a tile's rows are neighbours along the inner axis, as of the factor whose `i` are the result's rows; else pairs of such neighbours.
template <bool AsRows>
class Splitter {
 public:
  Splitter(const Side& side, std::int64_t inner) : side_(side), inner_(inner) {}

  /// From here on: `tiles` tiles from `i` and `steps` steps from `step`, to parts `[tiles, steps, 3, tile]`.
  void begin(std::int64_t i, std::int64_t tiles, std::int64_t step, std::int64_t steps, std::uint16_t* to) {
    first_step_ = step, steps_ = steps, step_ = step, i_ = i, tiles_left_ = tiles * steps, to_ = to;
    if (tiles_left_ > 0) begin_tile();
  }
  std::int64_t rows_left() const { return tiles_left_ * kSide; }

  HFTA_TILES void advance(std::int64_t rows) {
    while (rows > 0 && tiles_left_ > 0) {
      const auto now = std::min(rows, kSide - row_);
      by_rows() ? split_rows(now) : split_pairs(now);
      row_ += now, rows -= now;
      if (row_ == kSide) end_tile();
    }
  }
  void finish() { advance(rows_left()); }

  /// Whether all numbers so far could be split.
  HFTA_TILES bool is_right() const { return _mm512_cmp_ps_mask(check_, check_, _CMP_UNORD_Q) == 0; }

 private:
  bool by_rows() const { return side_.inner == 1; }

  void begin_tile() {
    const auto k = step_ * kDepth;
    from_ = side_.data + i_ * side_.side + k * side_.inner;
    const auto wide = std::min(kSide, side_.size - i_);
    deep_ = std::min(kDepth, inner_ - k);
    filled_ = by_rows() ? wide : (deep_ + 1) / 2;
    low_ = first_of(by_rows() ? deep_ : wide), high_ = first_of(deep_ - 16);
    row_ = 0;
  }

  HFTA_TILES void end_tile() {
    if (by_rows() != AsRows) turn();
    to_ += kStep;
    if (++step_ == first_step_ + steps_) step_ = first_step_, i_ += kSide;
    if (--tiles_left_ > 0) begin_tile();
  }

  /// Rows of neighbours become rows of pairs, or the other way: a pair is one number of 32 bits.
  HFTA_TILES void turn() const {
    for (int p = 0; p < 3; ++p) {
      Wide<float>::Vector square[kSide];
      auto* const part = reinterpret_cast<float*>(to_ + p * kTile);
#pragma GCC unroll 16
      for (int r = 0; r < kSide; ++r) load<float>(square[r], part + r * kSide);
      turn_square<float>(square);
#pragma GCC unroll 16
      for (int r = 0; r < kSide; ++r) store<float>(part + r * kSide, square[r]);
    }
  }

  /// Where the next `count` rows of a tile go, and up to where numbers fill them.
  struct Rows {
    std::uint16_t *to, *filled, *end;
  };
  Rows rows(std::int64_t count) const {
    std::uint16_t *const to = to_ + row_ * kDepth, *const end = to + count * kDepth;
    return {to, std::clamp(to_ + filled_ * kDepth, to, end), end};
  }

  /// Rows of a tile from numbers that are neighbours along the inner axis.
  HFTA_TILES_INLINE void split_rows(std::int64_t count) {
    const auto stride = side_.side;
    const float* from = from_ + row_ * stride;
    auto [to, filled, end] = rows(count);
    const auto low = low_, high = high_;
    __m512 check = check_;
    for (; to < filled; from += stride, to += kDepth) {
      _mm_prefetch(reinterpret_cast<const char*>(from + 3 * kDepth), _MM_HINT_T0);
      _mm_prefetch(reinterpret_cast<const char*>(from + 3 * kDepth + 16), _MM_HINT_T0);
      put(split<false>(_mm512_maskz_loadu_ps(low, from), _mm512_maskz_loadu_ps(high, from + 16), check), to);
    }
    for (; to < end; to += kDepth) put({}, to);
    check_ = check;
  }

  /// Rows of pairs, each from two rows of neighbours along the side.
  HFTA_TILES_INLINE void split_pairs(std::int64_t count) {
    const auto inner = side_.inner;
    const float* from = from_ + 2 * row_ * inner;
    auto [to, filled, end] = rows(count);
    const auto* const paired = std::min(filled, to_ + deep_ / 2 * kDepth);
    const auto wide = low_;
    __m512 check = check_;
    for (; to < paired; from += 2 * inner, to += kDepth) put(split<true>(_mm512_maskz_loadu_ps(wide, from), _mm512_maskz_loadu_ps(wide, from + inner), check), to);
    for (; to < filled; to += kDepth) put(split<true>(_mm512_maskz_loadu_ps(wide, from), _mm512_setzero_ps(), check), to);
    for (; to < end; to += kDepth) put({}, to);
    check_ = check;
  }

  const Side& side_;
  std::int64_t inner_;
  std::int64_t first_step_ = 0, steps_ = 0, step_ = 0, i_ = 0, tiles_left_ = 0;
  std::uint16_t* to_ = nullptr;
  const float* from_ = nullptr;
  std::int64_t row_ = 0, filled_ = 0, deep_ = 0;
  __mmask16 low_ = 0, high_ = 0;
  __m512 check_{};
};

}  // namespace hfta::ops
