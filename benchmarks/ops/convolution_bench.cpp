#include <ATen/ops/convolution.h>
#include <ATen/ops/randn.h>

#include "benchmarks/ops/rule_bench.h"

namespace hfta::bench {
namespace {

using Sizes = std::vector<std::int64_t>;

struct Shape {
  const char* name;
  std::int64_t in, out, size, kernel, stride, padding;
  bool shared_input;
};

void add_convolution(std::int64_t lanes, const Shape& s) {
  constexpr std::int64_t kBatch = 32;
  const auto images = at::randn({kBatch, s.in, s.size, s.size});
  const auto input = s.shared_input ? images : at::randn({lanes, kBatch, s.in, s.size, s.size});
  const auto weight = at::randn({lanes, s.out, s.in, s.kernel, s.kernel}), bias = at::randn({lanes, s.out});
  const Sizes stride{s.stride, s.stride}, padding{s.padding, s.padding}, one{1, 1}, zero{0, 0};
  add_rule_case({"aten::convolution", s.name, lanes, {input, weight, bias, stride, padding, one, false, zero, 1},
                 {!s.shared_input, true, true, false, false, false, false, false, false}});
  auto sizes = at::convolution(images, weight[0], {}, stride, padding, one, false, zero, 1).sizes().vec();
  sizes.insert(sizes.begin(), lanes);
  const c10::List<bool> mask({!s.shared_input, true, true});
  add_rule_case({"aten::convolution_backward", s.name, lanes,
                 {at::randn(sizes), input, weight, Sizes{s.out}, stride, padding, one, false, zero, 1, mask},
                 {true, !s.shared_input, true, false, false, false, false, false, false, false, false}});
}

[[maybe_unused]] const bool kAdded = [] {
  for (const std::int64_t lanes : {1, 4, 8}) {
    add_convolution(lanes, {"1to16x28", 1, 16, 28, 3, 1, 1, true});
    add_convolution(lanes, {"16to32x14", 16, 32, 14, 3, 1, 1, false});
    add_convolution(lanes, {"64to64x16", 64, 64, 16, 3, 1, 1, false});
    add_convolution(lanes, {"6to16x14kernel5", 6, 16, 14, 5, 1, 0, false});
    for (const auto& s : {Shape{"64to64x32", 64, 64, 32, 3, 1, 1, false}, Shape{"128to128x16", 128, 128, 16, 3, 1, 1, false},
                          Shape{"256to256x8", 256, 256, 8, 3, 1, 1, false}, Shape{"512to512x4", 512, 512, 4, 3, 1, 1, false},
                          Shape{"64to128x32stride2", 64, 128, 32, 3, 2, 1, false}, Shape{"64to128x32kernel1stride2", 64, 128, 32, 1, 2, 0, false}})
      if (lanes == 1) add_convolution(lanes, s);
    add_convolution(lanes, {"3to64x64stride2", 3, 64, 64, 4, 2, 1, true});
    add_convolution(lanes, {"64to128x16kernel1", 64, 128, 16, 1, 1, 0, false});
  }
  return true;
}();

}  // namespace
}  // namespace hfta::bench
