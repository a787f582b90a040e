#include "hfta/ops/split_product_kernel.h"

#if defined(__x86_64__) && defined(__linux__)

#include <ATen/Version.h>
#include <cpuid.h>
#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <string>

#include "hfta/ops/thread_room.h"
#include "hfta/ops/vector_square.h"

#define HFTA_TILES __attribute__((target("amx-tile,amx-bf16,avx512f,avx512bw,avx512dq,avx512vl")))
#define HFTA_TILES_INLINE HFTA_TILES inline __attribute__((always_inline))

namespace hfta::ops {
namespace {

constexpr std::int64_t kSide = 16;               ///< Rows or columns of a tile.
constexpr std::int64_t kDepth = 32;              ///< Of the inner axis, in a tile of bfloat16.
constexpr std::int64_t kTile = kSide * kDepth;   ///< Numbers of a tile.
constexpr std::int64_t kStep = 3 * kTile;        ///< A tile's parts, largest first.
constexpr std::int64_t kStretch = 4;             ///< Steps of the inner axis that are split at once: both tiles' parts stay in the first-level cache.
constexpr std::int64_t kRowBytes = 64;

std::int64_t steps_of(std::int64_t inner) { return (inner + kDepth - 1) / kDepth; }
std::int64_t tiles_of(std::int64_t side) { return (side + kSide - 1) / kSide; }

/// A factor as the unit sees it: `(i, k)`, where `k` is the inner axis, lies at `data[i * side + k * inner]`.
struct Side {
  const float* data;
  std::int64_t side, inner, size;
};

/// The factor whose `i` are the rows of the unit's result: its tiles hold rows of neighbours along the inner axis. The other's hold rows of
/// pairs of such neighbours.
Side rows_side(bool turned, const Matrix<float>& left, const Matrix<float>& right, const ProductShape& s) {
  return turned ? Side{right.data, right.column, right.row, s.columns} : Side{left.data, left.row, left.column, s.rows};
}
Side columns_side(bool turned, const Matrix<float>& left, const Matrix<float>& right, const ProductShape& s) {
  return turned ? Side{left.data, left.row, left.column, s.rows} : Side{right.data, right.column, right.row, s.columns};
}

struct Parts {
  __m512i part[3];
};

/// The high halves of both vectors' numbers: one vector's behind the other's, or in pairs.
template <bool InPairs>
HFTA_TILES_INLINE __m512i halves(__m512i low, __m512i high) {
  if constexpr (InPairs) return _mm512_mask_blend_epi16(0xAAAAAAAA, _mm512_srli_epi32(low, 16), high);
  const __m512i odd = _mm512_add_epi16(_mm512_set_epi16(62, 60, 58, 56, 54, 52, 50, 48, 46, 44, 42, 40, 38, 36, 34, 32, 30, 28, 26, 24, 22, 20, 18, 16, 14, 12, 10, 8, 6, 4, 2, 0),
                                       _mm512_set1_epi16(1));
  return _mm512_permutex2var_epi16(low, odd, high);
}

/// To the nearest bfloat16, which is the high half.
HFTA_TILES_INLINE __m512i rounded(__m512 x) { return _mm512_add_epi32(_mm512_castps_si512(x), _mm512_set1_epi32(0x8000)); }
HFTA_TILES_INLINE __m512 without(__m512 x, __m512i part) { return _mm512_sub_ps(x, _mm512_castsi512_ps(_mm512_and_si512(part, _mm512_set1_epi32(-0x10000)))); }

/// @param[in,out] check becomes no number where a part is none: what is infinite or no number leaves such a rest, and so does what is rounded to infinity.
template <bool InPairs>
HFTA_TILES_INLINE Parts split(__m512 low, __m512 high, __m512& check) {
  Parts parts;
  for (int p = 0; p < 2; ++p) {
    const __m512i of_low = rounded(low), of_high = rounded(high);
    parts.part[p] = halves<InPairs>(of_low, of_high);
    low = without(low, of_low), high = without(high, of_high);
  }
  parts.part[2] = halves<InPairs>(_mm512_castps_si512(low), _mm512_castps_si512(high));  // eight bits or less are left
  check = _mm512_add_ps(check, _mm512_add_ps(low, high));
  return parts;
}

inline __mmask16 first_of(std::int64_t count) { return static_cast<__mmask16>(count >= 16 ? 0xFFFF : (1U << std::max<std::int64_t>(count, 0)) - 1U); }

HFTA_TILES_INLINE void put(const Parts& parts, std::uint16_t* to) {
  for (int p = 0; p < 3; ++p) _mm512_store_si512(to + p * kTile, parts.part[p]);
}

/// Splits tiles of a factor, a few rows at a time: between what the unit is given to multiply, which takes it longer.
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

