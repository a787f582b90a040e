#include "hfta/ops/direct_convolution.h"

#include <ATen/ops/empty.h>
#include <torch/library.h>

#include <algorithm>
#include <tuple>

#include "hfta/base/error.h"
#include "hfta/base/parallel.h"
#include "hfta/ops/direct_convolution_kernel.h"
#include "hfta/ops/image_stacks.h"

namespace hfta::ops {
namespace {

/// Products below which a thread of its own costs more than it saves.
constexpr std::int64_t kProductsPerThread = 1 << 20;

/// Runs `work(lane, first image, images)` for all images of all lanes, on several threads where there is enough to do.
template <typename Work>
void each_part(std::int64_t lanes, std::int64_t images, std::int64_t products_per_image, const Work& work) {
  base::parallel_for(0, lanes * images, std::max<std::int64_t>(1, kProductsPerThread / std::max<std::int64_t>(products_per_image, 1)),
                     [&](std::int64_t begin, std::int64_t end) {
                       while (begin < end) {
                         const auto lane = begin / images, first = begin % images, count = std::min(images - first, end - begin);
                         work(lane, first, count);
                         begin += count;
                       }
                     });
}

std::int64_t products(const DirectShape& s) { return s.out_height() * s.out_width() * s.outputs * s.channels * s.kernel[0] * s.kernel[1]; }

template <typename T>
void run_forward(const at::Tensor& input, const at::Tensor& weight, const std::optional<at::Tensor>& bias, const DirectShape& s, const at::Tensor& out) {
  const Images images{input};
  const auto count = images.size(0), in_size = s.channels * s.height * s.width, out_size = s.outputs * s.out_height() * s.out_width();
  each_part(weight.size(0), count, products(s), [&](std::int64_t lane, std::int64_t first, std::int64_t part) {
    direct_convolution(images.of<T>(lane) + first * in_size, row_of<T>(weight, lane), bias ? row_of<T>(*bias, lane) : nullptr,
                       out.mutable_data_ptr<T>() + (lane * count + first) * out_size, part, s);
  });
}

std::vector<std::int64_t> output_sizes(const at::Tensor& input, const at::Tensor& weight, const DirectShape& s) {
  return {weight.size(0), Images{input}.size(0), s.outputs, s.out_height(), s.out_width()};
}

at::Tensor& forward_out(const at::Tensor& input, const at::Tensor& weight, const std::optional<at::Tensor>& bias, at::IntArrayRef padding, at::Tensor& out) {
  const Images images{input};
  const auto s = shape_of(images.size(1), images.size(2), images.size(3), weight, padding);
  HFTA_CHECK(out.is_contiguous() && out.sizes() == output_sizes(input, weight, s), "ops::direct_convolution: expected a contiguous result of ",
             at::IntArrayRef(output_sizes(input, weight, s)), ", got ", out.sizes());
  input.scalar_type() == at::kFloat ? run_forward<float>(input, weight, bias, s, out) : run_forward<double>(input, weight, bias, s, out);
  return out;
}

at::Tensor forward(const at::Tensor& input, const at::Tensor& weight, const std::optional<at::Tensor>& bias, at::IntArrayRef padding) {
  const Images images{input};
  const auto s = shape_of(images.size(1), images.size(2), images.size(3), weight, padding);
  auto out = at::empty(output_sizes(input, weight, s), input.options());
  return forward_out(input, weight, bias, padding, out);
}

// ---- backward

template <typename T>
void run_input_gradient(const at::Tensor& grad_output, const at::Tensor& weight, const DirectShape& s, const at::Tensor& out) {
  const Images gradients{grad_output};
  const auto count = gradients.size(0), in_size = s.channels * s.height * s.width, out_size = s.outputs * s.out_height() * s.out_width();
  each_part(weight.size(0), count, products(s), [&](std::int64_t lane, std::int64_t first, std::int64_t part) {
    direct_input_gradient(gradients.of<T>(lane) + first * out_size, row_of<T>(weight, lane), out.mutable_data_ptr<T>() + (lane * count + first) * in_size,
                          part, s);
  });
}

at::Tensor& input_gradient_out(const at::Tensor& grad_output, const at::Tensor& weight, at::IntArrayRef padding, at::IntArrayRef size, at::Tensor& out) {
  const auto s = shape_of(weight.size(2), size[0], size[1], weight, padding);
  const std::vector<std::int64_t> sizes{weight.size(0), Images{grad_output}.size(0), s.channels, s.height, s.width};
  HFTA_CHECK(out.is_contiguous() && out.sizes() == sizes, "ops::direct_convolution: expected a contiguous gradient of ", at::IntArrayRef(sizes), ", got ",
             out.sizes());
  weight.scalar_type() == at::kFloat ? run_input_gradient<float>(grad_output, weight, s, out) : run_input_gradient<double>(grad_output, weight, s, out);
  return out;
}

at::Tensor input_gradient(const at::Tensor& grad_output, const at::Tensor& weight, at::IntArrayRef padding, at::IntArrayRef size) {
  auto out = at::empty({weight.size(0), Images{grad_output}.size(0), weight.size(2), size[0], size[1]}, weight.options());
  return input_gradient_out(grad_output, weight, padding, size, out);
}

template <typename T>
void run_weight_gradient(const at::Tensor& grad_output, const at::Tensor& input, const DirectShape& s, const at::Tensor& weight, const at::Tensor& bias) {
  const Images images{input}, gradients{grad_output};
  base::parallel_for(0, weight.size(0), 1, [&](std::int64_t begin, std::int64_t end) {
    for (auto lane = begin; lane < end; ++lane)
      direct_weight_gradient(gradients.of<T>(lane), images.of<T>(lane), weight.mutable_data_ptr<T>() + lane * weight.stride(0),
                             bias.mutable_data_ptr<T>() + lane * s.outputs, images.size(0), s);
  });
}

std::tuple<at::Tensor&, at::Tensor&> weight_gradient_out(const at::Tensor& grad_output, const at::Tensor& input, at::IntArrayRef padding,
                                                         at::IntArrayRef kernel, at::Tensor& weight, at::Tensor& bias) {
  const Images images{input};
  const std::vector<std::int64_t> sizes{grad_output.size(0), grad_output.size(2), images.size(1), kernel[0], kernel[1]};
  HFTA_CHECK(weight.is_contiguous() && weight.sizes() == sizes && bias.is_contiguous() && bias.numel() == sizes[0] * sizes[1],
             "ops::direct_convolution: expected a contiguous gradient of ", at::IntArrayRef(sizes), ", got ", weight.sizes());
  const auto s = shape_of(images.size(1), images.size(2), images.size(3), weight, padding);
  input.scalar_type() == at::kFloat ? run_weight_gradient<float>(grad_output, input, s, weight, bias)
                                    : run_weight_gradient<double>(grad_output, input, s, weight, bias);
  return {weight, bias};
}

std::tuple<at::Tensor, at::Tensor> weight_gradient(const at::Tensor& grad_output, const at::Tensor& input, at::IntArrayRef padding,
                                                   at::IntArrayRef kernel) {
  const auto lanes = grad_output.size(0), outputs = grad_output.size(2);
  auto weight = at::empty({lanes, outputs, Images{input}.size(1), kernel[0], kernel[1]}, input.options()), bias = at::empty({lanes, outputs}, input.options());
  weight_gradient_out(grad_output, input, padding, kernel, weight, bias);
  return {weight, bias};
}

// ---- what the rules call

bool takes(const LaneTensor& input, const LaneTensor& weight, const ConvolutionOptions& options) {
  return plain_images(input, weight, options) && last_two(weight)[1] <= kDirectKernelWidth;
}

}  // namespace

std::optional<LaneTensor> direct_convolution(const LaneTensor& input, const LaneTensor& weight, const std::optional<LaneTensor>& bias,
                                             const ConvolutionOptions& options, std::int64_t lanes) {
  if (!takes(input, weight, options)) return std::nullopt;
  const auto padding = both(options.padding);
  const auto biases = bias ? std::optional(rows(*bias, lanes)) : std::nullopt;
  return LaneTensor{call<decltype(forward)>("hfta::direct_convolution", images_of(input, lanes), rows(weight, lanes), biases, padding), 0};
}

std::optional<ConvolutionGradients> direct_convolution_backward(const LaneTensor& grad_output, const LaneTensor& input, const LaneTensor& weight,
                                                                const ConvolutionOptions& options, std::array<bool, 3> wanted, std::int64_t lanes) {
  if (!takes(input, weight, options)) return std::nullopt;
  const auto padding = both(options.padding);
  const auto kernel = last_two(weight), size = last_two(input);
  const auto gradients = rows(grad_output, lanes);
  ConvolutionGradients results;
  if (wanted[0]) results[0] = LaneTensor{call<decltype(input_gradient)>("hfta::direct_convolution_input", gradients, rows(weight, lanes), padding, size), 0};
  if (wanted[1] || wanted[2]) {
    const auto [of_weight, of_bias] = call<decltype(weight_gradient)>("hfta::direct_convolution_weight", gradients, images_of(input, lanes), padding, kernel);
    if (wanted[1]) results[1] = LaneTensor{of_weight, 0};
    if (wanted[2]) results[2] = LaneTensor{of_bias, 0};
  }
  return results;
}

}  // namespace hfta::ops

