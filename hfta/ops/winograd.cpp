#include "hfta/ops/winograd.h"

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <torch/library.h>

#include "hfta/base/error.h"
#include "hfta/base/parallel.h"
#include "hfta/ops/image_stacks.h"
#include "hfta/ops/winograd_kernel.h"

namespace hfta::ops {
namespace {

/// Rows of tiles that are worth a thread of their own.
std::int64_t rows_per_thread(const Winograd& winograd) {
  constexpr std::int64_t kProductsPerThread = 1 << 20;
  const auto& s = winograd.shape();
  return std::max<std::int64_t>(1, kProductsPerThread / std::max<std::int64_t>(1, s.outputs * s.channels * s.out_width() * 8));
}

at::Tensor floats(std::int64_t count) { return at::empty({count}, at::kFloat); }

void convolve_few(const Winograd& winograd, const at::Tensor& input, const at::Tensor& weight, const std::optional<at::Tensor>& bias, bool turned,
                  const at::Tensor& out) {
  const Images images{input};
  base::parallel_for(0, weight.size(0), 1, [&](std::int64_t begin, std::int64_t end) {
    const auto scratch = floats(winograd.scratch_floats()), panel = floats(winograd.panel_floats());
    for (auto lane = begin; lane < end; ++lane)
      winograd.convolve_few(images.of<float>(lane), row_of<float>(weight, lane), turned, bias ? row_of<float>(*bias, lane) : nullptr,
                            out.mutable_data_ptr<float>() + lane * out.stride(0), images.size(0), panel.mutable_data_ptr<float>(),
                            scratch.mutable_data_ptr<float>());
  });
}

/// Convolves each lane's images with its weights, or with these turned round.
void convolve(const at::Tensor& input, const at::Tensor& weight, const std::optional<at::Tensor>& bias, bool turned, const DirectShape& s, const at::Tensor& out) {
  const Winograd winograd(s);
  const Images images{input};
  const auto lanes = weight.size(0), count = images.size(0), rows = count * winograd.tile_rows(), size = winograd.weight_floats();
  if (winograd.are_few(count) && (at::in_parallel_region() || lanes >= at::get_num_threads())) return convolve_few(winograd, input, weight, bias, turned, out);
  const auto transformed = floats(lanes * size);
  auto* const weights = transformed.mutable_data_ptr<float>();
  base::parallel_for(0, lanes, 1, [&](std::int64_t begin, std::int64_t end) {
    for (auto lane = begin; lane < end; ++lane) winograd.transform_weights(row_of<float>(weight, lane), turned, weights + lane * size);
  });
  base::parallel_for(0, lanes * rows, rows_per_thread(winograd), [&](std::int64_t begin, std::int64_t end) {
    const auto scratch = floats(winograd.scratch_floats());
    while (begin < end) {
      const auto lane = begin / rows, first = begin % rows, part = std::min(rows - first, end - begin);
      winograd.convolve(images.of<float>(lane), weights + lane * size, bias ? row_of<float>(*bias, lane) : nullptr,
                        out.mutable_data_ptr<float>() + lane * out.stride(0), count, first, first + part, scratch.mutable_data_ptr<float>());
      begin += part;
    }
  });
}

/// Each thread's rows of tiles have sums of their own, which are added in order.
void weight_gradient_of(const float* gradients, const float* images, float* weight, float* bias, std::int64_t count, const Winograd& winograd) {
  const auto rows = count * winograd.tile_rows(), size = winograd.sum_floats();
  const auto parts = std::clamp<std::int64_t>(rows / rows_per_thread(winograd), 1, at::in_parallel_region() ? 1 : at::get_num_threads());
  const auto sums = at::zeros({parts, size}, at::kFloat);
  base::parallel_for(0, parts, 1, [&](std::int64_t begin, std::int64_t end) {
    const auto scratch = floats(winograd.gradient_scratch_floats());
    for (auto part = begin; part < end; ++part)
      winograd.add_gradients(gradients, images, sums.mutable_data_ptr<float>() + part * size, count, part * rows / parts, (part + 1) * rows / parts,
                             scratch.mutable_data_ptr<float>());
  });
  for (std::int64_t part = 1; part < parts; ++part) sums[0] += sums[part];
  winograd.write_gradients(sums.const_data_ptr<float>(), weight, bias);
}

// ---- operators

std::vector<std::int64_t> image_sizes(std::int64_t lanes, std::int64_t images, std::int64_t channels, std::int64_t height, std::int64_t width) {
  return {lanes, images, channels, height, width};
}

void check_result(const at::Tensor& out, const std::vector<std::int64_t>& sizes) {
  HFTA_CHECK(out.is_contiguous() && out.sizes() == sizes, "ops::winograd: expected a contiguous result of ", at::IntArrayRef(sizes), ", got ", out.sizes());
}

std::vector<std::int64_t> output_sizes(const at::Tensor& input, const at::Tensor& weight, const DirectShape& s) {
  return image_sizes(weight.size(0), Images{input}.size(0), s.outputs, s.out_height(), s.out_width());
}

DirectShape forward_shape(const at::Tensor& input, const at::Tensor& weight, at::IntArrayRef padding) {
  const Images images{input};
  return shape_of(images.size(1), images.size(2), images.size(3), weight, padding);
}

at::Tensor& forward_out(const at::Tensor& input, const at::Tensor& weight, const std::optional<at::Tensor>& bias, at::IntArrayRef padding, at::Tensor& out) {
  const auto s = forward_shape(input, weight, padding);
  check_result(out, output_sizes(input, weight, s));
  convolve(input, weight, bias, false, s, out);
  return out;
}

at::Tensor forward(const at::Tensor& input, const at::Tensor& weight, const std::optional<at::Tensor>& bias, at::IntArrayRef padding) {
  auto out = at::empty(output_sizes(input, weight, forward_shape(input, weight, padding)), input.options());
  return forward_out(input, weight, bias, padding, out);
}

at::Tensor& input_gradient_out(const at::Tensor& grad_output, const at::Tensor& weight, at::IntArrayRef padding, at::IntArrayRef size, at::Tensor& out) {
  check_result(out, image_sizes(weight.size(0), Images{grad_output}.size(0), weight.size(2), size[0], size[1]));
  convolve(grad_output, weight, std::nullopt, true, turned(shape_of(weight.size(2), size[0], size[1], weight, padding)), out);
  return out;
}

at::Tensor input_gradient(const at::Tensor& grad_output, const at::Tensor& weight, at::IntArrayRef padding, at::IntArrayRef size) {
  auto out = at::empty(image_sizes(weight.size(0), Images{grad_output}.size(0), weight.size(2), size[0], size[1]), weight.options());
  return input_gradient_out(grad_output, weight, padding, size, out);
}

std::tuple<at::Tensor&, at::Tensor&> weight_gradient_out(const at::Tensor& grad_output, const at::Tensor& input, at::IntArrayRef padding, at::Tensor& weight,
                                                         at::Tensor& bias) {
  const Images images{input}, gradients{grad_output};
  check_result(weight, image_sizes(grad_output.size(0), grad_output.size(2), images.size(1), 3, 3));
  check_result(bias, {grad_output.size(0), grad_output.size(2)});
  const auto s = forward_shape(input, weight, padding);
  const Winograd winograd(s);
  const auto lane_gradient = [&](std::int64_t lane) {
    weight_gradient_of(gradients.of<float>(lane), images.of<float>(lane), weight.mutable_data_ptr<float>() + lane * weight.stride(0),
                       bias.mutable_data_ptr<float>() + lane * s.outputs, images.size(0), winograd);
  };
  if (weight.size(0) == 1) {
    lane_gradient(0);
  } else {
    base::parallel_for(0, weight.size(0), 1, [&](std::int64_t begin, std::int64_t end) {
      for (auto lane = begin; lane < end; ++lane) lane_gradient(lane);
    });
  }
  return {weight, bias};
}

std::tuple<at::Tensor, at::Tensor> weight_gradient(const at::Tensor& grad_output, const at::Tensor& input, at::IntArrayRef padding) {
  const auto lanes = grad_output.size(0), outputs = grad_output.size(2);
  auto weight = at::empty({lanes, outputs, Images{input}.size(1), 3, 3}, input.options()), bias = at::empty({lanes, outputs}, input.options());
  weight_gradient_out(grad_output, input, padding, weight, bias);
  return {weight, bias};
}

bool takes(const LaneTensor& input, const LaneTensor& weight, const ConvolutionOptions& options) {
  return plain_images(input, weight, options) && input.tensor.scalar_type() == at::kFloat && last_two(weight) == std::array<std::int64_t, 2>{3, 3};
}

}  // namespace

std::optional<LaneTensor> winograd_convolution(const LaneTensor& input, const LaneTensor& weight, const std::optional<LaneTensor>& bias,
                                               const ConvolutionOptions& options, std::int64_t lanes) {
  if (!takes(input, weight, options)) return std::nullopt;
  const auto biases = bias ? std::optional(rows(*bias, lanes)) : std::nullopt;
  return LaneTensor{call<decltype(forward)>("hfta::winograd", images_of(input, lanes), rows(weight, lanes), biases, both(options.padding)), 0};
}

std::optional<ConvolutionGradients> winograd_convolution_backward(const LaneTensor& grad_output, const LaneTensor& input, const LaneTensor& weight,
                                                                  const ConvolutionOptions& options, std::array<bool, 3> wanted, std::int64_t lanes) {
  if (!takes(input, weight, options)) return std::nullopt;
  const auto padding = both(options.padding);
  const auto gradients = rows(grad_output, lanes);
  ConvolutionGradients results;
  if (wanted[0]) results[0] = LaneTensor{call<decltype(input_gradient)>("hfta::winograd_input", gradients, rows(weight, lanes), padding, last_two(input)), 0};
  if (wanted[1] || wanted[2]) {
    const auto [of_weight, of_bias] = call<decltype(weight_gradient)>("hfta::winograd_weight", gradients, images_of(input, lanes), padding);
    if (wanted[1]) results[1] = LaneTensor{of_weight, 0};
    if (wanted[2]) results[2] = LaneTensor{of_bias, 0};
  }
  return results;
}

}  // namespace hfta::ops

