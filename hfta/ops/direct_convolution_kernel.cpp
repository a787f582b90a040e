#include "hfta/ops/direct_convolution_kernel.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <vector>

#include "hfta/ops/wide_vectors.h"

// A padded image lies as one run of numbers, so that a kernel's tap is a fixed offset in it: outputs are computed along the run, those
// that fall between rows are dropped. Written with the compilers' vector types: several outputs share each vector that is loaded.

namespace hfta::ops {
namespace {

template <typename T>
using Vector = typename Wide<T>::Vector;
template <typename T>
constexpr std::int64_t kNumbers = Wide<T>::kSize;

/// Outputs that are computed together, each with two vectors.
constexpr int kTogether = 8;
/// Of framed images in one go and of the gradients that stay near while all channels pass: the second-level and first-level caches.
constexpr std::int64_t kScratchBytes = 1 << 19, kNearBytes = 1 << 15;

/// Zeros that start on a cache line, so that loads along a run cross none.
template <typename T>
class Scratch {
 public:
  explicit Scratch(std::int64_t size) : data_(new (kLine) T[static_cast<std::size_t>(size)]()) {}
  ~Scratch() { ::operator delete[](data_, kLine); }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  T* data() const { return data_; }

 private:
  static constexpr std::align_val_t kLine{64};
  T* data_;
};

/// A padded image: `rows` of `stride` numbers a channel, and how far vectors reach behind the last channel.
struct Frame {
  std::int64_t rows, stride, size, run, slack;

