#include "hfta/ops/arguments.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/empty.h>
#include <torch/library.h>

#include <algorithm>

namespace hfta::ops {

std::optional<LaneTensor> Arguments::tensor(std::size_t index) const {
  if (index >= values_.size()) return std::nullopt;
  if (const auto* value = std::get_if<LaneTensor>(&values_[index])) return value->tensor.defined() ? std::optional(*value) : std::nullopt;
  const auto* plain = std::get_if<c10::IValue>(&values_[index]);
  TORCH_INTERNAL_ASSERT(plain, "ops::Arguments: expected a tensor");
  if (plain->isTensor() && plain->toTensor().defined()) return LaneTensor{plain->toTensor(), std::nullopt};
  return std::nullopt;
}

LaneTensor Arguments::required(std::size_t index) const {
  auto value = tensor(index);
  TORCH_INTERNAL_ASSERT(value, "ops::Arguments: expected a tensor, got none");
  return *std::move(value);
}

at::Tensor Arguments::lanes_first(std::size_t index) const {
  const auto value = tensor(index);
  return value ? ops::lanes_first(*value, lanes()) : at::Tensor();
}

const c10::IValue& Arguments::plain(std::size_t index) const {
  const auto* value = std::get_if<c10::IValue>(&values_[index]);
  TORCH_INTERNAL_ASSERT(value, "ops::Arguments: expected a value equal for all lanes");
  return *value;
}

bool Arguments::any_differs() const {
  return std::any_of(values_.begin(), values_.end(), [](const LaneValue& value) { return std::holds_alternative<LaneNumbers>(value); });
}

c10::Scalar Arguments::number(std::size_t index, std::int64_t lane) const {
  if (const auto* numbers = std::get_if<LaneNumbers>(&values_[index])) return numbers->of_lane.at(lane);
  return plain(index).toScalar();
}

std::vector<double> Arguments::numbers(std::size_t index) const {
  std::vector<double> result;
  for (std::int64_t lane = 0; lane < lanes(); ++lane) result.push_back(number(index, lane).toDouble());
  return result;
}

std::optional<c10::Scalar> Arguments::scalar(std::size_t index) const {
  const auto* value = std::get_if<c10::IValue>(&values_[index]);
  return value != nullptr && value->isScalar() ? std::optional(value->toScalar()) : std::nullopt;
}

std::vector<std::int64_t> Arguments::integers(std::size_t index) const {
  const auto& value = plain(index);
  if (value.isIntList()) return value.toIntVector();
  if (value.isInt()) return {value.toInt()};
  std::vector<std::int64_t> numbers;
  if (value.isNone()) return numbers;
  for (const auto& entry : value.toListRef()) numbers.push_back(entry.isInt() ? entry.toInt() : entry.toSymInt().expect_int());
  return numbers;
}

std::vector<bool> Arguments::booleans(std::size_t index) const {
  const auto list = plain(index).toBoolList();
  return {list.begin(), list.end()};
}

bool Arguments::all_shared() const {
  return std::all_of(values_.begin(), values_.end(), [](const LaneValue& value) {
    if (const auto* one = std::get_if<LaneTensor>(&value)) return one->is_shared();
    if (const auto* list = std::get_if<std::vector<LaneTensor>>(&value))
      return std::all_of(list->begin(), list->end(), [](const LaneTensor& t) { return t.is_shared(); });
    if (const auto* list = std::get_if<std::vector<std::optional<LaneTensor>>>(&value))
      return std::all_of(list->begin(), list->end(), [](const auto& t) { return !t || t->is_shared(); });
    return true;
  });
}

LaneValue or_none(std::optional<LaneTensor> tensor) {
  if (tensor) return *std::move(tensor);
  return c10::IValue(at::Tensor());
}

// ---- numbers as a tensor

namespace {

template <typename T>
void write_numbers(at::ArrayRef<double> numbers, at::Tensor& out) {
  auto* data = out.mutable_data_ptr<T>();
  for (std::size_t lane = 0; lane < numbers.size(); ++lane) data[lane] = static_cast<T>(numbers[lane]);
}

at::Tensor& numbers_out(at::ArrayRef<double> numbers, std::int64_t dim, at::ScalarType type, at::Device, at::Tensor& out) {
  auto host = at::empty({static_cast<std::int64_t>(numbers.size())}, at::dtype(at::kDouble));
  write_numbers<double>(numbers, host);
  std::vector<std::int64_t> sizes(dim, 1);
  sizes[0] = static_cast<std::int64_t>(numbers.size());
  if (!out.sizes().equals(sizes)) out.resize_(sizes);
  const bool direct = out.device().is_cpu() && out.is_contiguous();
  if (direct && type == at::kFloat) return write_numbers<float>(numbers, out), out;
  if (direct && type == at::kDouble) return write_numbers<double>(numbers, out), out;
  return out.copy_(host.view(sizes));
}

at::Tensor numbers_new(at::ArrayRef<double> numbers, std::int64_t dim, at::ScalarType type, at::Device device) {
  std::vector<std::int64_t> sizes(dim, 1);
  sizes[0] = static_cast<std::int64_t>(numbers.size());
  auto out = at::empty(sizes, at::TensorOptions().dtype(type).device(device));
  return numbers_out(numbers, dim, type, device, out);
}

}  // namespace

at::Tensor number_tensor(const std::vector<double>& numbers, std::int64_t dim, at::ScalarType type, at::Device device) {
  static const auto op = c10::Dispatcher::singleton().findSchemaOrThrow("hfta::numbers", "").typed<decltype(numbers_new)>();
  return op.call(numbers, std::max<std::int64_t>(dim, 1), type, device);
}

}  // namespace hfta::ops

TORCH_LIBRARY_FRAGMENT(hfta, library) {
  library.def("numbers(float[] numbers, int dim, ScalarType dtype, Device device) -> Tensor");
  library.def("numbers.out(float[] numbers, int dim, ScalarType dtype, Device device, *, Tensor(a!) out) -> Tensor(a!)");
  library.impl("numbers", c10::DispatchKey::CompositeExplicitAutograd, TORCH_FN(hfta::ops::numbers_new));
  library.impl("numbers.out", c10::DispatchKey::CompositeExplicitAutograd, TORCH_FN(hfta::ops::numbers_out));
  // Programs write into given memory only where the device has a kernel of its own.
  library.impl("numbers.out", c10::DispatchKey::CPU, TORCH_FN(hfta::ops::numbers_out));
}
