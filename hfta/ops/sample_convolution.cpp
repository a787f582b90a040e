#include "hfta/ops/sample_convolution.h"

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <torch/library.h>

#include <tuple>

#include "hfta/base/error.h"
#include "hfta/base/parallel.h"
#include "hfta/ops/image_stacks.h"
#include "hfta/ops/sample_convolution_kernel.h"

namespace hfta::ops {
namespace {

using at::Tensor;
using Sizes = std::vector<std::int64_t>;

constexpr auto kSamples = SampleConvolution::kSamples;

std::int64_t blocks_of(std::int64_t images) { return (images + kSamples - 1) / kSamples; }

template <typename T>
T* row_to(const Tensor& stack, std::int64_t lane) {
  return stack.numel() == 0 ? nullptr : stack.mutable_data_ptr<T>() + lane * stack.stride(0);
}

void check_result(const Tensor& out, const Sizes& sizes) {
  HFTA_CHECK(out.is_contiguous() && out.sizes() == sizes, "ops::sample_convolution: expected a contiguous result of ", at::IntArrayRef(sizes), ", got ", out.sizes());
}

/// Of one call: the shapes, and where its tensors are.
struct Call {
  DirectShape shape;
  SampleConvolution convolution;
  std::int64_t lanes, images;

  Call(const Tensor& input, const Tensor& weight, at::IntArrayRef padding, bool pooled)
      : shape(shape_of(Images{input}.size(1), Images{input}.size(2), Images{input}.size(3), weight, padding)),
        convolution(shape, pooled),
        lanes(weight.size(0)),
        images(Images{input}.size(0)) {}