  /// Rows of a tile from numbers that are neighbours along the inner axis.
  HFTA_TILES_INLINE void split_rows(std::int64_t count) {
    const auto stride = side_.side;
    const float* from = from_ + row_ * stride;
    std::uint16_t* to = to_ + row_ * kDepth;
    const auto *const end = to + count * kDepth, *const filled = std::min<const std::uint16_t*>(end, to + std::max<std::int64_t>(filled_ - row_, 0) * kDepth);
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
    std::uint16_t* to = to_ + row_ * kDepth;
    const auto *const end = to + count * kDepth, *const filled = std::min<const std::uint16_t*>(end, to + std::max<std::int64_t>(filled_ - row_, 0) * kDepth);
    const auto *const paired = deep_ % 2 == 0 ? filled : std::min<const std::uint16_t*>(filled, to_ + deep_ / 2 * kDepth);
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

struct alignas(64) TileShapes {
  std::uint8_t palette = 1, start_row = 0, reserved[14] = {};
  std::uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  std::uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};

/// The unit's eight tiles, set up while this lives: sums 0 to 3, rows 4 and 5, columns 6 and 7.
class Tiles {
 public:
  HFTA_TILES Tiles() {
    static constexpr TileShapes kShapes;
    _tile_loadconfig(&kShapes);
  }
  HFTA_TILES ~Tiles() { _tile_release(); }
  Tiles(const Tiles&) = delete;
};

template <int R, int C>
HFTA_TILES_INLINE void no_sums() {
  _tile_zero(0);
  if constexpr (C > 1) _tile_zero(1);
  if constexpr (R > 1) _tile_zero(2);
  if constexpr (R > 1 && C > 1) _tile_zero(3);
}
template <int R, int C>
HFTA_TILES_INLINE void load_sums(const float* from) {
  _tile_loadd(0, from, kRowBytes);
  if constexpr (C > 1) _tile_loadd(1, from + 256, kRowBytes);
  if constexpr (R > 1) _tile_loadd(2, from + 512, kRowBytes);
  if constexpr (R > 1 && C > 1) _tile_loadd(3, from + 768, kRowBytes);
}
template <int R, int C>
HFTA_TILES_INLINE void store_sums(float* to) {
  _tile_stored(0, to, kRowBytes);
  if constexpr (C > 1) _tile_stored(1, to + 256, kRowBytes);
  if constexpr (R > 1) _tile_stored(2, to + 512, kRowBytes);
  if constexpr (R > 1 && C > 1) _tile_stored(3, to + 768, kRowBytes);
}
template <int R>
HFTA_TILES_INLINE void load_rows(const std::uint16_t* from, std::int64_t tile) {
  _tile_loadd(4, from, kRowBytes);
  if constexpr (R > 1) _tile_loadd(5, from + tile, kRowBytes);
}
template <int C>
HFTA_TILES_INLINE void load_columns(const std::uint16_t* from, std::int64_t tile) {
  _tile_loadd(6, from, kRowBytes);
  if constexpr (C > 1) _tile_loadd(7, from + tile, kRowBytes);
}
template <int R, int C>
HFTA_TILES_INLINE void add_products() {
  _tile_dpbf16ps(0, 4, 6);
  if constexpr (C > 1) _tile_dpbf16ps(1, 4, 7);
  if constexpr (R > 1) _tile_dpbf16ps(2, 5, 6);
  if constexpr (R > 1 && C > 1) _tile_dpbf16ps(3, 5, 7);
}

/// Parts `[tiles, steps, 3, tile]`.
struct Packed {
  const std::uint16_t* parts;
  std::int64_t steps;
  const std::uint16_t* of(std::int64_t tile, std::int64_t step) const { return parts + (tile * steps + step) * kStep; }
  std::int64_t tile() const { return steps * kStep; }
};

constexpr std::int64_t kPauses = 6;  ///< Of one step, in each of which something else may be done.

/// Adds the products of one step: of parts whose numbers do not add to more than two, in an order that changes one factor at a time.
template <int R, int C, typename Pause>
HFTA_TILES_INLINE void add_step(const std::uint16_t* rows, std::int64_t rows_tile, const std::uint16_t* columns, std::int64_t columns_tile, const Pause& pause) {
  load_rows<R>(rows, rows_tile), load_columns<C>(columns + 2 * kTile, columns_tile), add_products<R, C>(), pause();
  load_columns<C>(columns + kTile, columns_tile), add_products<R, C>(), pause();
  load_rows<R>(rows + kTile, rows_tile), add_products<R, C>(), pause();
  load_columns<C>(columns, columns_tile), add_products<R, C>(), pause();
  load_rows<R>(rows + 2 * kTile, rows_tile), add_products<R, C>(), pause();
  load_rows<R>(rows, rows_tile), add_products<R, C>(), pause();
}

/// Where the sums go.
struct Result {
  const Ends<float>& ends;
  float* out;
  const ProductShape& shape;
  bool turned;
};

/// A tile of sums, `[rows, columns]` of the unit, to where it belongs.
HFTA_TILES_INLINE void finish_tile(float* sums, std::int64_t row, std::int64_t column, const Result& to) {
  Wide<float>::Vector square[kSide];
#pragma GCC unroll 16
  for (int r = 0; r < kSide; ++r) load<float>(square[r], sums + r * kSide);
  if (to.turned) turn_square<float>(square), std::swap(row, column);
  const auto high = std::min(kSide, to.shape.rows - row);
  const __mmask16 wide = first_of(to.shape.columns - column);
  const __m512 bias = to.ends.bias ? _mm512_maskz_loadu_ps(wide, to.ends.bias + column) : _mm512_setzero_ps();
  const auto place = row * to.shape.columns + column;
#pragma GCC unroll 16
  for (int r = 0; r < kSide; ++r) {
    if (r >= high) break;
    __m512 value = _mm512_add_ps(reinterpret_cast<const __m512&>(square[r]), bias);
    if (to.ends.relu) value = _mm512_mask_mov_ps(value, _mm512_cmp_ps_mask(value, _mm512_setzero_ps(), _CMP_LT_OQ), _mm512_setzero_ps());  // NaN stays
    if (to.ends.gate) {
      const __m512 gate = _mm512_maskz_loadu_ps(wide, to.ends.gate + place + r * to.shape.columns);
      value = _mm512_mask_mov_ps(value, _mm512_cmp_ps_mask(gate, _mm512_setzero_ps(), _CMP_LE_OQ), _mm512_setzero_ps());
    }
    _mm512_mask_storeu_ps(to.out + place + r * to.shape.columns, wide, value);
  }
}

template <int R, int C>
HFTA_TILES_INLINE void finish(float* sums, std::int64_t row, std::int64_t column, const Result& to) {
  const bool plain = !to.turned && !to.ends.bias && !to.ends.relu && !to.ends.gate;
  if (plain && row + R * kSide <= to.shape.rows && column + C * kSide <= to.shape.columns) {
    const auto line = to.shape.columns;
    float* const out = to.out + row * line + column;
    _tile_stored(0, out, line * 4);
    if constexpr (C > 1) _tile_stored(1, out + kSide, line * 4);
    if constexpr (R > 1) _tile_stored(2, out + kSide * line, line * 4);
    if constexpr (R > 1 && C > 1) _tile_stored(3, out + kSide * line + kSide, line * 4);
    return;
  }
  store_sums<R, C>(sums);
  for (int r = 0; r < R; ++r)
    for (int c = 0; c < C; ++c) finish_tile(sums + (2 * r + c) * 256, row + r * kSide, column + c * kSide, to);
}

/// One factor's tiles, two at a time and split as they are used, times all tiles of the kept one.
template <bool StreamsRows>
class Multiplication {
 public:
  Multiplication(const Side& streamed, const Packed& kept, std::int64_t kept_tiles, std::int64_t inner, const Result& to)
      : streamed_(streamed), kept_(kept), kept_tiles_(kept_tiles), to_(to), splitter_(streamed, inner), stretch_(kept_tiles <= 2 ? 1 : kStretch),
        parts_(thread_room<std::uint16_t, Room::Pieces>(2 * stretch_ * 2 * kStep)), sums_(thread_room<float, Room::Sums>((kept_tiles + 1) / 2 * 4 * kSide * kSide)) {}

  HFTA_TILES bool run() {
    const Tiles tiles;
    begin_split(0, 0, parts_);
    splitter_.finish();
    for (std::int64_t i = 0; i < streamed_.size; i += 2 * kSide)
      for (std::int64_t step = 0; step < kept_.steps; step += stretch_) {
        if (!splitter_.is_right()) return false;
        const bool ends = step + stretch_ >= kept_.steps;
        auto* const next = parts_ + (which_ ? 0 : 2 * stretch_ * kStep);
        ends ? begin_split(i + 2 * kSide, 0, next) : begin_split(i, step + stretch_, next);
        tiles_at(i) == 2 ? multiply<2>(i, step) : multiply<1>(i, step);
        splitter_.finish();
        which_ = !which_;
      }
    return true;
  }

 private:
  std::int64_t tiles_at(std::int64_t i) const { return std::clamp<std::int64_t>(tiles_of(streamed_.size - i), 0, 2); }
  std::int64_t steps_at(std::int64_t step) const { return std::min(stretch_, kept_.steps - step); }

  HFTA_TILES void begin_split(std::int64_t i, std::int64_t step, std::uint16_t* to) { splitter_.begin(i, i < streamed_.size ? tiles_at(i) : 0, step, steps_at(step), to); }

  template <int Streamed>
  HFTA_TILES void multiply(std::int64_t i, std::int64_t step) {
    const auto pauses = (kept_tiles_ + 1) / 2 * steps_at(step) * kPauses;
    rows_a_pause_ = (splitter_.rows_left() + pauses - 1) / pauses;
    std::int64_t tile = 0;
    for (; tile + 2 <= kept_tiles_; tile += 2) multiply_tiles<Streamed, 2>(i, step, tile);
    if (tile < kept_tiles_) multiply_tiles<Streamed, 1>(i, step, tile);
  }

  template <int Streamed, int Kept>
  HFTA_TILES_INLINE void multiply_tiles(std::int64_t i, std::int64_t first, std::int64_t tile) {
    constexpr int R = StreamsRows ? Streamed : Kept, C = StreamsRows ? Kept : Streamed;
    const bool stays = kept_tiles_ <= 2;  // the sums need not leave the unit
    float* const own = sums_ + tile / 2 * 4 * kSide * kSide;
    if (first == 0) no_sums<R, C>();
    else if (!stays) load_sums<R, C>(own);
    const auto steps = steps_at(first);
    const Packed now{parts_ + (which_ ? 2 * stretch_ * kStep : 0), steps};
    const auto pause = [&]() __attribute__((always_inline)) HFTA_TILES { splitter_.advance(rows_a_pause_); };
    for (std::int64_t step = 0; step < steps; ++step) {
      const auto *const streamed = now.of(0, step), *const kept = kept_.of(tile, first + step);
      StreamsRows ? add_step<R, C>(streamed, now.tile(), kept, kept_.tile(), pause) : add_step<R, C>(kept, kept_.tile(), streamed, now.tile(), pause);
    }
    if (first + steps == kept_.steps) finish<R, C>(own, StreamsRows ? i : tile * kSide, StreamsRows ? tile * kSide : i, to_);
    else if (!stays) store_sums<R, C>(own);
  }

  const Side& streamed_;
  const Packed& kept_;
  std::int64_t kept_tiles_;
  const Result& to_;
  Splitter<StreamsRows> splitter_;
  std::int64_t stretch_;
  std::uint16_t* parts_;
  float* sums_;
  bool which_ = false;
  std::int64_t rows_a_pause_ = 0;
};

template <bool AsRows>
bool split_all(const Side& side, std::int64_t inner, std::uint16_t* parts) {
  Splitter<AsRows> splitter(side, inner);
  splitter.begin(0, tiles_of(side.size), 0, steps_of(inner), parts);
  splitter.finish();
  return splitter.is_right();
}

bool has_unit() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  constexpr unsigned kBfloat16 = 1U << 22, kTiles = 1U << 24;
  if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || !(d & kBfloat16) || !(d & kTiles)) return false;
  constexpr long kAskForState = 0x1023, kTileData = 18;  // arch_prctl(ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA)
  return at::get_cpu_capability() == "AVX512" && syscall(SYS_arch_prctl, kAskForState, kTileData) == 0;
}

}  // namespace

