#include "hfta/ops/winograd_kernel.h"

#include "hfta/ops/block_product.h"
#include "hfta/ops/winograd_tiles.h"

namespace hfta::ops {
namespace {

constexpr std::int64_t kProducts = 16, kTaps = 9, kMiddle = 5;
/// Floats of transformed tiles in one go: they and what comes of them stay in the second-level cache.
constexpr std::int64_t kBlockFloats = 160 * 1024;
/// Fewer tiles would go through the transformed weights (and their gradient) too often, more gain nothing.
constexpr std::int64_t kFewestTiles = 128, kFewestGradientTiles = 64, kMostTiles = 256;
/// Behind each row, so that rows do not fall on the same lines of a cache.
constexpr std::int64_t kGap = 16;

constexpr std::int64_t kRowsTogether = 2 * kProductRows;

/// Sixteen matrices `[channel, output]` lie in panels of outputs, `[panel, product, channel, output of the panel]`.
struct Panel {
  std::int64_t first, width;  // outputs
  std::int64_t offset, step;  // of the panel, and between its products
};
template <typename Work>
HFTA_INLINE void each_panel(std::int64_t channels, std::int64_t outputs, const Work& work) {
  const auto all = rounded_up(outputs, kVector);
  for (Panel panel{}; panel.first < all; panel.first += panel.width) {
    panel.width = panel_width(all - panel.first);
    panel.step = channels * panel.width + kGap;
    work(panel);
    panel.offset += kProducts * panel.step;
  }
}
std::int64_t all_panels_floats(std::int64_t channels, std::int64_t outputs) {
  std::int64_t floats = 0;
  each_panel(channels, outputs, [&](const Panel& panel) { floats = panel.offset + kProducts * panel.step; });
  return floats;
}

/// Rows of tiles that lie in one image.
struct Run {
  std::int64_t image, row, rows;
};
template <typename Work>
HFTA_INLINE void each_image(std::int64_t first, std::int64_t last, std::int64_t tile_rows, const Work& work) {
  while (first < last) {
    const Run run{first / tile_rows, first % tile_rows, std::min(tile_rows - first % tile_rows, last - first)};
    work(run);
    first += run.rows;
  }
}

/// Images as the transforms see them, and where each tile's numbers go: tile `[product, tile, channel]`.
struct Tiles {
  const float* images;
  std::int64_t count, channels, height, width;
  std::int64_t padding[2], kernel;  // 4 for inputs, 2 for gradients of outputs
  std::int64_t columns, tile_rows;
  float *band, *to;
  std::int64_t tiles, stride;  // room for tiles, and floats of each
};

/// Transforms the tiles of rows `[first, last)`.
HFTA_INLINE void transform_images(const Tiles& t, std::int64_t first, std::int64_t last) {
  const auto plane = t.height * t.width, band_columns = 2 * t.columns + t.kernel - 2, step = t.tiles * t.stride;
  for (std::int64_t c = 0; c < t.channels; c += kVector) {
    std::memset(t.band, 0, static_cast<std::size_t>((2 * (last - first) + t.kernel - 2) * band_columns * kVector) * sizeof(float));
    auto* to = t.to + c;
    each_image(first, last, t.tile_rows, [&](const Run& run) __attribute__((always_inline)) {
      const Band band{.channels = std::min(kVector, t.channels - c),
                      .height = t.height,
                      .width = t.width,
                      .first = 2 * run.row - t.padding[0],
                      .rows = 2 * run.rows + t.kernel - 2,
                      .left = t.padding[1],
                      .stride = band_columns};
      const bool readable = run.image + 1 < t.count || c + kVector < t.channels;
      fill_band(t.images + (run.image * t.channels + c) * plane, t.band, readable, band);
      for (std::int64_t row = 0; row < run.rows; ++row)
        for (std::int64_t column = 0; column < t.columns; ++column, to += t.stride) {
          const auto* tile = t.band + (2 * row * band_columns + 2 * column) * kVector;
          if (t.kernel == 4)
            transform_input(tile, band_columns, to, step);
          else
            transform_gradient(tile, band_columns, to, step);
        }
    });
  }
}

/// Sums of products of each tile `[product, tile, output]` to images.
struct Products {
  const float* sums;
  std::int64_t tiles, stride;
  float *band, *images;
  const float* bias;  // of the first of these outputs; null for none
  std::int64_t first_output, outputs, all_outputs;
};

HFTA_INLINE void transform_products(const Products& p, const DirectShape& s, std::int64_t tile_rows, std::int64_t columns, std::int64_t first,
                                    std::int64_t last) {
  const auto height = s.out_height(), width = s.out_width(), step = p.tiles * p.stride;
  for (std::int64_t o = 0; o < p.outputs; o += kVector) {
    const auto channels = std::min(kVector, p.outputs - o);
    Lanes16 bias{};
    if (p.bias) std::memcpy(&bias, p.bias + o, static_cast<std::size_t>(channels) * sizeof(float));
    const auto* from = p.sums + o;
    each_image(first, last, tile_rows, [&](const Run& run) __attribute__((always_inline)) {
      for (std::int64_t row = 0; row < run.rows; ++row)
        for (std::int64_t column = 0; column < columns; ++column, from += p.stride)
          transform_output(from, step, bias, p.band + (2 * row * 2 * columns + 2 * column) * kVector, 2 * columns);
      empty_band(p.band, p.images + (run.image * p.all_outputs + p.first_output + o) * height * width,
                 {.channels = channels, .height = height, .width = width, .first = 2 * run.row, .rows = 2 * run.rows, .left = 0, .stride = 2 * columns});
    });
  }
}

/// Kernels of sixteen outputs for one channel, `row` floats apart. `readable`: all are there, with a vector's room behind each.
HFTA_INLINE void load_kernels(const float* from, std::int64_t row, std::int64_t count, bool readable, Lanes16 (&g)[16]) {
  if (readable) {
    for (int i = 0; i < 16; ++i) load(g[i], from + i * row);
  } else {
    for (int i = 0; i < 16; ++i) {
      g[i] = Lanes16{};
      if (i < count) std::memcpy(&g[i], from + i * row, kTaps * sizeof(float));
    }
  }
  turn_square<float>(g);
}

HFTA_VECTOR_TARGETS
void weights_to_panel(const float* weight, bool turned, float* to, const Panel& panel, const DirectShape& s) {
  const auto row = turned ? kTaps : s.channels * kTaps, next = turned ? s.outputs * kTaps : kTaps;
  const auto* end = weight + s.outputs * s.channels * kTaps;
  for (std::int64_t o = 0; o < panel.width; o += kVector)
    for (std::int64_t c = 0; c < s.channels; ++c) {
      Lanes16 g[16];
      const auto count = std::min(kVector, s.outputs - panel.first - o);
      const auto* from = weight + (panel.first + o) * row + c * next;
      load_kernels(from, row, count, count == kVector && from + (kVector - 1) * row + kVector <= end, g);
      transform_weight(g, turned, to + c * panel.width + o, panel.step);
    }
}

/// Adds the rows `[count, columns]`, `stride` floats apart.
HFTA_VECTOR_TARGETS
void add_rows(const float* rows, std::int64_t count, std::int64_t stride, std::int64_t columns, float* sums) {
  for (std::int64_t column = 0; column < columns; column += kVector) {
    Lanes16 sum, row;
    load(sum, sums + column);
    for (std::int64_t i = 0; i < count; ++i) {
      load(row, rows + i * stride + column);
      sum += row;
    }
    store(sums + column, sum);
  }
}

HFTA_VECTOR_TARGETS
void images_to_tiles(const Tiles& tiles, std::int64_t first, std::int64_t last) { transform_images(tiles, first, last); }

HFTA_VECTOR_TARGETS
void products_to_images(const Products& products, const DirectShape& s, std::int64_t tile_rows, std::int64_t columns, std::int64_t first,
                        std::int64_t last) {
  transform_products(products, s, tile_rows, columns, first, last);
}

HFTA_VECTOR_TARGETS
void panel_to_weights(const float* sums, float* grad_weight, const Panel& panel, const DirectShape& s) {
  for (std::int64_t c = 0; c < s.channels; ++c)
    for (auto o = panel.first; o < std::min(panel.first + panel.width, s.outputs); o += kVector) {
      Lanes16 g[16];
      transform_weight_gradient(sums + c * panel.width + o - panel.first, panel.step, g);
      turn_square<float>(g);
      const auto count = std::min(kVector, s.outputs - o);
      for (std::int64_t i = 0; i < count; ++i) std::memcpy(grad_weight + ((o + i) * s.channels + c) * kTaps, &g[i], kTaps * sizeof(float));
    }
}

}  // namespace

std::int64_t Winograd::rows_of(std::int64_t floats_per_tile, std::int64_t fewest) const {
  const auto tiles = std::clamp(kBlockFloats / floats_per_tile, fewest, kMostTiles);
  return std::max<std::int64_t>(1, tiles / tile_columns_);
}

Winograd::Winograd(const DirectShape& shape) : shape_(shape) {
  tile_rows_ = (shape.out_height() + 1) / 2;
  tile_columns_ = (shape.out_width() + 1) / 2;
  in_stride_ = rounded_up(shape.channels, kVector) + kGap;
  out_stride_ = rounded_up(shape.outputs, kVector) + kGap;
  block_rows_ = rows_of(kProducts * in_stride_, kFewestTiles);
  block_tiles_ = rounded_up(block_rows_ * tile_columns_, kRowsTogether);
  chunk_ = std::max<std::int64_t>(64, kBlockFloats / (kProducts * block_tiles_) / 64 * 64);
  gradient_rows_ = rows_of(kProducts * (in_stride_ + out_stride_), kFewestGradientTiles);
  gradient_tiles_ = gradient_rows_ * tile_columns_;
}

namespace {

/// Floats of the bands that so many rows of tiles need.
std::int64_t band_floats(std::int64_t rows, std::int64_t columns) { return (2 * rows + 2) * (2 * columns + 2) * kVector; }

}  // namespace

std::int64_t Winograd::weight_floats() const { return all_panels_floats(shape_.channels, shape_.outputs); }

std::int64_t Winograd::scratch_floats() const {
  return band_floats(block_rows_, tile_columns_) + kProducts * block_tiles_ * (in_stride_ + std::min(chunk_, out_stride_) + kGap);
}

std::int64_t Winograd::gradient_scratch_floats() const {
  return band_floats(gradient_rows_, tile_columns_) + kProducts * gradient_tiles_ * (in_stride_ + out_stride_);
}

std::int64_t Winograd::sum_floats() const { return all_panels_floats(rounded_up(shape_.channels, kRowsTogether), shape_.outputs) + rounded_up(shape_.outputs, kVector); }

void Winograd::transform_weights(const float* weight, bool turned, float* transformed) const {
  each_panel(shape_.channels, shape_.outputs, [&](const Panel& panel) { weights_to_panel(weight, turned, transformed + panel.offset, panel, shape_); });
}

template <typename Transformed>
void Winograd::convolve_block(const float* input, const Transformed& transformed, const float* bias, float* output, std::int64_t images, std::int64_t row,
                              std::int64_t end, float* scratch) const {
  const auto& s = shape_;
  const auto stride = std::min(chunk_, rounded_up(s.outputs, kVector)) + kGap, count = (end - row) * tile_columns_;
  auto* const band = scratch;
  auto* const tiles = band + band_floats(block_rows_, tile_columns_);
  auto* const sums = tiles + kProducts * block_tiles_ * in_stride_;
  images_to_tiles({input, images, s.channels, s.height, s.width, {s.padding[0], s.padding[1]}, 4, tile_columns_, tile_rows_, band, tiles, block_tiles_, in_stride_},
                  row, end);
  // Rows that are computed beside the tiles: what lies there might be denormal, which is slow.
  for (std::int64_t i = 0; i < kProducts; ++i) std::fill(tiles + (i * block_tiles_ + count) * in_stride_, tiles + (i + 1) * block_tiles_ * in_stride_, 0.0F);
  each_panel(s.channels, s.outputs, [&](const Panel& panel) {
    const auto chunk = panel.first / chunk_ * chunk_;
    const auto* weights = transformed(panel);
    for (std::int64_t i = 0; i < kProducts; ++i)
      multiply({tiles + i * block_tiles_ * in_stride_, in_stride_, 1, weights + i * panel.step, panel.width,
                sums + i * block_tiles_ * stride + panel.first - chunk, stride, count, panel.width, s.channels, false});
    const auto outputs = std::min(panel.first + panel.width, s.outputs) - chunk;
    if (outputs == chunk_ || chunk + outputs == s.outputs)
      products_to_images({sums, block_tiles_, stride, band, output, bias ? bias + chunk : nullptr, chunk, outputs, s.outputs}, s, tile_rows_, tile_columns_, row, end);
  });
}

void Winograd::convolve(const float* input, const float* transformed, const float* bias, float* output, std::int64_t images, std::int64_t first,
                        std::int64_t last, float* scratch) const {
  for (auto row = first; row < last; row += block_rows_)
    convolve_block(input, [&](const Panel& panel) { return transformed + panel.offset; }, bias, output, images, row, std::min(last, row + block_rows_), scratch);
}

void Winograd::convolve_few(const float* input, const float* weight, bool turned, const float* bias, float* output, std::int64_t images, float* transformed,
                            float* scratch) const {
  const auto transform = [&](const Panel& panel) {
    weights_to_panel(weight, turned, transformed, panel, shape_);
    return transformed;
  };
  convolve_block(input, transform, bias, output, images, 0, images * tile_rows_, scratch);
}

std::int64_t Winograd::panel_floats() const { return kProducts * (shape_.channels * panel_width(rounded_up(shape_.outputs, kVector)) + kGap); }

void Winograd::add_gradients(const float* grad_output, const float* input, float* sums, std::int64_t images, std::int64_t first, std::int64_t last,
                             float* scratch) const {
  const auto& s = shape_;
  const auto channels = rounded_up(s.channels, kRowsTogether);
  auto* const band = scratch;
  auto* const inputs = band + band_floats(gradient_rows_, tile_columns_);
  auto* const gradients = inputs + kProducts * gradient_tiles_ * in_stride_;
  for (std::int64_t i = 1; i <= kProducts * gradient_tiles_; ++i) std::fill_n(inputs + i * in_stride_ - kGap, kGap, 0.0F);  // no denormals, as in `convolve`
  for (auto row = first; row < last; row += gradient_rows_) {
    const auto end = std::min(last, row + gradient_rows_), count = (end - row) * tile_columns_;
    images_to_tiles({input, images, s.channels, s.height, s.width, {s.padding[0], s.padding[1]}, 4, tile_columns_, tile_rows_, band, inputs, gradient_tiles_, in_stride_},
                    row, end);
    images_to_tiles({grad_output, images, s.outputs, s.out_height(), s.out_width(), {0, 0}, 2, tile_columns_, tile_rows_, band, gradients, gradient_tiles_, out_stride_},
                    row, end);
    // The product in the tile's middle holds the sum of its gradients: the bias'.
    add_rows(gradients + kMiddle * gradient_tiles_ * out_stride_, count, out_stride_, rounded_up(s.outputs, kVector), sums + all_panels_floats(channels, s.outputs));
    each_panel(channels, s.outputs, [&](const Panel& panel) {
      for (std::int64_t i = 0; i < kProducts; ++i)
        multiply({inputs + i * gradient_tiles_ * in_stride_, 1, in_stride_, gradients + i * gradient_tiles_ * out_stride_ + panel.first, out_stride_,
                  sums + panel.offset + i * panel.step, panel.width, s.channels, panel.width, count, true});
    });
  }
}

void Winograd::write_gradients(const float* sums, float* grad_weight, float* grad_bias) const {
  const auto channels = rounded_up(shape_.channels, kRowsTogether);
  each_panel(channels, shape_.outputs, [&](const Panel& panel) { panel_to_weights(sums + panel.offset, grad_weight, panel, shape_); });
  std::copy_n(sums + all_panels_floats(channels, shape_.outputs), shape_.outputs, grad_bias);
}

}  // namespace hfta::ops
