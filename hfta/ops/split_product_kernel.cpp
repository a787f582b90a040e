#include "hfta/ops/split_product_kernel.h"

#if defined(__x86_64__) && defined(__linux__)

#include <ATen/Version.h>
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <string>

#include "hfta/ops/float_splitter.h"
#include "hfta/ops/thread_room.h"

namespace hfta::ops {
namespace {

constexpr std::int64_t kStretch = 4;  ///< Steps of the inner axis that are split at once: both tiles' parts stay in the first-level cache.
constexpr std::int64_t kRowBytes = 64;
constexpr std::int64_t kSums = kSide * kSide;  ///< Of a tile.

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
  if constexpr (C > 1) _tile_loadd(1, from + kSums, kRowBytes);
  if constexpr (R > 1) _tile_loadd(2, from + 2 * kSums, kRowBytes);
  if constexpr (R > 1 && C > 1) _tile_loadd(3, from + 3 * kSums, kRowBytes);
}
/// @param row numbers from a row to the next.  @param right, below numbers from a tile to its neighbours.
template <int R, int C>
HFTA_TILES_INLINE void store_sums(float* to, std::int64_t row = kSide, std::int64_t right = kSums, std::int64_t below = 2 * kSums) {
  const auto bytes = row * static_cast<std::int64_t>(sizeof(float));
  _tile_stored(0, to, bytes);
  if constexpr (C > 1) _tile_stored(1, to + right, bytes);
  if constexpr (R > 1) _tile_stored(2, to + below, bytes);
  if constexpr (R > 1 && C > 1) _tile_stored(3, to + below + right, bytes);
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
  const auto line = to.shape.columns;
  if (plain && row + R * kSide <= to.shape.rows && column + C * kSide <= line) return store_sums<R, C>(to.out + row * line + column, line, kSide, kSide * line);
  store_sums<R, C>(sums);
  for (int r = 0; r < R; ++r)
    for (int c = 0; c < C; ++c) finish_tile(sums + (2 * r + c) * kSums, row + r * kSide, column + c * kSide, to);
}

/// One factor's tiles, two at a time and split as they are used, times all tiles of the kept one.
template <bool StreamsRows>
class Multiplication {
 public:
  Multiplication(const Side& streamed, const Packed& kept, std::int64_t kept_tiles, std::int64_t inner, const Result& to)
      : streamed_(streamed), kept_(kept), kept_tiles_(kept_tiles), to_(to), splitter_(streamed, inner), stretch_(kept_tiles <= 2 ? 1 : kStretch),
        piece_(2 * stretch_ * kStep), parts_(thread_room<std::uint16_t, Room::Pieces>(2 * piece_)), sums_(thread_room<float, Room::Sums>((kept_tiles + 1) / 2 * 4 * kSums)) {}

  HFTA_TILES bool run() {
    const Tiles tiles;
    begin_split(0, 0, parts_);
    splitter_.finish();
    for (std::int64_t i = 0; i < streamed_.size; i += 2 * kSide)
      for (std::int64_t step = 0; step < kept_.steps; step += stretch_) {
        if (!splitter_.is_right()) return false;
        const bool ends = step + stretch_ >= kept_.steps;
        auto* const next = parts_ + (which_ ? 0 : piece_);
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
    float* const own = sums_ + tile / 2 * 4 * kSums;
    if (first == 0) no_sums<R, C>();
    else if (!stays) load_sums<R, C>(own);
    const auto steps = steps_at(first);
    const Packed now{parts_ + (which_ ? piece_ : 0), steps};
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
  std::int64_t stretch_, piece_;  ///< Steps that are split at once, and the numbers of two tiles' parts for them.
  std::uint16_t* parts_;          ///< Two pieces: one is multiplied while the other is split.
  float* sums_;
  bool which_ = false;            ///< Whether the second one is multiplied.
  std::int64_t rows_a_pause_ = 0;
};

template <bool AsRows>
bool split_all(const Side& side, std::int64_t inner, std::uint16_t* parts) {
  Splitter<AsRows> splitter(side, inner);
  splitter.begin(0, tiles_of(side.size), 0, steps_of(inner), parts);
  splitter.finish();
  return splitter.is_right();
}

Side side_of_left(const Matrix<float>& left, const ProductShape& s) { return {left.data, left.row, left.column, s.rows}; }
Side side_of_right(const Matrix<float>& right, const ProductShape& s) { return {right.data, right.column, right.row, s.columns}; }

/// Whether the kept factor's `i` are the rows of the unit's result: the left factor's are, where that is not turned.
bool keeps_rows(SplitWay way) { return way.keeps_left != way.turned; }

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
  const auto kept = way.keeps_left ? side_of_left(left, s) : side_of_right(right, s);
  return keeps_rows(way) ? split_all<true>(kept, s.inner, parts) : split_all<false>(kept, s.inner, parts);
}

bool split_product(SplitWay way, const Matrix<float>& left, const Matrix<float>& right, const std::uint16_t* parts, const Ends<float>& ends, float* out, const ProductShape& s) {
  const Packed kept{parts, steps_of(s.inner)};
  const Result to{ends, out, s, way.turned};
  const auto streamed = way.keeps_left ? side_of_right(right, s) : side_of_left(left, s);
  const auto kept_tiles = tiles_of(way.keeps_left ? s.rows : s.columns);
  return keeps_rows(way) ? Multiplication<false>(streamed, kept, kept_tiles, s.inner, to).run() : Multiplication<true>(streamed, kept, kept_tiles, s.inner, to).run();
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
