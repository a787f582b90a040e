#pragma once

#include <cstdint>

#include "hfta/ops/thread_room.h"

namespace hfta::ops {

/// A matrix in memory: element `(i, j)` lies at `data[i * row + j * column]`.
template <typename T>
struct Matrix {
  const T* data;
  std::int64_t row, column;
};

/// `rows` x `inner` times `inner` x `columns`.
struct ProductShape {
  std::int64_t rows, inner, columns;
};

/// Where the right factor is a transposed matrix (`right.row == 1`) of some columns, `unpacked_product` reads the left one turned: `[inner, rows]`,
/// rows padded with zeros to `padded_rows`.
/// @{
bool wants_turned_left(const Matrix<float>& right, const ProductShape& shape);
bool wants_turned_left(const Matrix<double>& right, const ProductShape& shape);
std::int64_t padded_rows(std::int64_t rows, const float*);
std::int64_t padded_rows(std::int64_t rows, const double*);
void turn_left(const Matrix<float>& left, const ProductShape& shape, float* turned);
void turn_left(const Matrix<double>& left, const ProductShape& shape, double* turned);
/// @}

/// The left factor turned into the thread's room for it; null where it is not wanted.
template <typename T>
const T* turned_in_room(const Matrix<T>& left, const Matrix<T>& right, const ProductShape& shape) {
  if (!wants_turned_left(right, shape)) return nullptr;
  T* const turned = thread_room<T, Room::TurnedFactor>(shape.inner * padded_rows(shape.rows, static_cast<const T*>(nullptr)));
  turn_left(left, shape, turned);
  return turned;
}

/// What a product's sums begin with and what becomes of them.
template <typename T>
struct Ends {
  const T* bias = nullptr;  ///< `[columns]`, added.
  const T* gate = nullptr;  ///< `[rows, columns]`, contiguous: sums become zero where it is not positive.
  bool relu = false;        ///< Negative sums become zero.
};

/// `out[rows, columns] = left @ right`, contiguous, without rearranging the larger factor first as products for large
/// matrices do: faster where there are few rows (a batch) for each weight.
/// @param right one of its strides is 1.  @param turned the left factor turned, where it is wanted; else unused.
/// @{
void unpacked_product(const Matrix<float>& left, const Matrix<float>& right, const float* turned, const Ends<float>& ends, float* out, const ProductShape& shape);
void unpacked_product(const Matrix<double>& left, const Matrix<double>& right, const double* turned, const Ends<double>& ends, double* out, const ProductShape& shape);
/// @}

}  // namespace hfta::ops