// Images `[lanes or none, N, C, H, W]`, weights `[lanes, O, C, 3, 3]`, all else `[lanes, ...]`.
TORCH_LIBRARY_FRAGMENT(hfta, library) {
  library.def("winograd(Tensor input, Tensor weight, Tensor? bias, int[2] padding) -> Tensor");
  library.def("winograd.out(Tensor input, Tensor weight, Tensor? bias, int[2] padding, *, Tensor(a!) out) -> Tensor(a!)");
  library.def("winograd_input(Tensor grad_output, Tensor weight, int[2] padding, int[2] size) -> Tensor");
  library.def("winograd_input.out(Tensor grad_output, Tensor weight, int[2] padding, int[2] size, *, Tensor(a!) out) -> Tensor(a!)");
  library.def("winograd_weight(Tensor grad_output, Tensor input, int[2] padding) -> (Tensor, Tensor)");
  library.def("winograd_weight.out(Tensor grad_output, Tensor input, int[2] padding, *, Tensor(a!) weight, Tensor(b!) bias) -> (Tensor(a!), Tensor(b!))");
  library.impl("winograd", c10::DispatchKey::CPU, TORCH_FN(hfta::ops::forward));
  library.impl("winograd.out", c10::DispatchKey::CPU, TORCH_FN(hfta::ops::forward_out));
  library.impl("winograd_input", c10::DispatchKey::CPU, TORCH_FN(hfta::ops::input_gradient));
  library.impl("winograd_input.out", c10::DispatchKey::CPU, TORCH_FN(hfta::ops::input_gradient_out));
  library.impl("winograd_weight", c10::DispatchKey::CPU, TORCH_FN(hfta::ops::weight_gradient));
  library.impl("winograd_weight.out", c10::DispatchKey::CPU, TORCH_FN(hfta::ops::weight_gradient_out));
}
