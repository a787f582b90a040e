#include "hfta/program/refusal.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <algorithm>
#include <array>
#include <span>
#include <string_view>

namespace hfta::program {
namespace {

constexpr std::array<std::string_view, 6> kRebinds{"aten::resize_", "aten::resize_as_", "aten::set_", "aten::set_data", "aten::swap_storage_",
                                                   "aten::_resize_output_"};

bool has_mask_index(const c10::IValue& indices) {
  if (!indices.isList()) return false;
  for (const auto& element : indices.toListRef())
    if (element.isTensor() && element.toTensor().defined() &&
        (element.toTensor().scalar_type() == at::kBool || element.toTensor().scalar_type() == at::kByte))
      return true;
  return false;
}

bool shape_depends_on_data(const c10::OperatorHandle& op, std::span<const c10::IValue> arguments) {
  if (!op.hasTag(at::Tag::dynamic_output_shape)) return false;
  const std::string& name = op.schema().name();
  if (name == "aten::index") return has_mask_index(arguments[1]);
  return name != "aten::_ctc_loss";
}

bool same_tensor(std::span<const c10::IValue> arguments) {
  return arguments.size() == 2 && arguments[0].isTensor() && arguments[1].isTensor() &&
         arguments[0].toTensor().is_same(arguments[1].toTensor());
}

}  // namespace

std::optional<std::string> why_refused(const c10::OperatorHandle& op, const torch::jit::Stack& stack) {
  const auto& schema = op.schema();
  const std::span arguments(stack.end() - static_cast<std::ptrdiff_t>(schema.arguments().size()), stack.end());
  const std::string& name = schema.name();
  if (std::find(kRebinds.begin(), kRebinds.end(), name) != kRebinds.end()) return "gives a tensor other memory or another shape in place";
  if (shape_depends_on_data(op, arguments)) return "has a result whose shape depends on data";
  if (name == "aten::equal" && same_tensor(arguments)) return std::nullopt;
  if (op.hasTag(at::Tag::data_dependent_output) || name == "aten::is_nonzero") return "reads a value on the host";
  return std::nullopt;
}

bool leaves_no_trace(const c10::OperatorHandle& op) {
  const auto& schema = op.schema();
  if (schema.is_mutable()) return false;
  for (const auto& result : schema.returns()) {
    const auto kind = result.type()->kind();
    if (kind == c10::TypeKind::TensorType || kind == c10::TypeKind::ListType || kind == c10::TypeKind::OptionalType) return false;
  }
  return true;
}

}  // namespace hfta::program