  template <typename T>
  static Frame of(const DirectShape& s) {
    Frame f{};
    f.rows = s.height + 2 * s.padding[0];
    f.stride = s.width + 2 * s.padding[1];
    f.size = f.rows * f.stride;
    f.run = rounded_up((s.out_height() - 1) * f.stride + s.out_width(), 2 * kNumbers<T>);
    f.slack = std::max<std::int64_t>(0, f.run + (s.kernel[0] - 1) * f.stride + s.kernel[1] - f.size);
    return f;
  }
};

/// Copies a channel into the middle of its zeroed frame.
template <typename T>
HFTA_INLINE void frame_channel(const T* from, T* to, const DirectShape& s, const Frame& f) {
  to += s.padding[0] * f.stride + s.padding[1];
  for (std::int64_t row = 0; row < s.height; ++row) std::memcpy(to + row * f.stride, from + row * s.width, static_cast<std::size_t>(s.width) * sizeof(T));
}

/// Weights in the order in which they are used: `[block, channel, tap, output of the block]`, zero for outputs that are none.
template <typename T>
std::vector<T> packed(const T* weight, const DirectShape& s) {
  const std::int64_t taps = s.kernel[0] * s.kernel[1], blocks = rounded_up(s.outputs, kTogether) / kTogether;
  std::vector<T> all(static_cast<std::size_t>(blocks * s.channels * taps * kTogether));
  for (std::int64_t o = 0; o < s.outputs; ++o)
    for (std::int64_t i = 0; i < s.channels * taps; ++i)
      all[static_cast<std::size_t>(((o / kTogether) * s.channels * taps + i) * kTogether + o % kTogether)] = weight[o * s.channels * taps + i];
  return all;
}

/// `Count` outputs along the run of one framed image: `out` has `f.run` numbers for each.
template <typename T, int Count>
HFTA_INLINE void correlate(const T* image, const T* weights, const T* bias, T* out, const std::int64_t* offsets, std::int64_t steps, const Frame& f) {
  for (std::int64_t p = 0; p < f.run; p += 2 * kNumbers<T>) {
    Vector<T> sums[Count][2];
    for (int i = 0; i < Count; ++i) sums[i][0] = sums[i][1] = Vector<T>{} + bias[i];
    const T* w = weights;
    for (std::int64_t step = 0; step < steps; ++step, w += kTogether) {
      Vector<T> a, b;
      load(a, image + offsets[step] + p);
      load(b, image + offsets[step] + p + kNumbers<T>);
      for (int i = 0; i < Count; ++i) {
        sums[i][0] += w[i] * a;
        sums[i][1] += w[i] * b;
      }
    }
    for (int i = 0; i < Count; ++i) std::memcpy(out + i * f.run + p, sums[i], sizeof sums[i]);
  }
}

template <typename T>
HFTA_INLINE void correlate_block(const T* image, const T* weights, const T* bias, T* out, std::int64_t count, const std::int64_t* offsets,
                                 std::int64_t steps, const Frame& f) {
  if (count > 6) return correlate<T, 8>(image, weights, bias, out, offsets, steps, f);
  if (count > 4) return correlate<T, 6>(image, weights, bias, out, offsets, steps, f);
  if (count > 2) return correlate<T, 4>(image, weights, bias, out, offsets, steps, f);
  if (count > 1) return correlate<T, 2>(image, weights, bias, out, offsets, steps, f);
  correlate<T, 1>(image, weights, bias, out, offsets, steps, f);
}

/// Where each channel's taps lie in a framed image.
std::vector<std::int64_t> tap_offsets(const DirectShape& s, const Frame& f) {
  std::vector<std::int64_t> offsets;
  for (std::int64_t c = 0; c < s.channels; ++c)
    for (std::int64_t r = 0; r < s.kernel[0]; ++r)
      for (std::int64_t k = 0; k < s.kernel[1]; ++k) offsets.push_back(c * f.size + r * f.stride + k);
  return offsets;
}

template <typename T>
HFTA_INLINE void convolve(const T* input, const std::vector<T>& weights, const T* bias, T* output, std::int64_t images, const DirectShape& s) {
  const auto f = Frame::of<T>(s);
  const auto offsets = tap_offsets(s, f);
  const auto steps = static_cast<std::int64_t>(offsets.size());
  const std::int64_t height = s.out_height(), width = s.out_width();
  const Scratch<T> frame(s.channels * f.size + f.slack), run(kTogether * f.run);
  std::vector<T> biases(static_cast<std::size_t>(rounded_up(s.outputs, kTogether)));
  if (bias) std::copy_n(bias, s.outputs, biases.begin());
  for (std::int64_t n = 0; n < images; ++n) {
    for (std::int64_t c = 0; c < s.channels; ++c) frame_channel(input + (n * s.channels + c) * s.height * s.width, frame.data() + c * f.size, s, f);
    for (std::int64_t o = 0; o < s.outputs; o += kTogether) {
      const auto count = std::min<std::int64_t>(kTogether, s.outputs - o);
      correlate_block(frame.data(), weights.data() + o * steps, biases.data() + o, run.data(), count, offsets.data(), steps, f);
      for (std::int64_t i = 0; i < count; ++i)
        for (std::int64_t row = 0; row < height; ++row)
          std::memcpy(output + ((n * s.outputs + o + i) * height + row) * width, run.data() + i * f.run + row * f.stride, static_cast<std::size_t>(width) * sizeof(T));
    }
  }
}

template <typename T>
std::vector<T> turned_weights(const T* weight, const DirectShape& s) {
  const std::int64_t taps = s.kernel[0] * s.kernel[1];
  std::vector<T> all(static_cast<std::size_t>(s.outputs * s.channels * taps));
  for (std::int64_t o = 0; o < s.outputs; ++o)
    for (std::int64_t c = 0; c < s.channels; ++c)
      for (std::int64_t k = 0; k < taps; ++k) all[static_cast<std::size_t>((c * s.outputs + o) * taps + taps - 1 - k)] = weight[(o * s.channels + c) * taps + k];
  return all;
}

// ---- the weight's gradient

/// Outputs whose gradients of one kernel row are summed together: as many as the registers hold.
constexpr std::int64_t outputs_together(std::int64_t width) { return width <= 3 ? 8 : width == 4 ? 6 : width == 5 ? 5 : width == 6 ? 4 : 3; }

/// Framed images `[channel, image]`, and the gradients of their outputs along the runs `[output, image]`, zero between rows.
template <typename T>
struct Framed {
  const T *images, *outputs;
  std::int64_t count, room;  // of images: how many there are, and for how many there is room
};

/// Adds what images `[first, last)` give to the sums `[output][Width]` of one channel, kernel row and block of outputs.
template <typename T, int Width>
HFTA_INLINE void add_row(const T* image, const T* output, std::int64_t room, std::int64_t first, std::int64_t last, const Frame& f, T* sums) {
  constexpr int kOutputs = outputs_together(Width);
  Vector<T> parts[kOutputs][Width];
  std::memcpy(parts, sums, sizeof parts);
  for (std::int64_t n = first; n < last; ++n) {
    for (std::int64_t p = 0; p < f.run; p += kNumbers<T>) {
      Vector<T> x[Width];
      for (int k = 0; k < Width; ++k) load(x[k], image + n * f.size + p + k);
      for (int i = 0; i < kOutputs; ++i) {
        Vector<T> gradient;
        load(gradient, output + (i * room + n) * f.run + p);
        for (int k = 0; k < Width; ++k) parts[i][k] += gradient * x[k];
      }
    }
  }
  std::memcpy(sums, parts, sizeof parts);
}

/// Sums `[block of outputs, channel, kernel row, output of the block, kernel column, number of a vector]`.
template <typename T, int Width>
HFTA_INLINE void add_images(const Framed<T>& data, const Scratch<T>& sums, const DirectShape& s, const Frame& f) {
  constexpr std::int64_t kOutputs = outputs_together(Width);
  const std::int64_t near = std::max<std::int64_t>(1, kNearBytes / (kOutputs * f.run * static_cast<std::int64_t>(sizeof(T))));
  for (std::int64_t n = 0; n < data.count; n += near) {
    auto* into = sums.data();
    for (std::int64_t o = 0; o < s.outputs; o += kOutputs)
      for (std::int64_t c = 0; c < s.channels; ++c)
        for (std::int64_t r = 0; r < s.kernel[0]; ++r, into += kOutputs * Width * kNumbers<T>)
          add_row<T, Width>(data.images + c * data.room * f.size + r * f.stride, data.outputs + o * data.room * f.run, data.room, n,
                            std::min(n + near, data.count), f, into);
  }
}

template <typename T>
HFTA_INLINE void add_any_images(const Framed<T>& data, const Scratch<T>& sums, const DirectShape& s, const Frame& f) {
  switch (s.kernel[1]) {
    case 1: return add_images<T, 1>(data, sums, s, f);
    case 2: return add_images<T, 2>(data, sums, s, f);
    case 3: return add_images<T, 3>(data, sums, s, f);
    case 4: return add_images<T, 4>(data, sums, s, f);
    case 5: return add_images<T, 5>(data, sums, s, f);
    case 6: return add_images<T, 6>(data, sums, s, f);
    default: return add_images<T, 7>(data, sums, s, f);
  }
}

template <typename T>
HFTA_INLINE void write_sums(const Scratch<T>& sums, T* grad_weight, const DirectShape& s) {
  const std::int64_t together = outputs_together(s.kernel[1]);
  const auto* from = sums.data();
  for (std::int64_t o = 0; o < s.outputs; o += together)
    for (std::int64_t c = 0; c < s.channels; ++c)
      for (std::int64_t r = 0; r < s.kernel[0]; ++r)
        for (std::int64_t i = 0; i < together; ++i)
          for (std::int64_t k = 0; k < s.kernel[1]; ++k, from += kNumbers<T>) {
            if (o + i >= s.outputs) continue;
            T sum = 0;
            for (std::int64_t l = 0; l < kNumbers<T>; ++l) sum += from[l];
            grad_weight[(((o + i) * s.channels + c) * s.kernel[0] + r) * s.kernel[1] + k] = sum;
          }
}

/// Copies one image's output gradients to their runs and adds them to the bias' gradient.
template <typename T>
HFTA_INLINE void frame_gradients(const T* from, T* runs, T* grad_bias, std::int64_t room, const DirectShape& s, const Frame& f) {
  const std::int64_t height = s.out_height(), width = s.out_width();
  for (std::int64_t o = 0; o < s.outputs; ++o, from += height * width) {
    T* to = runs + o * room * f.run;
    for (std::int64_t row = 0; row < height; ++row) std::memcpy(to + row * f.stride, from + row * width, static_cast<std::size_t>(width) * sizeof(T));
    Vector<T> parts{};
    std::int64_t i = 0;
    for (; i + kNumbers<T> <= height * width; i += kNumbers<T>) {
      Vector<T> values;
      load(values, from + i);
      parts += values;
    }
    T sum = 0;
    for (; i < height * width; ++i) sum += from[i];
    for (std::int64_t l = 0; l < kNumbers<T>; ++l) sum += parts[l];
    grad_bias[o] += sum;
  }
}

template <typename T>
HFTA_INLINE void weight_gradient(const T* grad_output, const T* input, T* grad_weight, T* grad_bias, std::int64_t images, const DirectShape& s) {
  const auto f = Frame::of<T>(s);
  const auto outputs = rounded_up(s.outputs, outputs_together(s.kernel[1]));
  const auto bytes = (s.channels * f.size + outputs * f.run) * static_cast<std::int64_t>(sizeof(T));
  const auto chunk = std::clamp<std::int64_t>(kScratchBytes / bytes, 1, std::max<std::int64_t>(images, 1));
  const Scratch<T> frames(s.channels * chunk * f.size + f.slack), runs(outputs * chunk * f.run);
  const Scratch<T> sums(outputs * s.channels * s.kernel[0] * s.kernel[1] * kNumbers<T>);
  std::fill_n(grad_bias, s.outputs, T(0));
  for (std::int64_t first = 0; first < images; first += chunk) {
    const auto count = std::min(chunk, images - first);
    for (std::int64_t n = 0; n < count; ++n) {
      for (std::int64_t c = 0; c < s.channels; ++c)
        frame_channel(input + ((first + n) * s.channels + c) * s.height * s.width, frames.data() + (c * chunk + n) * f.size, s, f);
      frame_gradients(grad_output + (first + n) * s.outputs * s.out_height() * s.out_width(), runs.data() + n * f.run, grad_bias, chunk, s, f);
    }
    add_any_images(Framed<T>{frames.data(), runs.data(), count, chunk}, sums, s, f);
  }
  write_sums(sums, grad_weight, s);
}

}  // namespace

HFTA_VECTOR_TARGETS
void direct_convolution(const float* input, const float* weight, const float* bias, float* output, std::int64_t images, const DirectShape& shape) {
  convolve(input, packed(weight, shape), bias, output, images, shape);
}

HFTA_VECTOR_TARGETS
void direct_convolution(const double* input, const double* weight, const double* bias, double* output, std::int64_t images, const DirectShape& shape) {
  convolve(input, packed(weight, shape), bias, output, images, shape);
}

HFTA_VECTOR_TARGETS
void direct_input_gradient(const float* grad_output, const float* weight, float* grad_input, std::int64_t images, const DirectShape& shape) {
  const auto back = turned(shape);
  convolve<float>(grad_output, packed(turned_weights(weight, shape).data(), back), nullptr, grad_input, images, back);
}

HFTA_VECTOR_TARGETS
void direct_input_gradient(const double* grad_output, const double* weight, double* grad_input, std::int64_t images, const DirectShape& shape) {
  const auto back = turned(shape);
  convolve<double>(grad_output, packed(turned_weights(weight, shape).data(), back), nullptr, grad_input, images, back);
}

HFTA_VECTOR_TARGETS
void direct_weight_gradient(const float* grad_output, const float* input, float* grad_weight, float* grad_bias, std::int64_t images,
                            const DirectShape& shape) {
  weight_gradient(grad_output, input, grad_weight, grad_bias, images, shape);
}

HFTA_VECTOR_TARGETS
void direct_weight_gradient(const double* grad_output, const double* input, double* grad_weight, double* grad_bias, std::int64_t images,
                            const DirectShape& shape) {
  weight_gradient(grad_output, input, grad_weight, grad_bias, images, shape);
}

}  // namespace hfta::ops
