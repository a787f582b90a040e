#include "hfta/ops/arguments.h"

#include <algorithm>

namespace hfta::ops {

bool Arguments::has_lane_numbers() const {
  return std::ranges::any_of(values_, [](const LaneValue& value) { return std::holds_alternative<LaneNumbers>(value); });
}

std::optional<LaneTensor> Arguments::tensor(std::size_t index) const {
  if (const auto* lane = std::get_if<LaneTensor>(&values_[index]); lane != nullptr) {
    return lane->tensor.defined() ? std::optional(*lane) : std::nullopt;
  }
  const auto& plain = value(index);
  if (!plain.isTensor() || !plain.toTensor().defined()) return std::nullopt;
  return LaneTensor{plain.toTensor(), std::nullopt};
}

std::optional<at::Scalar> Arguments::scalar(std::size_t index) const {
  const auto* plain = std::get_if<c10::IValue>(&values_[index]);
  if (plain == nullptr || !plain->isScalar()) return std::nullopt;
  return plain->toScalar();
}

bool Arguments::is_none(std::size_t index) const {
  const auto* plain = std::get_if<c10::IValue>(&values_[index]);
  return plain != nullptr && (plain->isNone() || (plain->isTensor() && !plain->toTensor().defined()));
}

std::vector<std::int64_t> Arguments::integers(std::size_t index) const {
  const auto& plain = value(index);
  if (plain.isIntList()) return plain.toIntVector();
  if (plain.isInt()) return {plain.toInt()};
  std::vector<std::int64_t> numbers;
  if (plain.isNone()) return numbers;
  for (const auto& entry : plain.toListRef()) numbers.push_back(entry.isInt() ? entry.toInt() : entry.toSymInt().expect_int());
  return numbers;
}

std::vector<bool> Arguments::booleans(std::size_t index) const {
  const auto& plain = value(index);
  if (plain.isBool()) return {plain.toBool()};
  const auto list = plain.toBoolList();
  return {list.begin(), list.end()};
}

}  // namespace hfta::ops
