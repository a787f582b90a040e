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

[[maybe_unused]] const bool kAdded = [] {
  for (const std::int64_t lanes : {1, 4}) {
    add_pooling(lanes, "16x28", 16, 28, 2, 0);
    add_pooling(lanes, "32x14", 32, 14, 2, 0);
    add_pooling(lanes, "64x56kernel3", 64, 56, 3, 1);
  }
  return true;
}();

}  // namespace
}  // namespace hfta::bench
