#include "hfta/ops/rectified_pool_kernel.h"

#include <algorithm>

#include "hfta/ops/rectified_window.h"

// Vectors of 32 bytes along a row of outputs: comparisons of wider ones are taken apart by g++. A row's last vector may reach into the next row,
// which is written after it; at the end of what a call may touch it is cut short.

namespace hfta::ops {
namespace {

template <typename T>
struct Lanes;
template <>
struct Lanes<float> {
  typedef float Values __attribute__((vector_size(32)));
  typedef std::int32_t Places __attribute__((vector_size(32)));
  typedef std::uint8_t Bytes __attribute__((vector_size(8)));
  static constexpr int kSize = 8;
  HFTA_INLINE static void even(Values& out, const Values& a, const Values& b) { out = __builtin_shufflevector(a, b, 0, 2, 4, 6, 8, 10, 12, 14); }
  HFTA_INLINE static void odd(Values& out, const Values& a, const Values& b) { out = __builtin_shufflevector(a, b, 1, 3, 5, 7, 9, 11, 13, 15); }
  HFTA_INLINE static void low(Values& out, const Values& a, const Values& b) { out = __builtin_shufflevector(a, b, 0, 8, 1, 9, 2, 10, 3, 11); }
  HFTA_INLINE static void high(Values& out, const Values& a, const Values& b) { out = __builtin_shufflevector(a, b, 4, 12, 5, 13, 6, 14, 7, 15); }
};
template <>
struct Lanes<double> {
  typedef double Values __attribute__((vector_size(32)));
  typedef std::int64_t Places __attribute__((vector_size(32)));
  typedef std::uint8_t Bytes __attribute__((vector_size(4)));
  static constexpr int kSize = 4;
  HFTA_INLINE static void even(Values& out, const Values& a, const Values& b) { out = __builtin_shufflevector(a, b, 0, 2, 4, 6); }
  HFTA_INLINE static void odd(Values& out, const Values& a, const Values& b) { out = __builtin_shufflevector(a, b, 1, 3, 5, 7); }
  HFTA_INLINE static void low(Values& out, const Values& a, const Values& b) { out = __builtin_shufflevector(a, b, 0, 4, 1, 5); }
  HFTA_INLINE static void high(Values& out, const Values& a, const Values& b) { out = __builtin_shufflevector(a, b, 2, 6, 3, 7); }
};

/// The numbers of two rows that a vector of outputs comes from.
template <typename T>
HFTA_INLINE void load_windows(typename Lanes<T>::Values (&numbers)[4], const T* upper, const T* lower) {
  constexpr int kSize = Lanes<T>::kSize;
  typename Lanes<T>::Values a, b;
  for (int row = 0; row < 2; ++row) {
    const T* from = row == 0 ? upper : lower;
    std::memcpy(&a, from, sizeof a);
    std::memcpy(&b, from + kSize, sizeof b);
    Lanes<T>::even(numbers[2 * row], a, b);
    Lanes<T>::odd(numbers[2 * row + 1], a, b);
  }
}

template <typename T>
HFTA_INLINE void pool_vector(const T* upper, const T* lower, T* output, std::uint8_t* which) {
  typename Lanes<T>::Values numbers[4], best;
  typename Lanes<T>::Places index;
  load_windows<T>(numbers, upper, lower);
  take_greatest(numbers, best, index);
  std::memcpy(output, &best, sizeof best);
  const auto bytes = __builtin_convertvector(index, typename Lanes<T>::Bytes);
  std::memcpy(which, &bytes, sizeof bytes);
}

/// `count` outputs, of which a whole vector cannot be read or written.
template <typename T>
HFTA_INLINE void pool_rest(const T* upper, const T* lower, T* output, std::uint8_t* which, std::int64_t count) {
  constexpr int kSize = Lanes<T>::kSize;
  T rows[2][2 * kSize] = {}, results[kSize];
  std::uint8_t places[kSize];
  std::copy_n(upper, 2 * count, rows[0]);
  std::copy_n(lower, 2 * count, rows[1]);
  pool_vector(rows[0], rows[1], results, places);
  std::copy_n(results, count, output);
  std::copy_n(places, count, which);
}

template <typename T>
HFTA_INLINE void pool(const T* input, T* output, std::uint8_t* which, std::int64_t planes, std::int64_t readable, const RectifiedPoolShape& s) {
  constexpr std::int64_t kSize = Lanes<T>::kSize;
  const auto width = s.out_width(), size = s.out_height() * width;
  const auto *in_end = input + readable, *out_end = output + planes * size;
  for (std::int64_t plane = 0; plane < planes; ++plane, input += s.height * s.width)
    for (std::int64_t row = 0; row < s.out_height(); ++row, output += width, which += width) {
      const auto *upper = input + 2 * row * s.width, *lower = upper + s.width;
      for (std::int64_t start = 0; start < width; start += kSize) {
        // The last vector overlaps the one before where there is one.
        const auto column = std::max<std::int64_t>(0, std::min(start, width - kSize));
        if (lower + 2 * (column + kSize) <= in_end && output + column + kSize <= out_end)
          pool_vector(upper + 2 * column, lower + 2 * column, output + column, which + column);
        else
          pool_rest(upper + 2 * column, lower + 2 * column, output + column, which + column, std::min(kSize, width - column));
      }
    }
}

/// Writes what of the gradients belongs to a row of inputs, whose numbers of a window are `first` and the next.
template <typename T>
HFTA_INLINE void spread_vector(const T* grad_output, const std::uint8_t* which, int first, T* to) {
  using Values = typename Lanes<T>::Values;
  using Places = typename Lanes<T>::Places;
  Values gradient, low, high;
  typename Lanes<T>::Bytes bytes;
  std::memcpy(&gradient, grad_output, sizeof gradient);
  std::memcpy(&bytes, which, sizeof bytes);
  const auto index = __builtin_convertvector(bytes, Places);
  gradient += T(0);  // what adding to a zero gives: -0 becomes 0
  const Values none{}, left = index == Places{} + first ? gradient : none, right = index == Places{} + (first + 1) ? gradient : none;
  Lanes<T>::low(low, left, right);
  Lanes<T>::high(high, left, right);
  std::memcpy(to, &low, sizeof low);
  std::memcpy(to + Lanes<T>::kSize, &high, sizeof high);
}

template <typename T>
HFTA_INLINE void spread_rest(const T* grad_output, const std::uint8_t* which, int first, T* to, std::int64_t count) {
  constexpr int kSize = Lanes<T>::kSize;
  T gradients[kSize] = {}, row[2 * kSize];
  std::uint8_t places[kSize] = {};
  std::copy_n(grad_output, count, gradients);
  std::copy_n(which, count, places);
  spread_vector(gradients, places, first, row);
  std::copy_n(row, 2 * count, to);
}

template <typename T>
HFTA_INLINE void spread(const T* grad_output, const std::uint8_t* which, T* grad_input, std::int64_t planes, const RectifiedPoolShape& s) {
  constexpr std::int64_t kSize = Lanes<T>::kSize;
  const auto width = s.out_width(), size = s.out_height() * width;
  const auto *out_end = grad_output + planes * size, *end = grad_input + planes * s.height * s.width;
  for (std::int64_t plane = 0; plane < planes; ++plane, grad_input += s.height * s.width) {
    for (std::int64_t row = 0; row < s.out_height(); ++row, grad_output += width, which += width)
      for (int half = 0; half < 2; ++half) {
        auto* const to = grad_input + (2 * row + half) * s.width;
        for (std::int64_t start = 0; start < width; start += kSize) {
          const auto column = std::max<std::int64_t>(0, std::min(start, width - kSize));
          if (grad_output + column + kSize <= out_end && to + 2 * (column + kSize) <= end)
            spread_vector(grad_output + column, which + column, 2 * half, to + 2 * column);
          else
            spread_rest(grad_output + column, which + column, 2 * half, to + 2 * column, std::min(kSize, width - column));
        }
        std::fill(to + 2 * width, to + s.width, T(0));
      }
    std::fill(grad_input + 2 * s.out_height() * s.width, grad_input + s.height * s.width, T(0));
  }
}

}  // namespace

HFTA_VECTOR_TARGETS
void rectified_pool(const float* input, float* output, std::uint8_t* which, std::int64_t planes, std::int64_t readable, const RectifiedPoolShape& shape) {
  pool(input, output, which, planes, readable, shape);
}
HFTA_VECTOR_TARGETS
void rectified_pool(const double* input, double* output, std::uint8_t* which, std::int64_t planes, std::int64_t readable, const RectifiedPoolShape& shape) {
  pool(input, output, which, planes, readable, shape);
}
HFTA_VECTOR_TARGETS
void rectified_pool_backward(const float* grad_output, const std::uint8_t* which, float* grad_input, std::int64_t planes, const RectifiedPoolShape& shape) {
  spread(grad_output, which, grad_input, planes, shape);
}
HFTA_VECTOR_TARGETS
void rectified_pool_backward(const double* grad_output, const std::uint8_t* which, double* grad_input, std::int64_t planes, const RectifiedPoolShape& shape) {
  spread(grad_output, which, grad_input, planes, shape);
}

}  // namespace hfta::ops
