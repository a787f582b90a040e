#include "hfta/ops/max_pool2d_kernel.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <vector>

#include "hfta/base/vector_targets.h"

// Loops over vectors of 32 bytes along a row of outputs. Written with the compilers' vector types, since the strided loads and the
// selection of value and index together keep them from vectorizing plain loops.
#define HFTA_INLINE inline __attribute__((always_inline))

namespace hfta::ops {
namespace {

template <typename T>
struct Vectors;
template <>
struct Vectors<float> {
  using Index = std::int32_t;
  using Values = float __attribute__((vector_size(32)));
  using Indices = Index __attribute__((vector_size(32)));
  static constexpr int kSize = 8;
  static HFTA_INLINE void even(Values& out, const Values& a, const Values& b) { out = __builtin_shufflevector(a, b, 0, 2, 4, 6, 8, 10, 12, 14); }
  static HFTA_INLINE void low(Values& out, const Values& a, const Values& b) { out = __builtin_shufflevector(a, b, 0, 8, 1, 9, 2, 10, 3, 11); }
  static HFTA_INLINE void high(Values& out, const Values& a, const Values& b) { out = __builtin_shufflevector(a, b, 4, 12, 5, 13, 6, 14, 7, 15); }
};
template <>
struct Vectors<double> {
  using Index = std::int64_t;
  using Values = double __attribute__((vector_size(32)));
  using Indices = Index __attribute__((vector_size(32)));
  static constexpr int kSize = 4;
  static HFTA_INLINE void even(Values& out, const Values& a, const Values& b) { out = __builtin_shufflevector(a, b, 0, 2, 4, 6); }
  static HFTA_INLINE void low(Values& out, const Values& a, const Values& b) { out = __builtin_shufflevector(a, b, 0, 4, 1, 5); }
  static HFTA_INLINE void high(Values& out, const Values& a, const Values& b) { out = __builtin_shufflevector(a, b, 2, 6, 3, 7); }
};

/// Where the kernel reads one plane: its first window starts at `data`, rows are `stride` apart, nothing outside the window is needed.
template <typename T>
struct Source {
  const T* data;
  std::int64_t row_stride;
};

template <typename T, int Stride>
HFTA_INLINE void load(typename Vectors<T>::Values& out, const T* from, std::int64_t stride) {
  if constexpr (Stride == 1) {
    std::memcpy(&out, from, sizeof out);
  } else if constexpr (Stride == 2) {
    typename Vectors<T>::Values a, b;
    std::memcpy(&a, from, sizeof a);
    std::memcpy(&b, from + Vectors<T>::kSize, sizeof b);
    Vectors<T>::even(out, a, b);
  } else {
    for (int i = 0; i < Vectors<T>::kSize; ++i) out[i] = from[i * stride];
  }
}

/// One vector of outputs: the best of each window and its position. `Kernel` and `Stride` zero: any.
template <typename T, int Kernel, int Stride>
HFTA_INLINE void pool_windows(typename Vectors<T>::Values& best, typename Vectors<T>::Indices& index, const Source<T>& source,
                              const MaxPool2dShape& shape, std::int64_t oh, std::int64_t ow) {
  using Index = typename Vectors<T>::Index;
  const std::int64_t rows = Kernel ? Kernel : shape.kernel[0], columns = Kernel ? Kernel : shape.kernel[1];
  const std::int64_t row_step = Kernel ? 1 : shape.dilation[0], column_step = Kernel ? 1 : shape.dilation[1];
  const std::int64_t stride = Stride ? Stride : shape.stride[1];
  typename Vectors<T>::Indices offsets;
  for (int i = 0; i < Vectors<T>::kSize; ++i) offsets[i] = static_cast<Index>(i * stride);
  best = typename Vectors<T>::Values{} - std::numeric_limits<T>::infinity();
  for (std::int64_t r = 0; r < rows; ++r) {
    const auto row = oh * shape.stride[0] + r * row_step;
    for (std::int64_t c = 0; c < columns; ++c) {
      const auto column = ow * stride + c * column_step;
      typename Vectors<T>::Values value;
      load<T, Stride>(value, source.data + row * source.row_stride + column, stride);
      const auto here = offsets + static_cast<Index>((row - shape.padding[0]) * shape.width + column - shape.padding[1]);
      const auto take = (value > best) | (value != value);
      best = take ? value : best;
      index = take ? here : index;
    }
  }
}

/// First position of a window that is not in the padding.
HFTA_INLINE std::int64_t first_inside(std::int64_t out, std::int64_t stride, std::int64_t padding, std::int64_t dilation) {
  auto first = out * stride - padding;
  while (first < 0) first += dilation;
  return first;
}

template <typename T, int Kernel, int Stride>
HFTA_INLINE void pool_plane(const Source<T>& source, T* output, std::int64_t* indices, const MaxPool2dShape& shape,
                            const typename Vectors<T>::Index* first_columns) {
  using Index = typename Vectors<T>::Index;
  constexpr std::int64_t kSize = Vectors<T>::kSize;
  for (std::int64_t oh = 0; oh < shape.out_height; ++oh) {
    const auto first_row = static_cast<Index>(first_inside(oh, shape.stride[0], shape.padding[0], shape.dilation[0]) * shape.width);
    for (std::int64_t start = 0; start < shape.out_width; start += kSize) {
      // The last vector of a row overlaps the one before instead of being cut short.
      const auto ow = std::max<std::int64_t>(0, std::min(start, shape.out_width - kSize));
      typename Vectors<T>::Values best;
      typename Vectors<T>::Indices index;
      std::memcpy(&index, first_columns + ow, sizeof index);
      index += first_row;
      pool_windows<T, Kernel, Stride>(best, index, source, shape, oh, ow);
      auto* const values_out = output + oh * shape.out_width + ow;
      auto* const indices_out = indices + oh * shape.out_width + ow;
      const auto count = std::min(kSize, shape.out_width);
      if (count == kSize) {
        std::memcpy(values_out, &best, sizeof best);
        for (int i = 0; i < kSize; ++i) indices_out[i] = index[i];
      } else {
        for (int i = 0; i < count; ++i) values_out[i] = best[i], indices_out[i] = index[i];
      }
    }
  }
}

/// Rows and columns that the vectors read, from the first window's start on.
struct Extent {
  std::int64_t rows, columns;
  template <typename T>
  static Extent of(const MaxPool2dShape& shape) {
    const auto vectors = std::max<std::int64_t>(shape.out_width, Vectors<T>::kSize);
    const auto last_row = (shape.out_height - 1) * shape.stride[0] + (shape.kernel[0] - 1) * shape.dilation[0];
    const auto last_column = (vectors - 1) * shape.stride[1] + (shape.kernel[1] - 1) * shape.dilation[1];
    return {last_row + 1, last_column + 1 + shape.stride[1]};  // pairs of vectors are read whole where the stride is two
  }
};

/// Windows reach outside the plane, so that reading the neighbouring row would give wrong values.
bool reaches_outside(const MaxPool2dShape& s) {
  const auto reach = [&](int axis, std::int64_t out) { return (out - 1) * s.stride[axis] + (s.kernel[axis] - 1) * s.dilation[axis] + 1; };
  return s.padding[0] > 0 || s.padding[1] > 0 || reach(0, s.out_height) > s.height || reach(1, s.out_width) > s.width;
}

template <typename T>
HFTA_INLINE void pool_any_plane(const Source<T>& source, T* output, std::int64_t* indices, const MaxPool2dShape& s,
                                const typename Vectors<T>::Index* first_columns) {
  const bool dense = s.dilation[0] == 1 && s.dilation[1] == 1 && s.kernel[0] == s.kernel[1];
  if (dense && s.kernel[0] == 2 && s.stride[1] == 2) return pool_plane<T, 2, 2>(source, output, indices, s, first_columns);
  if (dense && s.kernel[0] == 3 && s.stride[1] == 2) return pool_plane<T, 3, 2>(source, output, indices, s, first_columns);
  if (s.stride[1] == 1) return pool_plane<T, 0, 1>(source, output, indices, s, first_columns);
  if (s.stride[1] == 2) return pool_plane<T, 0, 2>(source, output, indices, s, first_columns);
  return pool_plane<T, 0, 0>(source, output, indices, s, first_columns);
}

/// A plane inside -infinity, which no window ever takes.
template <typename T>
Source<T> framed(const T* plane, std::vector<T>& frame, const Extent& extent, const MaxPool2dShape& shape) {
  frame.assign(static_cast<std::size_t>(extent.rows * extent.columns), -std::numeric_limits<T>::infinity());
  const auto rows = std::min(shape.height, extent.rows - shape.padding[0]), columns = std::min(shape.width, extent.columns - shape.padding[1]);
  for (std::int64_t row = 0; row < rows; ++row) {
    std::copy_n(plane + row * shape.width, columns, frame.data() + (row + shape.padding[0]) * extent.columns + shape.padding[1]);
  }
  return {frame.data(), extent.columns};
}

template <typename T>
HFTA_INLINE void pool_planes(const T* input, T* output, std::int64_t* indices, std::int64_t planes, std::int64_t readable,
                             const MaxPool2dShape& shape) {
  const auto size = shape.height * shape.width, out_size = shape.out_height * shape.out_width;
  const auto extent = Extent::of<T>(shape);
  const auto needed = (extent.rows - 1) * shape.width + extent.columns;
  const bool outside = reaches_outside(shape);
  std::vector<typename Vectors<T>::Index> first_columns(static_cast<std::size_t>(std::max<std::int64_t>(shape.out_width, Vectors<T>::kSize)));
  for (std::int64_t ow = 0; ow < shape.out_width; ++ow) {
    first_columns[static_cast<std::size_t>(ow)] =
        static_cast<typename Vectors<T>::Index>(first_inside(ow, shape.stride[1], shape.padding[1], shape.dilation[1]));
  }
  std::vector<T> frame;
  for (std::int64_t plane = 0; plane < planes; ++plane) {
    const auto* const start = input + plane * size;
    const bool in_place = !outside && readable - plane * size >= needed;
    const auto source = in_place ? Source<T>{start, shape.width} : framed(start, frame, extent, shape);
    pool_any_plane(source, output + plane * out_size, indices + plane * out_size, shape, first_columns.data());
  }
}

// ---- backward

/// Windows of 2 x 2 that tile the plane: every input is written once, no scatter.
template <typename T>
HFTA_INLINE void spread_pairs(const T* grad_output, const std::int64_t* indices, T* grad_input, const MaxPool2dShape& shape) {
  using Index = typename Vectors<T>::Index;
  constexpr std::int64_t kSize = Vectors<T>::kSize;
  typename Vectors<T>::Indices offsets;
  for (int i = 0; i < kSize; ++i) offsets[i] = static_cast<Index>(2 * i);
  for (std::int64_t oh = 0; oh < shape.out_height; ++oh) {
    for (std::int64_t start = 0; start < shape.out_width; start += kSize) {
      const auto ow = std::min(start, shape.out_width - kSize);
      typename Vectors<T>::Values gradient;
      typename Vectors<T>::Indices index;
      std::memcpy(&gradient, grad_output + oh * shape.out_width + ow, sizeof gradient);
      gradient = gradient + T(0);  // what adding to a zero gives: -0 becomes 0
      for (int i = 0; i < kSize; ++i) index[i] = static_cast<Index>(indices[oh * shape.out_width + ow + i]);
      for (std::int64_t r = 0; r < 2; ++r) {
        const auto first = (2 * oh + r) * shape.width + 2 * ow;
        const auto here = offsets + static_cast<Index>(first);
        const typename Vectors<T>::Values none{};
        const typename Vectors<T>::Values left = index == here ? gradient : none, right = index == here + Index(1) ? gradient : none;
        typename Vectors<T>::Values low, high;
        Vectors<T>::low(low, left, right);
        Vectors<T>::high(high, left, right);
        std::memcpy(grad_input + first, &low, sizeof low);
        std::memcpy(grad_input + first + kSize, &high, sizeof high);
      }
    }
    if (shape.width > 2 * shape.out_width) {
      for (std::int64_t r = 0; r < 2; ++r) {
        auto* const row = grad_input + (2 * oh + r) * shape.width;
        std::fill(row + 2 * shape.out_width, row + shape.width, T(0));
      }
    }
  }
  std::fill(grad_input + 2 * shape.out_height * shape.width, grad_input + shape.height * shape.width, T(0));
}

template <typename T>
bool tiles_in_pairs(const MaxPool2dShape& s) {
  const auto pairs = [](const std::int64_t (&values)[2], std::int64_t value) { return values[0] == value && values[1] == value; };
  return pairs(s.kernel, 2) && pairs(s.stride, 2) && pairs(s.padding, 0) && pairs(s.dilation, 1) && 2 * s.out_height <= s.height &&
         2 * s.out_width <= s.width && s.out_width >= Vectors<T>::kSize;
}

template <typename T>
HFTA_INLINE void spread_planes(const T* grad_output, const std::int64_t* indices, T* grad_input, std::int64_t planes,
                               const MaxPool2dShape& shape) {
  const auto size = shape.height * shape.width, out_size = shape.out_height * shape.out_width;
  const bool pairs = tiles_in_pairs<T>(shape);
  for (std::int64_t plane = 0; plane < planes; ++plane, grad_output += out_size, indices += out_size, grad_input += size) {
    if (pairs) {
      spread_pairs(grad_output, indices, grad_input, shape);
    } else {
      std::fill_n(grad_input, size, T(0));
      for (std::int64_t i = 0; i < out_size; ++i) grad_input[indices[i]] += grad_output[i];
    }
  }
}

}  // namespace

HFTA_VECTOR_TARGETS
void max_pool2d_planes(const float* input, float* output, std::int64_t* indices, std::int64_t planes, std::int64_t readable,
                       const MaxPool2dShape& shape) {
  pool_planes(input, output, indices, planes, readable, shape);
}

HFTA_VECTOR_TARGETS
void max_pool2d_planes(const double* input, double* output, std::int64_t* indices, std::int64_t planes, std::int64_t readable,
                       const MaxPool2dShape& shape) {
  pool_planes(input, output, indices, planes, readable, shape);
}

HFTA_VECTOR_TARGETS
void max_pool2d_planes_backward(const float* grad_output, const std::int64_t* indices, float* grad_input, std::int64_t planes,
                                const MaxPool2dShape& shape) {
  spread_planes(grad_output, indices, grad_input, planes, shape);
}

HFTA_VECTOR_TARGETS
void max_pool2d_planes_backward(const double* grad_output, const std::int64_t* indices, double* grad_input, std::int64_t planes,
                                const MaxPool2dShape& shape) {
  spread_planes(grad_output, indices, grad_input, planes, shape);
}

}  // namespace hfta::ops
