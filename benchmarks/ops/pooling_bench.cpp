#include <ATen/ops/adaptive_max_pool2d.h>
#include <ATen/ops/max_pool2d_with_indices.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/stack.h>

#include "benchmarks/ops/rule_bench.h"

namespace hfta::bench {
namespace {

using Sizes = std::vector<std::int64_t>;

void add_pooling(std::int64_t lanes, const char* name, std::int64_t channels, std::int64_t size, std::int64_t kernel, std::int64_t padding) {
  const auto images = at::randn({lanes, 32, channels, size, size});
  const Sizes window{kernel, kernel}, stride{2, 2}, frame{padding, padding}, one{1, 1};
  std::vector<at::Tensor> indices;
  at::Tensor out;
  for (std::int64_t lane = 0; lane < lanes; ++lane) {
    std::tie(out, indices.emplace_back()) = at::max_pool2d_with_indices(images[lane], window, stride, frame);
  }
  auto sizes = out.sizes().vec();
  sizes.insert(sizes.begin(), lanes);
  add_rule_case({"aten::max_pool2d_with_indices", name, lanes, {images, window, stride, frame, one, false}, {true, false, false, false, false, false}});
  add_rule_case({"aten::max_pool2d_with_indices_backward", name, lanes,
                 {at::randn(sizes), images, window, stride, frame, one, false, at::stack(indices)},
                 {true, true, false, false, false, false, false, true}});
}

/// Averages over windows, and over what makes images of 4 x 4.
void add_averages(std::int64_t lanes, const char* name, std::int64_t channels, std::int64_t size) {
  const auto images = at::randn({lanes, 32, channels, size, size}), halves = at::randn({lanes, 32, channels, size / 2, size / 2}), small = at::randn({lanes, 32, channels, 4, 4});
  const Sizes two{2, 2}, zero{0, 0}, four{4, 4};
  const c10::IValue none;
  add_rule_case({"aten::avg_pool2d", name, lanes, {images, two, two, zero, false, true, none}, {true, false, false, false, false, false, false}});
  add_rule_case({"aten::avg_pool2d_backward", name, lanes, {halves, images, two, two, zero, false, true, none}, {true, true, false, false, false, false, false, false}});
  add_rule_case({"aten::_adaptive_avg_pool2d", name, lanes, {images, four}, {true, false}});
  add_rule_case({"aten::_adaptive_avg_pool2d_backward", name, lanes, {small, images}, {true, true}});
  std::vector<at::Tensor> indices;
  for (std::int64_t lane = 0; lane < lanes; ++lane) indices.push_back(std::get<1>(at::adaptive_max_pool2d(images[lane], four)));
  add_rule_case({"aten::adaptive_max_pool2d", name, lanes, {images, four}, {true, false}});
  add_rule_case({"aten::adaptive_max_pool2d_backward", name, lanes, {small, images, at::stack(indices)}, {true, true, true}});
}

/// Images twice as large.
void add_upsampling(std::int64_t lanes, const char* name, std::int64_t channels, std::int64_t size) {
  const auto images = at::randn({lanes, 32, channels, size, size}), large = at::randn({lanes, 32, channels, 2 * size, 2 * size});
  const Sizes to{2 * size, 2 * size}, from{32, channels, size, size};
  const c10::IValue none;
  add_rule_case({"aten::upsample_nearest2d", name, lanes, {images, to, none, none}, {true, false, false, false}});
  add_rule_case({"aten::upsample_nearest2d_backward", name, lanes, {large, to, from, none, none}, {true, false, false, false, false}});
  add_rule_case({"aten::upsample_bilinear2d", name, lanes, {images, to, false, none, none}, {true, false, false, false, false}});
  add_rule_case({"aten::upsample_bilinear2d_backward", name, lanes, {large, to, from, false, none, none}, {true, false, false, false, false, false}});
}

[[maybe_unused]] const bool kAdded = [] {
  for (const std::int64_t lanes : {1, 4}) {
    add_pooling(lanes, "16x28", 16, 28, 2, 0);
    add_pooling(lanes, "32x14", 32, 14, 2, 0);
    add_pooling(lanes, "64x56kernel3", 64, 56, 3, 1);
    add_averages(lanes, "16x28", 16, 28);
    add_averages(lanes, "64x8", 64, 8);
    add_upsampling(lanes, "16x14", 16, 14);
  }
  return true;
}();

}  // namespace
}  // namespace hfta::bench