bool has_split_products() {
  static const bool has = has_unit();
  return has;
}

SplitWay split_way(const Matrix<float>& left, bool shared_left, const Matrix<float>& right, bool shared_right, const ProductShape& s) {
  const auto of_left = s.rows * s.inner, of_right = s.inner * s.columns;
  const auto turns = [](bool turns_it, bool shared, std::int64_t numbers) { return turns_it && !shared ? numbers : 0; };
  const auto straight = turns(left.column != 1, shared_left, of_left) + turns(right.column != 1, shared_right, of_right);
  const auto turned = turns(right.row != 1, shared_right, of_right) + turns(left.row != 1, shared_left, of_left) + s.rows * s.columns;
  const bool keeps_left = shared_left != shared_right ? shared_left : of_left < of_right;
  return {turned < straight, keeps_left};
}

std::int64_t kept_parts(SplitWay way, const ProductShape& s) { return tiles_of(way.keeps_left ? s.rows : s.columns) * steps_of(s.inner) * kStep; }

bool split_kept(SplitWay way, const Matrix<float>& left, const Matrix<float>& right, const ProductShape& s, std::uint16_t* parts) {
  const bool as_rows = way.keeps_left != way.turned;
  const auto side = as_rows ? rows_side(way.turned, left, right, s) : columns_side(way.turned, left, right, s);
  return as_rows ? split_all<true>(side, s.inner, parts) : split_all<false>(side, s.inner, parts);
}

