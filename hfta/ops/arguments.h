#pragma once

#include <ATen/core/ivalue.h>
#include <c10/core/Scalar.h>

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "hfta/ops/rule.h"

namespace hfta::ops {

/// The arguments of an operator as a rule gets them, read by position and by the type that the schema names.
class Arguments {
 public:
  explicit Arguments(std::span<const LaneValue> values) : values_(values) {}

  std::size_t size() const { return values_.size(); }
  /// Some argument is a number that differs between lanes: most rules then give up.
  bool has_lane_numbers() const;

  /// Empty where the argument is None or an undefined tensor; a plain tensor is shared.
  std::optional<LaneTensor> tensor(std::size_t index) const;
  /// The same number for all lanes, or empty.
  std::optional<at::Scalar> scalar(std::size_t index) const;
  bool boolean(std::size_t index) const { return value(index).toBool(); }
  std::int64_t integer(std::size_t index) const { return value(index).toInt(); }
  double real(std::size_t index) const { return value(index).toDouble(); }
  bool is_none(std::size_t index) const;
  /// `int[]` and `SymInt[]`, also given as one integer.
  std::vector<std::int64_t> integers(std::size_t index) const;
  std::vector<bool> booleans(std::size_t index) const;
  /// The value equal for all lanes that is no tensor.
  const c10::IValue& value(std::size_t index) const { return std::get<c10::IValue>(values_[index]); }

 private:
  std::span<const LaneValue> values_;
};

}  // namespace hfta::ops
