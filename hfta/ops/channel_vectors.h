#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "hfta/ops/vector_square.h"

// Between planes `[channel, height, width]` and bands of pixels with sixteen channels a vector `[row, column, 16]`, for kernels that work along
// channels. Inlined into functions that are compiled for several processors.

namespace hfta::ops {

/// Sixteen numbers.
using Lanes16 = Wide<float>::Vector;

constexpr std::int64_t kVector = 16;

/// Up to sixteen channels of an image, and the rows of it that a band holds.
struct Band {
  std::int64_t channels, height, width;  ///< Of the image; at most sixteen channels.
  std::int64_t first, rows;              ///< Rows of the band, the first as a row of the image: outside it there are zeros.
  std::int64_t left, stride;             ///< The image's first column in the band, and the band's columns.
};

/// Loads pixels `[channels, plane]` from `from` on; missing channels are zero. `readable`: sixteen numbers may be read of each.
HFTA_INLINE void load_pixels(const float* from, std::int64_t plane, std::int64_t channels, std::int64_t count, bool readable, Lanes16 (&pixels)[16]) {
  if (channels == kVector && (readable || count == kVector)) {
    for (int c = 0; c < 16; ++c) load(pixels[c], from + c * plane);
  } else {
    for (int c = 0; c < 16; ++c) {
      pixels[c] = Lanes16{};
      if (c < channels) std::memcpy(&pixels[c], from + c * plane, static_cast<std::size_t>(count) * sizeof(float));
    }
  }
  turn_square<float>(pixels);
}

/// Writes the rows of an image `planes` into `band`, whose columns beside the image must be zero already.
HFTA_INLINE void fill_band(const float* planes, float* band, bool readable, const Band& b) {
  const auto top = std::clamp<std::int64_t>(-b.first, 0, b.rows), bottom = std::clamp(b.height - b.first, top, b.rows);
  const auto bytes = b.stride * kVector * static_cast<std::int64_t>(sizeof(float));
  std::memset(band, 0, static_cast<std::size_t>(top * bytes));
  std::memset(band + bottom * b.stride * kVector, 0, static_cast<std::size_t>((b.rows - bottom) * bytes));
  auto* to = band + (top * b.stride + b.left) * kVector;
  std::int64_t column = 0;
  for (auto p = (b.first + top) * b.width; p < (b.first + bottom) * b.width; p += kVector) {
    const auto count = std::min(kVector, (b.first + bottom) * b.width - p);
    Lanes16 pixels[16];
    load_pixels(planes + p, b.height * b.width, b.channels, count, readable, pixels);
    for (std::int64_t i = 0; i < count; ++i, to += kVector) {
      store(to, pixels[i]);
      if (++column == b.width) column = 0, to += (b.stride - b.width) * kVector;
    }
  }
}

/// Writes what of the band lies inside the image to `planes`.
HFTA_INLINE void empty_band(const float* band, float* planes, const Band& b) {
  const auto* from = band + b.left * kVector;
  const auto end = std::min(b.first + b.rows, b.height) * b.width;
  std::int64_t column = 0;
  for (auto p = b.first * b.width; p < end; p += kVector) {
    const auto count = std::min(kVector, end - p);
    Lanes16 pixels[16] = {};
    for (std::int64_t i = 0; i < count; ++i) {
      load(pixels[i], from);
      from += kVector;
      if (++column == b.width) column = 0, from += (b.stride - b.width) * kVector;
    }
    turn_square<float>(pixels);
    auto* to = planes + p;
    if (b.channels == kVector && count == kVector) {
      for (int c = 0; c < 16; ++c) store(to + c * b.height * b.width, pixels[c]);
    } else {
      for (std::int64_t c = 0; c < b.channels; ++c) std::memcpy(to + c * b.height * b.width, &pixels[c], static_cast<std::size_t>(count) * sizeof(float));
    }
  }
}

}  // namespace hfta::ops