bool split_product(SplitWay way, const Matrix<float>& left, const Matrix<float>& right, const std::uint16_t* parts, const Ends<float>& ends, float* out, const ProductShape& s) {
  const Packed kept{parts, steps_of(s.inner)};
  const Result to{ends, out, s, way.turned};
  const auto kept_tiles = tiles_of(way.keeps_left ? s.rows : s.columns);
  if (way.keeps_left != way.turned) return Multiplication<false>(columns_side(way.turned, left, right, s), kept, kept_tiles, s.inner, to).run();
  return Multiplication<true>(rows_side(way.turned, left, right, s), kept, kept_tiles, s.inner, to).run();
}

}  // namespace hfta::ops

#else

namespace hfta::ops {
bool has_split_products() { return false; }
SplitWay split_way(const Matrix<float>&, bool, const Matrix<float>&, bool, const ProductShape&) { return {}; }
std::int64_t kept_parts(SplitWay, const ProductShape&) { return 0; }
bool split_kept(SplitWay, const Matrix<float>&, const Matrix<float>&, const ProductShape&, std::uint16_t*) { return false; }
bool split_product(SplitWay, const Matrix<float>&, const Matrix<float>&, const std::uint16_t*, const Ends<float>&, float*, const ProductShape&) { return false; }
}  // namespace hfta::ops

#endif
