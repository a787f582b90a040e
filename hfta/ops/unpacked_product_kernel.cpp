#include "hfta/ops/unpacked_product_kernel.h"

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "hfta/ops/thread_room.h"
#include "hfta/ops/vector_square.h"

// Each tile of the result stays in registers while a stretch of the inner axis passes: one factor is read as vectors along the result's
// rows, the other number by number. With a transposed right factor (a layer's weight) the vectors lie along the batch, and the result is
// turned when it is stored.

namespace hfta::ops {
namespace {

template <typename T>
using Vector = typename Wide<T>::Vector;
template <typename T>
constexpr std::int64_t kNumbers = Wide<T>::kSize;

constexpr int kRows = 8;               ///< Of a tile.
constexpr int kVectors = 3;            ///< Of a tile's row, at most: 24 sums and what they are made of fill the registers.
constexpr std::int64_t kStretch = 128;  ///< Of the inner axis, summed by itself: what a tile reads fits the first-level cache, and roundings do not pile up.

/// What is done with a tile's sums: added to what is there or not, then zero where they or the gate (laid out as the result) are not positive.
template <typename T>
struct Store {
  bool adds;
  bool relu = false;
  const T* gate = nullptr;
};

template <typename T>
HFTA_INLINE void put(Vector<T>& sums, T* to, const T* gate, const Store<T>& how) {
  if (how.adds) {
    Vector<T> before;
    load(before, to);
    sums += before;
  }
  if (how.relu) sums = sums < T(0) ? Vector<T>{} : sums;  // NaN stays
  if (gate) {
    Vector<T> open;
    load(open, gate);
    sums = open <= T(0) ? Vector<T>{} : sums;
  }
  store(to, sums);
}

/// `out[R, V vectors] (+)= left[R, inner] @ right[inner, V vectors]`.
template <typename T, int R, int V>
HFTA_INLINE void tile(const Matrix<T>& left, const T* right, std::int64_t right_row, T* out, std::int64_t out_row, std::int64_t inner, const Store<T>& how) {
  Vector<T> sums[R][V];
  for (int r = 0; r < R; ++r)
    for (int v = 0; v < V; ++v) sums[r][v] = Vector<T>{};
  const auto add = [&](std::int64_t k) __attribute__((always_inline)) {
    Vector<T> values[V];
    for (int v = 0; v < V; ++v) load(values[v], right + k * right_row + v * kNumbers<T>);
    const T *const low = left.data + k * left.column, *const high = low + 4 * left.row;  // two addresses reach eight rows: more would not fit the registers
    for (int r = 0; r < R; ++r) {
      const T factor = (r < 4 ? low : high)[r % 4 * left.row];
      for (int v = 0; v < V; ++v) sums[r][v] += factor * values[v];
    }
  };
  std::int64_t k = 0;
  while (left.column == 1 && k + kNumbers<T> <= inner) {  // a line of each row: the next tile's are fetched meanwhile
    for (int r = 0; r < R; ++r) __builtin_prefetch(left.data + (r + R) * left.row + k);
#pragma GCC unroll 1
    for (const auto end = k + kNumbers<T>; k < end; ++k) add(k);
  }
  for (; k < inner; ++k) add(k);
  for (int r = 0; r < R; ++r)
    for (int v = 0; v < V; ++v) {
      const auto place = r * out_row + v * kNumbers<T>;
      put<T>(sums[r][v], out + place, how.gate ? how.gate + place : nullptr, how);
    }
}

template <typename T, int V>
HFTA_INLINE void rows_of_tiles(Matrix<T> left, const T* right, std::int64_t right_row, T* out, std::int64_t out_row, std::int64_t rows, std::int64_t inner, Store<T> how) {
  const auto next = [&](int done) __attribute__((always_inline)) {
    left.data += done * left.row, out += done * out_row, rows -= done;
    if (how.gate) how.gate += done * out_row;
  };
  while (rows >= kRows) tile<T, kRows, V>(left, right, right_row, out, out_row, inner, how), next(kRows);
  if (rows >= 4) tile<T, 4, V>(left, right, right_row, out, out_row, inner, how), next(4);
  if (rows >= 2) tile<T, 2, V>(left, right, right_row, out, out_row, inner, how), next(2);
  if (rows >= 1) tile<T, 1, V>(left, right, right_row, out, out_row, inner, how);
}

/// As above for any number of vectors: `columns` is a multiple of a vector's numbers. The sums are done with where the inner axis ends.
template <typename T>
HFTA_INLINE void multiply(const Matrix<T>& left, const T* right, std::int64_t right_row, T* out, std::int64_t out_row, const ProductShape& s, const Store<T>& last) {
  for (std::int64_t k = 0; k < s.inner || (k == 0 && !last.adds); k += kStretch) {
    const Matrix<T> part{left.data + k * left.column, left.row, left.column};
    const auto inner = std::min(kStretch, s.inner - k);
    const T* from = right + k * right_row;
    const bool adds = last.adds || k > 0, ends = k + kStretch >= s.inner;
    const auto columns_of = [&](auto vectors, std::int64_t column) __attribute__((always_inline)) {
      const Store<T> how{adds, ends && last.relu, ends && last.gate ? last.gate + column : nullptr};
      rows_of_tiles<T, decltype(vectors)::value>(part, from + column, right_row, out + column, out_row, s.rows, inner, how);
    };
    std::int64_t column = 0;
    for (; column + 4 * kNumbers<T> < s.columns || column + kVectors * kNumbers<T> == s.columns; column += kVectors * kNumbers<T>)
      columns_of(std::integral_constant<int, kVectors>(), column);
    for (; column + 2 * kNumbers<T> <= s.columns; column += 2 * kNumbers<T>) columns_of(std::integral_constant<int, 2>(), column);
    for (; column < s.columns; column += kNumbers<T>) columns_of(std::integral_constant<int, 1>(), column);
  }
}

/// The first `count` numbers of a row, zeros behind them. Whole vectors are read up to `end`, where the memory ends.
template <typename T>
HFTA_INLINE void load_part(Vector<T>& to, const T* from, std::int64_t count, const T* end) {
  if (from + kNumbers<T> <= end) {
    load(to, from);
    Vector<T> place;
    for (int i = 0; i < kNumbers<T>; ++i) place[i] = static_cast<T>(i);
    to = place < static_cast<T>(count) ? to : Vector<T>{};
  } else {
    to = Vector<T>{};
    std::memcpy(&to, from, static_cast<std::size_t>(count) * sizeof(T));
  }
}

/// `to[j, i] = from[i, j]` for `rows` x `columns`.
/// @tparam Pads rows of `to` are filled up with zeros to full vectors.
template <bool Pads, typename T>
HFTA_INLINE void turn(const T* from, std::int64_t from_row, T* to, std::int64_t to_row, std::int64_t rows, std::int64_t columns) {
  constexpr std::int64_t N = kNumbers<T>;
  const T* const end = from + (rows - 1) * from_row + columns;
  for (std::int64_t i = 0; i < rows; i += N)
    for (std::int64_t j = 0; j < columns; j += N) {
      Vector<T> square[N];
      const auto high = std::min(N, rows - i), wide = std::min(N, columns - j);
      if (high == N && wide == N) {
#pragma GCC unroll 16
        for (std::int64_t r = 0; r < N; ++r) load(square[r], from + (i + r) * from_row + j);
        turn_square<T>(square);
#pragma GCC unroll 16
        for (std::int64_t c = 0; c < N; ++c) store(to + (j + c) * to_row + i, square[c]);
        continue;
      }
      for (std::int64_t r = 0; r < N; ++r) {
        square[r] = Vector<T>{};
        if (r < high) load_part<T>(square[r], from + (i + r) * from_row + j, wide, end);
      }
      turn_square<T>(square);
      for (std::int64_t c = 0; c < wide; ++c) std::memcpy(to + (j + c) * to_row + i, &square[c], static_cast<std::size_t>(Pads ? N : high) * sizeof(T));
    }
}

template <typename T>
HFTA_INLINE void turn_factor(const Matrix<T>& left, const ProductShape& s, T* turned) {
  const auto padded = rounded_up(s.rows, kNumbers<T>);
  if (left.column == 1) return turn<true>(left.data, left.row, turned, padded, s.rows, s.inner);
  for (std::int64_t k = 0; k < s.inner; ++k) {
    for (std::int64_t r = 0; r < s.rows; ++r) turned[k * padded + r] = left.data[r * left.row + k * left.column];
    std::fill(turned + k * padded + s.rows, turned + (k + 1) * padded, T(0));
  }
}

/// Columns that fill no vector: all goes through padded copies.
template <typename T>
HFTA_INLINE void by_few_columns(const Matrix<T>& left, const Matrix<T>& right, const Ends<T>& ends, T* out, std::int64_t out_row, const ProductShape& s) {
  constexpr std::int64_t N = kNumbers<T>;
  T* const factor = thread_room<T, Room::Columns>((s.inner + 2 * s.rows) * N);
  T *const sums = factor + s.inner * N, *const gate = sums + s.rows * N;
  const auto pad = [&](const T* from, const T* end, T* to) __attribute__((always_inline)) {
    Vector<T> row;
    load_part<T>(row, from, s.columns, end);
    store(to, row);
  };
  if (right.column == 1)
    for (std::int64_t k = 0; k < s.inner; ++k) pad(right.data + k * right.row, right.data + (s.inner - 1) * right.row + s.columns, factor + k * N);
  else
    turn<true>(right.data, right.column, factor, N, s.columns, s.inner);
  for (std::int64_t r = 0; ends.bias && r < s.rows; ++r) pad(ends.bias, ends.bias + s.columns, sums + r * N);
  for (std::int64_t r = 0; ends.gate && r < s.rows; ++r) pad(ends.gate + r * out_row, ends.gate + (s.rows - 1) * out_row + s.columns, gate + r * N);
  multiply<T>(left, factor, N, sums, N, {s.rows, s.inner, N}, {ends.bias != nullptr, ends.relu, ends.gate ? gate : nullptr});
  std::int64_t r = 0;
  // Where rows are no longer than this, what a whole vector writes behind one is the next one's beginning, written after it.
  for (; out_row == s.columns && (s.rows - r) * out_row >= N; ++r) std::memcpy(out + r * out_row, sums + r * N, N * sizeof(T));
  for (; r < s.rows; ++r) std::memcpy(out + r * out_row, sums + r * N, static_cast<std::size_t>(s.columns) * sizeof(T));
}

/// The right factor is a matrix: vectors along its rows.
template <typename T>
HFTA_INLINE void by_columns(const Matrix<T>& left, const Matrix<T>& right, const Ends<T>& ends, T* out, const ProductShape& s) {
  const auto whole = s.columns / kNumbers<T> * kNumbers<T>, rest = s.columns - whole;
  const auto after = [&](const T* data) __attribute__((always_inline)) { return data ? data + whole : nullptr; };
  for (std::int64_t r = 0; ends.bias && r < s.rows; ++r) std::copy(ends.bias, ends.bias + whole, out + r * s.columns);
  if (whole > 0) multiply<T>(left, right.data, right.row, out, s.columns, {s.rows, s.inner, whole}, {ends.bias != nullptr, ends.relu, ends.gate});
  if (rest > 0) by_few_columns<T>(left, {right.data + whole * right.column, right.row, right.column}, {after(ends.bias), after(ends.gate), ends.relu}, out + whole, s.columns, {s.rows, s.inner, rest});
}

/// The right factor is a transposed matrix: the result is computed transposed, vectors along the left factor's rows.
template <typename T>
HFTA_INLINE void by_rows(const Matrix<T>& right, const T* turned, const Ends<T>& ends, T* out, const ProductShape& s) {
  const auto padded = rounded_up(s.rows, kNumbers<T>);
  T* const sums = thread_room<T, Room::Sums>(s.columns * padded);
  for (std::int64_t c = 0; ends.bias && c < s.columns; ++c) std::fill(sums + c * padded, sums + (c + 1) * padded, ends.bias[c]);
  multiply<T>({right.data, right.column, 1}, turned, padded, sums, padded, {s.columns, s.inner, padded}, {ends.bias != nullptr, ends.relu});
  turn<false>(sums, padded, out, s.columns, s.columns, s.rows);
  for (std::int64_t i = 0; ends.gate && i < s.rows * s.columns; ++i) out[i] = ends.gate[i] <= T(0) ? T(0) : out[i];
}

template <typename T>
HFTA_INLINE void run(const Matrix<T>& left, const Matrix<T>& right, const T* turned, const Ends<T>& ends, T* out, const ProductShape& s) {
  right.row == 1 && turned ? by_rows(right, turned, ends, out, s) : by_columns(left, right, ends, out, s);
}

}  // namespace

bool wants_turned_left(const Matrix<float>& right, const ProductShape& shape) { return right.column != 1 && shape.columns >= kNumbers<float>; }
bool wants_turned_left(const Matrix<double>& right, const ProductShape& shape) { return right.column != 1 && shape.columns >= kNumbers<double>; }

std::int64_t padded_rows(std::int64_t rows, const float*) { return rounded_up(rows, kNumbers<float>); }
std::int64_t padded_rows(std::int64_t rows, const double*) { return rounded_up(rows, kNumbers<double>); }

HFTA_VECTOR_TARGETS
void turn_left(const Matrix<float>& left, const ProductShape& shape, float* turned) { turn_factor(left, shape, turned); }

HFTA_VECTOR_TARGETS
void turn_left(const Matrix<double>& left, const ProductShape& shape, double* turned) { turn_factor(left, shape, turned); }

HFTA_VECTOR_TARGETS
void unpacked_product(const Matrix<float>& left, const Matrix<float>& right, const float* turned, const Ends<float>& ends, float* out, const ProductShape& shape) {
  run(left, right, turned, ends, out, shape);
}

HFTA_VECTOR_TARGETS
void unpacked_product(const Matrix<double>& left, const Matrix<double>& right, const double* turned, const Ends<double>& ends, double* out, const ProductShape& shape) {
  run(left, right, turned, ends, out, shape);
}

}  // namespace hfta::ops
