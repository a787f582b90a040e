#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <span>
#include <vector>

#include "hfta/ops/rule.h"

namespace hfta::ops {

/// What a rule was called with, read by position; None and an undefined tensor count as absent.
class Arguments {
 public:
  Arguments(const RuleContext& context, std::span<const LaneValue> values) : context_(context), values_(values) {}

  std::size_t size() const { return values_.size(); }
  std::int64_t lanes() const { return context_.lanes; }
  const LaneValue& operator[](std::size_t index) const { return values_[index]; }

  /// Absent, or a tensor that is shared or per lane.
  std::optional<LaneTensor> tensor(std::size_t index) const;
  /// A tensor that must be there.
  LaneTensor required(std::size_t index) const;
  /// `[lanes, ...]`, a view; undefined where absent.
  at::Tensor lanes_first(std::size_t index) const;
  /// The value of an argument that is no tensor and equal for all lanes.
  const c10::IValue& plain(std::size_t index) const;
  /// True where the argument is a number that differs between lanes.
  bool differs(std::size_t index) const { return std::holds_alternative<LaneNumbers>(values_[index]); }
  /// True where any argument is such a number.
  bool any_differs() const;
  /// The number of one lane, whether or not it differs.
  c10::Scalar number(std::size_t index, std::int64_t lane) const;
  std::vector<double> numbers(std::size_t index) const;
  /// The number equal for all lanes; empty where it differs.
  std::optional<c10::Scalar> scalar(std::size_t index) const;
  /// `int[]` and `SymInt[]`, also given as one integer; empty for None.
  std::vector<std::int64_t> integers(std::size_t index) const;
  std::vector<bool> booleans(std::size_t index) const;
  /// True where every tensor argument is shared.
  bool all_shared() const;

 private:
  const RuleContext& context_;
  std::span<const LaneValue> values_;
};

/// The tensor, or an undefined one where there is none.
LaneValue or_none(std::optional<LaneTensor> tensor);

/// The numbers as a tensor `[lanes, 1, ...]` with `dim` dimensions in all. It is computed by a recorded operator, so that a program keeps them.
at::Tensor number_tensor(const std::vector<double>& numbers, std::int64_t dim, at::ScalarType type, at::Device device);

}  // namespace hfta::ops