  Sizes result_sizes() const { return {lanes, images, shape.outputs, convolution.result_height(), convolution.result_width()}; }
  Sizes image_sizes() const { return {lanes, images, shape.channels, shape.height, shape.width}; }
  std::int64_t result_numbers() const { return shape.outputs * convolution.result_height() * convolution.result_width(); }
  std::int64_t image_numbers() const { return shape.channels * shape.height * shape.width; }
};

Sizes which_sizes(const Call& call, bool pooled) { return pooled ? call.result_sizes() : Sizes{0}; }

// ---- operators

std::tuple<Tensor&, Tensor&> forward_out(const Tensor& input, const Tensor& weight, const std::optional<Tensor>& bias, at::IntArrayRef padding, bool pooled, Tensor& out,
                                         Tensor& which) {
  const Call call(input, weight, padding, pooled);
  check_result(out, call.result_sizes());
  check_result(which, which_sizes(call, pooled));
  const auto blocks = blocks_of(call.images);
  base::parallel_for(0, call.lanes * blocks, 1, [&](std::int64_t begin, std::int64_t end) {
    for (auto i = begin; i < end; ++i) {
      const auto lane = i / blocks, first = i % blocks * kSamples;
      auto* const places = row_to<std::uint8_t>(which, lane);
      call.convolution.forward(Images{input}.of<float>(lane) + first * call.image_numbers(), row_of<float>(weight, lane), bias ? row_of<float>(*bias, lane) : nullptr,
                               row_to<float>(out, lane) + first * call.result_numbers(), places ? places + first * call.result_numbers() : nullptr,
                               std::min(kSamples, call.images - first));
    }
  });
  return {out, which};
}

std::tuple<Tensor, Tensor> forward(const Tensor& input, const Tensor& weight, const std::optional<Tensor>& bias, at::IntArrayRef padding, bool pooled) {
  const Call call(input, weight, padding, pooled);
  auto out = at::empty(call.result_sizes(), input.options()), which = at::empty(which_sizes(call, pooled), input.options().dtype(at::kByte));
  forward_out(input, weight, bias, padding, pooled, out, which);
  return {out, which};
}

/// Where the gradients of a lane go; null: not asked for.
struct LaneGradients {
  const float *grad_output, *input, *weight;
  const std::uint8_t* which;
  float *grad_input, *grad_weight, *grad_bias;
};

/// Each thread's images have sums of their own, which are added in order.
void lane_backward(const Call& call, const LaneGradients& lane) {
  const auto blocks = blocks_of(call.images), size = call.convolution.sums_floats();
  const auto parts = at::in_parallel_region() ? 1 : std::min<std::int64_t>(blocks, at::get_num_threads());
  const auto sums = at::zeros({lane.grad_weight ? parts : 0, size}, at::kFloat);
  base::parallel_for(0, parts, 1, [&](std::int64_t begin, std::int64_t end) {
    for (auto part = begin; part < end; ++part)
      for (auto first = part * blocks / parts * kSamples; first < (part + 1) * blocks / parts * kSamples; first += kSamples) {
        const auto results = first * call.result_numbers(), numbers = first * call.image_numbers();
        call.convolution.backward(lane.grad_output + results, lane.which ? lane.which + results : nullptr, lane.input + numbers, lane.weight,
                                  lane.grad_input ? lane.grad_input + numbers : nullptr, lane.grad_weight ? sums.mutable_data_ptr<float>() + part * size : nullptr,
                                  std::min(kSamples, call.images - first));
      }
  });
  if (!lane.grad_weight) return;
  for (std::int64_t part = 1; part < parts; ++part) sums[0] += sums[part];
  call.convolution.write_sums(sums.const_data_ptr<float>(), lane.grad_weight, lane.grad_bias);
}

std::tuple<Tensor&, Tensor&, Tensor&> backward_out(const Tensor& grad_output, const std::optional<Tensor>& which, const Tensor& input, const Tensor& weight,
                                                   at::IntArrayRef padding, bool of_input, bool of_weight, Tensor& grad_input, Tensor& grad_weight, Tensor& grad_bias) {
  const Call call(input, weight, padding, which.has_value());
  check_result(grad_input, of_input ? call.image_sizes() : Sizes{0});
  check_result(grad_weight, of_weight ? weight.sizes().vec() : Sizes{0});
  check_result(grad_bias, of_weight ? Sizes{call.lanes, call.shape.outputs} : Sizes{0});
  const auto work = [&](std::int64_t lane) {
    lane_backward(call, {Images{grad_output}.of<float>(lane), Images{input}.of<float>(lane), row_of<float>(weight, lane),
                         which ? row_of<std::uint8_t>(*which, lane) : nullptr, row_to<float>(grad_input, lane), row_to<float>(grad_weight, lane),
                         row_to<float>(grad_bias, lane)});
  };
  if (call.lanes == 1) {
    work(0);
  } else {
    base::parallel_for(0, call.lanes, 1, [&](std::int64_t begin, std::int64_t end) {
      for (auto lane = begin; lane < end; ++lane) work(lane);
    });
  }
  return {grad_input, grad_weight, grad_bias};
}

std::tuple<Tensor, Tensor, Tensor> backward(const Tensor& grad_output, const std::optional<Tensor>& which, const Tensor& input, const Tensor& weight, at::IntArrayRef padding,
                                            bool of_input, bool of_weight) {
  const Call call(input, weight, padding, which.has_value());
  auto grad_input = at::empty(of_input ? call.image_sizes() : Sizes{0}, input.options());
  auto grad_weight = at::empty(of_weight ? weight.sizes().vec() : Sizes{0}, input.options());
  auto grad_bias = at::empty(of_weight ? Sizes{call.lanes, call.shape.outputs} : Sizes{0}, input.options());
  backward_out(grad_output, which, input, weight, padding, of_input, of_weight, grad_input, grad_weight, grad_bias);
  return {grad_input, grad_weight, grad_bias};
}

// ---- what the rules call

bool takes(const LaneTensor& input, const LaneTensor& weight, const ConvolutionOptions& options) {
  return plain_images(input, weight, options) && input.tensor.scalar_type() == at::kFloat && last_two(weight)[1] <= kDirectKernelWidth;
}

std::array<LaneTensor, 2> forward_of(const LaneTensor& input, const LaneTensor& weight, const std::optional<LaneTensor>& bias, const ConvolutionOptions& options,
                                     std::int64_t lanes, bool pooled) {
  const auto biases = bias ? std::optional(rows(*bias, lanes)) : std::nullopt;
  const auto [out, which] = call<decltype(forward)>("hfta::sample_convolution", images_of(input, lanes), rows(weight, lanes), biases, both(options.padding), pooled);
  return {LaneTensor{out, 0}, LaneTensor{which, 0}};
}

ConvolutionGradients gradients_of(const LaneTensor& grad_output, const std::optional<Tensor>& which, const LaneTensor& input, const LaneTensor& weight,
                                  const ConvolutionOptions& options, std::array<bool, 3> wanted, std::int64_t lanes) {
  const auto [of_input, of_weight, of_bias] =
      call<decltype(backward)>("hfta::sample_convolution_backward", rows(grad_output, lanes), which, images_of(input, lanes), rows(weight, lanes), both(options.padding),
                               wanted[0], wanted[1] || wanted[2]);
  ConvolutionGradients results;
  if (wanted[0]) results[0] = LaneTensor{of_input, 0};
  if (wanted[1]) results[1] = LaneTensor{of_weight, 0};
  if (wanted[2]) results[2] = LaneTensor{of_bias, 0};
  return results;
}

}  // namespace

std::optional<LaneTensor> sample_convolution(const LaneTensor& input, const LaneTensor& weight, const std::optional<LaneTensor>& bias,
                                             const ConvolutionOptions& options, std::int64_t lanes) {
  if (!takes(input, weight, options)) return std::nullopt;
  return forward_of(input, weight, bias, options, lanes, false)[0];
}

std::optional<ConvolutionGradients> sample_convolution_backward(const LaneTensor& grad_output, const LaneTensor& input, const LaneTensor& weight,
                                                                const ConvolutionOptions& options, std::array<bool, 3> wanted, std::int64_t lanes) {
  if (!takes(input, weight, options)) return std::nullopt;
  return gradients_of(grad_output, std::nullopt, input, weight, options, wanted, lanes);
}

std::optional<std::array<LaneTensor, 2>> pooled_sample_convolution(const LaneTensor& input, const LaneTensor& weight, const std::optional<LaneTensor>& bias,
                                                                   const ConvolutionOptions& options, std::int64_t lanes) {
  if (!takes(input, weight, options)) return std::nullopt;
  return forward_of(input, weight, bias, options, lanes, true);
}

std::optional<ConvolutionGradients> pooled_sample_convolution_backward(const LaneTensor& grad_output, const LaneTensor& which, const LaneTensor& input,
                                                                       const LaneTensor& weight, const ConvolutionOptions& options, std::array<bool, 3> wanted,
                                                                       std::int64_t lanes) {
  if (!takes(input, weight, options)) return std::nullopt;
  return gradients_of(grad_output, rows(which, lanes), input, weight, options, wanted, lanes);
}

}  // namespace hfta::ops

