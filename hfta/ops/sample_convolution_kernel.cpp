#include "hfta/ops/sample_convolution_kernel.h"

#include <algorithm>

#include "hfta/ops/channel_vectors.h"
#include "hfta/ops/rectified_window.h"
#include "hfta/ops/thread_room.h"
#include "hfta/ops/vector_sums.h"

// Numbers lie `[channel, row, column, sample]`, with columns of zeros beside each row.

namespace hfta::ops {
namespace samples {

/// Of gradients that stay near while all channels and rows of taps pass: most of the first-level cache.
constexpr std::int64_t kNearFloats = 8 * 1024;

// Comparisons of wider vectors are taken apart by g++.
typedef float Half __attribute__((vector_size(32)));
typedef std::int32_t HalfPlaces __attribute__((vector_size(32)));
typedef std::int32_t Places16 __attribute__((vector_size(64)));
typedef std::uint8_t Bytes16 __attribute__((vector_size(16)));

/// Rows of turned images, and the columns of zeros on each side of them.
struct Frame {
  std::int64_t channels, height, width, margin;
  std::int64_t stride() const { return (width + 2 * margin) * kVector; }
  std::int64_t floats() const { return channels * height * stride(); }
  Band band(std::int64_t images) const { return {images, channels * height, width, 0, channels * height, margin, width + 2 * margin}; }
};

HFTA_INLINE void clear_margins(float* to, const Frame& f) {
  for (std::int64_t row = 0; f.margin > 0 && row < f.channels * f.height; ++row, to += f.stride()) {
    std::fill_n(to, f.margin * kVector, 0.0F);
    std::fill_n(to + (f.margin + f.width) * kVector, f.margin * kVector, 0.0F);
  }
}

HFTA_VECTOR_TARGETS
void turn_images(const float* from, float* to, std::int64_t images, const Frame& f) {
  clear_margins(to, f);
  fill_band(from, to, false, f.band(images));
}

// ---- outputs

/// A block of outputs is computed together, with as many pixels as the registers hold sums for.
constexpr std::int64_t outputs_together(std::int64_t outputs) { return rounded_up(outputs, 6) < rounded_up(outputs, 4) ? 6 : 4; }
constexpr std::int64_t widest_tile(std::int64_t together) { return 24 / together; }
constexpr std::int64_t kTileFloats = 24 * kVector;
constexpr std::int64_t tiles_of(std::int64_t width, std::int64_t widest) { return (width + widest - 1) / widest; }

/// Weights `[block of outputs, channel, tap, output of the block]`, zero for outputs that are none; `turned`: of the input's gradient.
inline void pack_weights(const float* weight, float* to, const DirectShape& s, bool turned) {
  const auto outputs = turned ? s.channels : s.outputs, channels = turned ? s.outputs : s.channels, taps = s.kernel[0] * s.kernel[1];
  const auto together = outputs_together(outputs);
  for (std::int64_t o = 0; o < outputs; o += together)
    for (std::int64_t c = 0; c < channels; ++c)
      for (std::int64_t t = 0; t < taps; ++t)
        for (std::int64_t i = o; i < o + together; ++i)
          *to++ = i >= outputs ? 0 : turned ? weight[(c * outputs + i) * taps + taps - 1 - t] : weight[(i * channels + c) * taps + t];
}
inline std::int64_t packed_floats(const DirectShape& s) {
  return std::max(rounded_up(s.outputs, outputs_together(s.outputs)) * s.channels, rounded_up(s.channels, outputs_together(s.channels)) * s.outputs) * s.kernel[0] * s.kernel[1];
}

/// Where a tile of sums is computed: a row and a first column of outputs, and the taps that reach the image there.
struct Tile {
  std::int64_t first_row, last_row, first_column, last_column;  // of taps
  const float* image;                                           // where the first of them falls for the tile's first pixel
};

template <int kOutputs, int kPixels>
HFTA_INLINE void sum_tile(const Tile& t, const float* weights, const float* bias, float* to, const DirectShape& s, const Frame& f) {
  Lanes16 sums[kOutputs][kPixels];
  for (int o = 0; o < kOutputs; ++o)
    for (int p = 0; p < kPixels; ++p) sums[o][p] = Lanes16{} + bias[o];
  const auto taps = s.kernel[0] * s.kernel[1];
  const auto* channel = t.image;
  for (std::int64_t c = 0; c < s.channels; ++c, channel += f.height * f.stride(), weights += taps * kOutputs)
    for (auto r = t.first_row; r < t.last_row; ++r) {
      const auto* x = channel + (r - t.first_row) * f.stride();
      const auto* w = weights + (r * s.kernel[1] + t.first_column) * kOutputs;
      for (auto k = t.first_column; k < t.last_column; ++k, x += kVector, w += kOutputs)
        for (int p = 0; p < kPixels; ++p) {
          Lanes16 pixel;
          load(pixel, x + p * kVector);
          for (int o = 0; o < kOutputs; ++o) sums[o][p] += w[o] * pixel;
        }
    }
  for (int o = 0; o < kOutputs; ++o)
    for (int p = 0; p < kPixels; ++p) store(to + (o * kPixels + p) * kVector, sums[o][p]);
}

HFTA_INLINE void sum_any_tile(std::int64_t together, std::int64_t pixels, const Tile& t, const float* weights, const float* bias, float* to, const DirectShape& s, const Frame& f) {
  switch (together * 10 + pixels) {
    case 41: return sum_tile<4, 1>(t, weights, bias, to, s, f);
    case 42: return sum_tile<4, 2>(t, weights, bias, to, s, f);
    case 43: return sum_tile<4, 3>(t, weights, bias, to, s, f);
    case 44: return sum_tile<4, 4>(t, weights, bias, to, s, f);
    case 45: return sum_tile<4, 5>(t, weights, bias, to, s, f);
    case 46: return sum_tile<4, 6>(t, weights, bias, to, s, f);
    case 61: return sum_tile<6, 1>(t, weights, bias, to, s, f);
    case 62: return sum_tile<6, 2>(t, weights, bias, to, s, f);
    case 63: return sum_tile<6, 3>(t, weights, bias, to, s, f);
    default: return sum_tile<6, 4>(t, weights, bias, to, s, f);
  }
}

HFTA_INLINE Tile tile_at(const float* images, std::int64_t row, std::int64_t column, std::int64_t pixels, const DirectShape& s, const Frame& f) {
  Tile t{};
  t.first_row = std::max<std::int64_t>(0, s.padding[0] - row), t.last_row = std::min(s.kernel[0], s.height + s.padding[0] - row);
  t.first_column = std::clamp<std::int64_t>(f.margin - (column + pixels - 1), 0, s.kernel[1]), t.last_column = std::min(s.kernel[1], f.margin + f.width - column);
  t.image = images + (row - s.padding[0] + t.first_row) * f.stride() + (column + t.first_column) * kVector;
  return t;
}

/// The greatest of a window after a ReLU, and which number it was.
HFTA_INLINE void pool_window(const float* upper, const float* lower, float* to, std::int32_t* which) {
  for (int half = 0; half < kVector; half += 8) {
    Half numbers[4], best;
    HalfPlaces index;
    for (int i = 0; i < 4; ++i) std::memcpy(&numbers[i], (i < 2 ? upper : lower) + (i & 1) * kVector + half, sizeof numbers[i]);
    take_greatest(numbers, best, index);
    std::memcpy(to + half, &best, sizeof best);
    std::memcpy(which + half, &index, sizeof index);
  }
}

/// Where a convolution's results go: `[output, row, column, sample]`, or pooled ones with what of each window was taken.
struct Results {
  float* to;
  std::int32_t* which;  // null: not pooled
};

/// Writes the sums of a tile of one or two rows, `[row][output][pixel]`.
HFTA_INLINE void write_tile(const float* sums, std::int64_t count, std::int64_t pixels, std::int64_t plane, std::int64_t place, const Results& results) {
  for (std::int64_t o = 0; o < count; ++o, sums += pixels * kVector) {
    auto* const to = results.to + (o * plane + place) * kVector;
    if (!results.which) std::memcpy(to, sums, static_cast<std::size_t>(pixels * kVector) * sizeof(float));
    for (std::int64_t p = 0; results.which && p < pixels; p += 2)
      pool_window(sums + p * kVector, sums + kTileFloats + p * kVector, to + p / 2 * kVector, results.which + (o * plane + place + p / 2) * kVector);
  }
}

HFTA_VECTOR_TARGETS
void convolve(const float* images, const float* weights, const float* biases, const Results& results, const DirectShape& s) {
  const Frame f{s.channels, s.height, s.width, s.padding[1]};
  const std::int64_t unit = results.which ? 2 : 1, height = s.out_height() / unit, width = s.out_width() / unit, together = outputs_together(s.outputs);
  const auto steps = s.channels * s.kernel[0] * s.kernel[1] * together;
  const auto tiles = tiles_of(width, widest_tile(together) / unit);
  alignas(64) float sums[2 * kTileFloats];
  for (std::int64_t row = 0; row < height; ++row)
    for (std::int64_t i = 0; i < tiles; ++i) {
      const auto column = width * i / tiles, pixels = (width * (i + 1) / tiles - column) * unit;
      for (std::int64_t o = 0; o < s.outputs; o += together) {
        for (std::int64_t half = 0; half < unit; ++half)
          sum_any_tile(together, pixels, tile_at(images, unit * row + half, unit * column, pixels, s, f), weights + o / together * steps, biases + o, sums + half * kTileFloats, s, f);
        write_tile(sums, std::min(together, s.outputs - o), pixels, height * width, (o * height + row) * width + column, results);
      }
    }
}

/// Turned numbers of windows to bytes of each image.
HFTA_VECTOR_TARGETS
void write_which(const std::int32_t* which, std::uint8_t* to, std::int64_t images, std::int64_t count) {
  for (std::int64_t p = 0; p < count; p += kVector) {
    const auto places = std::min(kVector, count - p);
    Lanes16 square[16] = {};
    for (std::int64_t i = 0; i < places; ++i) std::memcpy(&square[i], which + (p + i) * kVector, sizeof square[i]);
    turn_square<float>(square);
    for (std::int64_t n = 0; n < images; ++n) {
      Places16 numbers;
      std::memcpy(&numbers, &square[n], sizeof numbers);
      const auto bytes = __builtin_convertvector(numbers, Bytes16);
      std::memcpy(to + n * count + p, &bytes, static_cast<std::size_t>(places));
    }
  }
}

HFTA_VECTOR_TARGETS
void turn_back(const float* results, float* to, std::int64_t images, const Frame& f) { empty_band(results, to, f.band(images)); }

// ---- gradients

/// Sixteen windows' gradients and what they flow to, turned.
HFTA_INLINE void load_windows(const float* gradients, const std::uint8_t* which, std::int64_t count, std::int64_t places, std::int64_t images, Lanes16 (&values)[16],
                              Lanes16 (&indices)[16]) {
  load_pixels(gradients, count, images, places, false, values);
  for (std::int64_t n = 0; n < kVector; ++n) {
    Bytes16 bytes{};
    if (n < images) std::memcpy(&bytes, which + n * count, static_cast<std::size_t>(places));
    const auto numbers = __builtin_convertvector(bytes, Places16);
    std::memcpy(&indices[n], &numbers, sizeof numbers);
  }
  turn_square<float>(indices);
}

/// One window's gradients to its four pixels.
HFTA_INLINE void spread_window(const Lanes16& gradient, const Lanes16& index, float* upper, float* lower) {
  for (int half = 0; half < 2; ++half) {
    Half value;
    HalfPlaces place;
    std::memcpy(&value, reinterpret_cast<const char*>(&gradient) + half * sizeof value, sizeof value);
    std::memcpy(&place, reinterpret_cast<const char*>(&index) + half * sizeof place, sizeof place);
    for (int i = 0; i < 4; ++i) {
      const Half own = place == HalfPlaces{} + i ? value : Half{};
      std::memcpy((i < 2 ? upper : lower) + (i & 1) * kVector + half * 8, &own, sizeof own);
    }
  }
}

/// Gradients of pooled results to those of what was pooled, turned.
HFTA_VECTOR_TARGETS
void turn_pooled(const float* gradients, const std::uint8_t* which, float* to, std::int64_t images, const Frame& f) {
  const auto height = f.height / 2, width = f.width / 2, count = f.channels * height * width;
  if (2 * height != f.height || 2 * width != f.width) std::fill_n(to, f.floats(), 0.0F);
  else clear_margins(to, f);
  std::int64_t plane = 0, row = 0, column = 0;
  for (std::int64_t p = 0; p < count; p += kVector) {
    const auto places = std::min(kVector, count - p);
    Lanes16 values[16], indices[16];
    load_windows(gradients + p, which + p, count, places, images, values, indices);
    for (std::int64_t i = 0; i < places; ++i) {
      auto* const upper = to + (plane * f.height + 2 * row) * f.stride() + (f.margin + 2 * column) * kVector;
      spread_window(values[i], indices[i], upper, upper + f.stride());
      if (++column == width) {
        column = 0;
        if (++row == height) row = 0, ++plane;
      }
    }
  }
}

/// Outputs whose sums for one row of taps fill the registers, or fewer where that leaves less over.
constexpr std::int64_t gradients_together(std::int64_t outputs, std::int64_t width) {
  const std::int64_t most = width <= 3 ? 8 : width == 4 ? 6 : width <= 6 ? 4 : 3, fewer = most == 8 ? 6 : 3;
  return rounded_up(outputs, fewer) < rounded_up(outputs, most) ? fewer : most;
}

inline std::int64_t weight_sums_floats(const DirectShape& s) {
  return rounded_up(s.outputs, gradients_together(s.outputs, s.kernel[1])) * s.channels * s.kernel[0] * s.kernel[1] * kVector;
}

/// Adds rows `[first, last)` of gradients to the sums `[output][kWidth]` of one channel and row of taps. @param x what the first tap meets in row 0
template <int kOutputs, int kWidth>
HFTA_INLINE void add_rows(const float* x, const float* g, std::int64_t first, std::int64_t last, std::int64_t plane, const Frame& of_x, const Frame& of_g, float* sums) {
  Lanes16 parts[kOutputs][kWidth];
  std::memcpy(parts, sums, sizeof parts);
  for (auto row = first; row < last; ++row) {
    const auto *xs = x + row * of_x.stride(), *gs = g + row * of_g.stride();
    for (std::int64_t column = 0; column < of_g.width; ++column, xs += kVector, gs += kVector) {
      Lanes16 pixels[kWidth];
      for (int k = 0; k < kWidth; ++k) load(pixels[k], xs + k * kVector);
      for (int o = 0; o < kOutputs; ++o) {
        Lanes16 gradient;
        load(gradient, gs + o * plane);
        for (int k = 0; k < kWidth; ++k) parts[o][k] += gradient * pixels[k];
      }
    }
  }
  std::memcpy(sums, parts, sizeof parts);
}

/// Turned images and gradients, and where those begin that are no margin.
struct Turned {
  const float *images, *gradients;
  Frame of_images, of_gradients;
};

/// Sums `[block of outputs, channel, row of taps, output of the block, column, sample]`.
template <int kOutputs, int kWidth>
HFTA_INLINE void add_weights(const Turned& t, float* sums, const DirectShape& s) {
  const auto height = s.out_height(), plane = height * t.of_gradients.stride();
  const auto near = std::max<std::int64_t>(1, kNearFloats / (kOutputs * t.of_gradients.stride()));
  for (std::int64_t o = 0; o < s.outputs; o += kOutputs, sums += s.channels * s.kernel[0] * kOutputs * kWidth * kVector)
    for (std::int64_t rows = 0; rows < height; rows += near) {
      auto* into = sums;
      for (std::int64_t c = 0; c < s.channels; ++c)
        for (std::int64_t r = 0; r < s.kernel[0]; ++r, into += kOutputs * kWidth * kVector) {
          const auto above = s.padding[0] - r;  // rows of padding over the tap in row 0
          const auto first = std::max(rows, above), last = std::min({rows + near, height, s.height + above});
          const auto* x = t.images + (c * s.height - above) * t.of_images.stride();
          if (first < last) add_rows<kOutputs, kWidth>(x, t.gradients + o * plane, first, last, plane, t.of_images, t.of_gradients, into);
        }
    }
}

HFTA_VECTOR_TARGETS
void add_any_weights(const Turned& t, float* sums, const DirectShape& s) {
  switch (gradients_together(s.outputs, s.kernel[1]) * 10 + s.kernel[1]) {
    case 81: return add_weights<8, 1>(t, sums, s);
    case 61: return add_weights<6, 1>(t, sums, s);
    case 82: return add_weights<8, 2>(t, sums, s);
    case 62: return add_weights<6, 2>(t, sums, s);
    case 83: return add_weights<8, 3>(t, sums, s);
    case 63: return add_weights<6, 3>(t, sums, s);
    case 64: return add_weights<6, 4>(t, sums, s);
    case 34: return add_weights<3, 4>(t, sums, s);
    case 45: return add_weights<4, 5>(t, sums, s);
    case 35: return add_weights<3, 5>(t, sums, s);
    case 46: return add_weights<4, 6>(t, sums, s);
    case 36: return add_weights<3, 6>(t, sums, s);
    default: return add_weights<3, 7>(t, sums, s);
  }
}

HFTA_VECTOR_TARGETS
void add_biases(const float* gradients, float* sums, const Frame& f) {
  for (std::int64_t o = 0; o < f.channels; ++o, sums += kVector) {
    Lanes16 parts[4] = {}, value;
    load(parts[0], sums);
    for (std::int64_t i = 0; i < f.height * f.stride(); i += kVector, gradients += kVector) {
      load(value, gradients);
      parts[i / kVector % 4] += value;
    }
    store(sums, (parts[0] + parts[1]) + (parts[2] + parts[3]));
  }
}

HFTA_VECTOR_TARGETS
void total_sums(const float* sums, float* grad_weight, float* grad_bias, const DirectShape& s) {
  const auto together = gradients_together(s.outputs, s.kernel[1]);
  for (std::int64_t o = 0; o < s.outputs; o += together)
    for (std::int64_t c = 0; c < s.channels; ++c)
      for (std::int64_t r = 0; r < s.kernel[0]; ++r)
        for (std::int64_t i = o; i < o + together; ++i)
          for (std::int64_t k = 0; k < s.kernel[1]; ++k, sums += kVector) {
            Lanes16 parts;
            load(parts, sums);
            if (i < s.outputs) grad_weight[((i * s.channels + c) * s.kernel[0] + r) * s.kernel[1] + k] = total_of<float>(parts);
          }
  for (std::int64_t o = 0; o < s.outputs; ++o, sums += kVector) {
    Lanes16 parts;
    load(parts, sums);
    grad_bias[o] = total_of<float>(parts);
  }
}

}  // namespace samples

std::int64_t SampleConvolution::sums_floats() const { return samples::weight_sums_floats(s_) + s_.outputs * kVector; }

void SampleConvolution::forward(const float* input, const float* weight, const float* bias, float* output, std::uint8_t* which, std::int64_t images) const {
  const samples::Frame f{s_.channels, s_.height, s_.width, s_.padding[1]}, results{s_.outputs, result_height(), result_width(), 0};
  const auto biases_floats = rounded_up(s_.outputs, samples::outputs_together(s_.outputs)), weights_floats = samples::packed_floats(s_);
  auto* const weights = thread_room<float, Room::Weights>(weights_floats + biases_floats);
  auto* const biases = weights + weights_floats;
  std::fill_n(biases, biases_floats, 0.0F);
  if (bias) std::copy_n(bias, s_.outputs, biases);
  samples::pack_weights(weight, weights, s_, false);
  auto* const turned = thread_room<float, Room::Images>(f.floats());
  samples::turn_images(input, turned, images, f);
  const samples::Results to{thread_room<float, Room::Results>(results.floats()), pooled_ ? thread_room<std::int32_t, Room::Results>(results.floats()) : nullptr};
  samples::convolve(turned, weights, biases, to, s_);
  samples::turn_back(to.to, output, images, results);
  if (pooled_) samples::write_which(to.which, which, images, results.floats() / kVector);
}

void SampleConvolution::backward(const float* grad_output, const std::uint8_t* which, const float* input, const float* weight, float* grad_input, float* sums,
                                 std::int64_t images) const {
  const auto back = turned(s_);
  const samples::Frame of_gradients{s_.outputs, s_.out_height(), s_.out_width(), grad_input ? back.padding[1] : 0};
  const auto all = rounded_up(s_.outputs, samples::gradients_together(s_.outputs, s_.kernel[1])) * s_.out_height() * of_gradients.stride();
  auto* const gradients = thread_room<float, Room::Gradients>(all);
  std::fill(gradients + of_gradients.floats(), gradients + all, 0.0F);  // of outputs that are none: what is left there may be slow to multiply
  pooled_ ? samples::turn_pooled(grad_output, which, gradients, images, of_gradients) : samples::turn_images(grad_output, gradients, images, of_gradients);
  if (sums) {
    const samples::Frame of_images{s_.channels, s_.height, s_.width, s_.padding[1]};
    auto* const turned_images = thread_room<float, Room::Images>(of_images.floats());
    samples::turn_images(input, turned_images, images, of_images);
    samples::add_any_weights({turned_images, gradients + of_gradients.margin * kVector, of_images, of_gradients}, sums, s_);
    samples::add_biases(gradients, sums + samples::weight_sums_floats(s_), of_gradients);
  }
  if (grad_input) input_gradient(gradients, weight, grad_input, images);
}

void SampleConvolution::input_gradient(const float* gradients, const float* weight, float* grad_input, std::int64_t images) const {
  const auto biases_floats = rounded_up(s_.channels, samples::outputs_together(s_.channels)), weights_floats = samples::packed_floats(s_);
  auto* const weights = thread_room<float, Room::Weights>(weights_floats + biases_floats);
  samples::pack_weights(weight, weights, s_, true);
  std::fill_n(weights + weights_floats, biases_floats, 0.0F);
  const samples::Frame results{s_.channels, s_.height, s_.width, 0};
  auto* const to = thread_room<float, Room::Results>(results.floats());
  samples::convolve(gradients, weights, weights + weights_floats, {to, nullptr}, turned(s_));
  samples::turn_back(to, grad_input, images, results);
}

void SampleConvolution::write_sums(const float* sums, float* grad_weight, float* grad_bias) const { samples::total_sums(sums, grad_weight, grad_bias, s_); }

}  // namespace hfta::ops
