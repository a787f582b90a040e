#include "hfta/ops/direct_convolution.h"

#include <ATen/Parallel.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/empty.h>
#include <torch/library.h>

#include <algorithm>
#include <tuple>

#include "hfta/base/error.h"
#include "hfta/ops/direct_convolution_kernel.h"

namespace hfta::ops {
namespace {

/// Products below which a thread of its own costs more than it saves.
constexpr std::int64_t kProductsPerThread = 1 << 20;

/// Each lane's images `[lanes or none, N, C, H, W]`.
struct Images {
  const at::Tensor& tensor;
  bool per_lane() const { return tensor.dim() == 5; }
  std::int64_t size(int axis) const { return tensor.size(axis + (per_lane() ? 1 : 0)); }
  template <typename T>
  const T* of(std::int64_t lane) const {
    return tensor.const_data_ptr<T>() + (per_lane() ? lane * tensor.stride(0) : 0);
  }
};

template <typename T>
const T* row_of(const at::Tensor& stack, std::int64_t lane) {
  return stack.const_data_ptr<T>() + lane * stack.stride(0);
}

DirectShape shape_of(std::int64_t channels, std::int64_t height, std::int64_t width, const at::Tensor& weight, at::IntArrayRef padding) {
  return {.channels = channels,
          .height = height,
          .width = width,
          .outputs = weight.size(1),
          .kernel = {weight.size(3), weight.size(4)},
          .padding = {padding[0], padding[1]}};
}

/// Runs `work(lane, first image, images)` for all images of all lanes, on several threads where there is enough to do.
template <typename Work>
void each_part(std::int64_t lanes, std::int64_t images, std::int64_t products_per_image, const Work& work) {
  at::parallel_for(0, lanes * images, std::max<std::int64_t>(1, kProductsPerThread / std::max<std::int64_t>(products_per_image, 1)),
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
  at::parallel_for(0, weight.size(0), 1, [&](std::int64_t begin, std::int64_t end) {
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

template <typename Signature, typename... Arguments>
auto call(const char* name, Arguments&&... arguments) {
  return c10::Dispatcher::singleton().findSchemaOrThrow(name, "").typed<Signature>().call(std::forward<Arguments>(arguments)...);
}

/// Lanes first, each lane's row contiguous.
at::Tensor rows(const LaneTensor& value, std::int64_t lanes) {
  auto tensor = lanes_first(value, lanes);
  return tensor.numel() == 0 || tensor.select(0, 0).is_contiguous() ? tensor : tensor.contiguous();
}

/// Rows, or the shared images as they are.
at::Tensor images_of(const LaneTensor& value, std::int64_t lanes) { return value.is_shared() ? value.tensor.contiguous() : rows(value, lanes); }

bool all_one(const std::vector<std::int64_t>& values) { return std::ranges::all_of(values, [](auto v) { return v == 1; }); }

std::array<std::int64_t, 2> both(const std::vector<std::int64_t>& values) { return {values[0], values.back()}; }

std::array<std::int64_t, 2> last_two(const LaneTensor& value) {
  const auto lane = lane_of(value, 0);
  return {lane.size(-2), lane.size(-1)};
}

/// Float or double images on the CPU, stride and dilation one, a padding smaller than the kernel, which is not too wide.
bool takes(const LaneTensor& input, const LaneTensor& weight, const ConvolutionOptions& options) {
  if (input.lane_dim() != 4 || options.transposed || options.groups != 1 || !all_one(options.stride) || !all_one(options.dilation)) return false;
  const auto type = input.tensor.scalar_type();
  if (!input.tensor.is_cpu() || (type != at::kFloat && type != at::kDouble) || weight.tensor.scalar_type() != type || input.tensor.numel() == 0) return false;
  const auto padding = both(options.padding);
  const auto kernel = last_two(weight), size = last_two(input);
  for (std::size_t axis = 0; axis < 2; ++axis)
    if (padding[axis] >= kernel[axis] || size[axis] + 2 * padding[axis] < kernel[axis]) return false;
  return kernel[1] <= kDirectKernelWidth;
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
