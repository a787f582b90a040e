#pragma once

#include <c10/core/ScalarType.h>

#include <array>
#include <cstdint>

namespace hfta::optim {

/// One lane's numbers of one update, in double: kernels round them to the parameter's type as LibTorch rounds its scalars.
struct LaneNumbers {
  double scale = 1;        ///< Factor of the gradient before anything else; negative to maximize.
  double decay = 0;        ///< Weight decay added to the gradient: `g + decay * p`.
  double shrink = 1;       ///< Decoupled weight decay: `p * shrink`.
  double rate = 0;         ///< Factor of the direction that is added to the parameter: minus the (corrected) learning rate.
  double keep = 0;         ///< Of the first state: beta1, momentum, rho.
  double add = 0;          ///< Share of the gradient in the first state: 1 - beta1, 1 - dampening, 1 - rho.
  double keep_square = 0;  ///< Of Adam's second state: beta2.
  double add_square = 0;   ///< 1 - beta2.
  double root_divisor = 1; ///< Adam: square root of the second bias correction.
  double eps = 0;
  bool keeps = true;       ///< The state is written; false for SGD without momentum.
  bool begins = false;     ///< SGD: the momentum buffer starts as the gradient.
};

/// The rows of one parameter, its gradient and its state for a run of lanes. All share one dense layout within a row.
struct Rows {
  void* parameter = nullptr;
  const void* gradient = nullptr;
  std::array<void*, 3> state{};       ///< Null from the first unused one on.
  std::int64_t parameter_stride = 0;  ///< Elements from one lane to the next.
  std::int64_t gradient_stride = 0;
  std::int64_t state_stride = 0;
  std::int64_t lanes = 0;
  std::int64_t size = 0;  ///< Elements of a row.
  c10::ScalarType type = c10::ScalarType::Float;
  bool rounds_freely = false;  ///< A root may be another one within an ulp than LibTorch's, where that is faster.
};

/// The update kernels below take these types; others go through ATen operators.
constexpr bool has_row_kernels(c10::ScalarType type) { return type == c10::ScalarType::Float || type == c10::ScalarType::Double; }

/// One pass each, `numbers` one entry per lane. They round where LibTorch's operators round, so that the result is bit-equal to
/// `torch::optim` on the same processor, unless they may round freely.
/// @{
void sgd_rows(const Rows& rows, const LaneNumbers* numbers, bool nesterov);
void adam_rows(const Rows& rows, const LaneNumbers* numbers);  ///< AMSGrad when there is a third state.
void adadelta_rows(const Rows& rows, const LaneNumbers* numbers);
/// @}

/// Adds each row's sum of squares to `sums[lane]`.
void add_square_sums(const Rows& rows, double* sums);
/// Multiplies each row of `rows.parameter` by its factor; rows with factor 1 are not touched.
void scale_rows(const Rows& rows, const double* factors);

}  // namespace hfta::optim