// Images `[lanes or none, N, C, H, W]`, weights `[lanes, O, C, kernel...]`, all else `[lanes, ...]`; what is not asked for is empty.
TORCH_LIBRARY_FRAGMENT(hfta, library) {
  library.def("sample_convolution(Tensor input, Tensor weight, Tensor? bias, int[2] padding, bool pooled) -> (Tensor, Tensor)");
  library.def("sample_convolution.out(Tensor input, Tensor weight, Tensor? bias, int[2] padding, bool pooled, *, Tensor(a!) out, Tensor(b!) which) "
              "-> (Tensor(a!), Tensor(b!))");
  library.def("sample_convolution_backward(Tensor grad_output, Tensor? which, Tensor input, Tensor weight, int[2] padding, bool of_input, bool of_weight) "
              "-> (Tensor, Tensor, Tensor)");
  library.def("sample_convolution_backward.out(Tensor grad_output, Tensor? which, Tensor input, Tensor weight, int[2] padding, bool of_input, bool of_weight, *, "
              "Tensor(a!) grad_input, Tensor(b!) grad_weight, Tensor(c!) grad_bias) -> (Tensor(a!), Tensor(b!), Tensor(c!))");
  library.impl("sample_convolution", c10::DispatchKey::CPU, TORCH_FN(hfta::ops::forward));
  library.impl("sample_convolution.out", c10::DispatchKey::CPU, TORCH_FN(hfta::ops::forward_out));
  library.impl("sample_convolution_backward", c10::DispatchKey::CPU, TORCH_FN(hfta::ops::backward));
  library.impl("sample_convolution_backward.out", c10::DispatchKey::CPU, TORCH_FN(hfta::ops::backward_out));
}