// Images `[lanes or none, N, C, H, W]`, weights `[lanes, O, C, kernel...]`, all else `[lanes, ...]`.
TORCH_LIBRARY_FRAGMENT(hfta, library) {
  library.def("direct_convolution(Tensor input, Tensor weight, Tensor? bias, int[2] padding) -> Tensor");
  library.def("direct_convolution.out(Tensor input, Tensor weight, Tensor? bias, int[2] padding, *, Tensor(a!) out) -> Tensor(a!)");
  library.def("direct_convolution_input(Tensor grad_output, Tensor weight, int[2] padding, int[2] size) -> Tensor");
  library.def("direct_convolution_input.out(Tensor grad_output, Tensor weight, int[2] padding, int[2] size, *, Tensor(a!) out) -> Tensor(a!)");
  library.def("direct_convolution_weight(Tensor grad_output, Tensor input, int[2] padding, int[2] kernel) -> (Tensor, Tensor)");
  library.def("direct_convolution_weight.out(Tensor grad_output, Tensor input, int[2] padding, int[2] kernel, *, Tensor(a!) weight, Tensor(b!) bias) "
              "-> (Tensor(a!), Tensor(b!))");
  library.impl("direct_convolution", c10::DispatchKey::CPU, TORCH_FN(hfta::ops::forward));
  library.impl("direct_convolution.out", c10::DispatchKey::CPU, TORCH_FN(hfta::ops::forward_out));
  library.impl("direct_convolution_input", c10::DispatchKey::CPU, TORCH_FN(hfta::ops::input_gradient));
  library.impl("direct_convolution_input.out", c10::DispatchKey::CPU, TORCH_FN(hfta::ops::input_gradient_out));
  library.impl("direct_convolution_weight", c10::DispatchKey::CPU, TORCH_FN(hfta::ops::weight_gradient));
  library.impl("direct_convolution_weight.out", c10::DispatchKey::CPU, TORCH_FN(hfta::ops::weight_gradient_out));
}
