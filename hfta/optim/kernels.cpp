#include "hfta/optim/kernels.h"

#include <ATen/Version.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <string>
#include <type_traits>

#include "hfta/optim/mkl_root.h"
#include "hfta/optim/wide_adam.h"

// This file is compiled with -ffp-contract=off: a product and a sum are one rounding only where `fused` says so, which is where
// LibTorch's own kernels fuse them.

#define HFTA_INLINE inline __attribute__((always_inline))

namespace hfta::optim {
namespace {

constexpr std::int64_t kBlock = 1024;  ///< Elements between the two passes of Adam.

/// `a * b + c`, rounded once where the processor code that LibTorch chose has such an instruction.
template <bool Fused, typename T>
HFTA_INLINE T fused(T a, T b, T c) {
  if constexpr (!Fused) return a * b + c;
  if constexpr (std::is_same_v<T, float>) return __builtin_fmaf(a, b, c);
  return __builtin_fma(a, b, c);
}

template <typename T>
HFTA_INLINE T root(T x) {
  if constexpr (std::is_same_v<T, float>) return __builtin_sqrtf(x);
  return __builtin_sqrt(x);
}

/// Square roots in place, as LibTorch takes them.
template <typename T>
HFTA_INLINE void take_roots(T* x, std::int64_t count) {
  if (has_mkl_roots()) return mkl_roots(x, count);
  for (std::int64_t i = 0; i < count; ++i) x[i] = root(x[i]);
}

template <typename T, bool Fused, bool Decay>
HFTA_INLINE void plain_sgd_row(T* __restrict p, const T* __restrict g, std::int64_t size, const LaneNumbers& lane) {
  const T scale = lane.scale, decay = lane.decay, rate = lane.rate;
#pragma GCC ivdep
  for (std::int64_t i = 0; i < size; ++i) {
    T direction = g[i] * scale;
    if constexpr (Decay) direction = fused<Fused>(p[i], decay, direction);
    p[i] = fused<Fused>(direction, rate, p[i]);
  }
}

template <typename T, bool Fused, bool Nesterov, bool Begins>
HFTA_INLINE void momentum_row(T* __restrict p, const T* __restrict g, T* __restrict buffer, std::int64_t size, const LaneNumbers& lane) {
  const T scale = lane.scale, decay = lane.decay, rate = lane.rate, keep = lane.keep, add = lane.add;
#pragma GCC ivdep
  for (std::int64_t i = 0; i < size; ++i) {
    T direction = g[i] * scale;
    direction = decay != 0 ? fused<Fused>(p[i], decay, direction) : direction;
    const T next = Begins ? direction : fused<Fused>(direction, add, buffer[i] * keep);
    buffer[i] = next;
    p[i] = fused<Fused>(Nesterov ? fused<Fused>(next, keep, direction) : next, rate, p[i]);
  }
}

template <typename T, bool Fused>
HFTA_INLINE void sgd_body(const Rows& rows, const LaneNumbers* numbers, bool nesterov) {
  for (std::int64_t l = 0; l < rows.lanes; ++l) {
    const auto& lane = numbers[l];
    T* p = static_cast<T*>(rows.parameter) + l * rows.parameter_stride;
    const T* g = static_cast<const T*>(rows.gradient) + l * rows.gradient_stride;
    T* buffer = static_cast<T*>(rows.state[0]) + l * rows.state_stride;
    if (!lane.keeps) {
      lane.decay != 0 ? plain_sgd_row<T, Fused, true>(p, g, rows.size, lane) : plain_sgd_row<T, Fused, false>(p, g, rows.size, lane);
    } else if (lane.begins) {
      nesterov ? momentum_row<T, Fused, true, true>(p, g, buffer, rows.size, lane) : momentum_row<T, Fused, false, true>(p, g, buffer, rows.size, lane);
    } else {
      nesterov ? momentum_row<T, Fused, true, false>(p, g, buffer, rows.size, lane) : momentum_row<T, Fused, false, false>(p, g, buffer, rows.size, lane);
    }
  }
}

/// `x / divisor` rounded as the division is, from `inverse = 1 / divisor`: one Newton step on the quotient (Markstein 1990).
template <bool Fused, typename T>
HFTA_INLINE T quotient(T x, T divisor, T inverse) {
  if constexpr (!Fused) return x / divisor;
  const T near = x * inverse;
  const T rest = fused<Fused>(-near, divisor, x);
  return rest == rest ? fused<Fused>(rest, inverse, near) : near;  // x is infinite or NaN: so is `near`
}

/// The bits of a float without its sign: those of a denormal are an integer of 1 to kMostDenormal, its value in steps of 2^-149.
HFTA_INLINE std::uint32_t magnitude(float x) { return std::bit_cast<std::uint32_t>(x) & 0x7fffffffU; }
constexpr std::uint32_t kMostDenormal = 0x7fffffU;
HFTA_INLINE bool is_denormal(float x) { return magnitude(x) - 1U < kMostDenormal; }

// Where a gradient stays zero (a dead unit, a frozen path) the first moment decays to denormals, and stays there: rounding never takes
// the last few steps to zero. A processor computes with them a hundred times slower; so blocks that have some take other instructions
// to the same bits. Doubles get there ten times later and are computed as they are.

template <typename T>
HFTA_INLINE bool has_denormals(const T* __restrict x, std::int64_t size) {
  if constexpr (!std::is_same_v<T, float>) return false;
  else {
    std::uint32_t found = 0;
    for (std::int64_t i = 0; i < size; ++i) found |= is_denormal(x[i]) ? 1U : 0U;
    return found != 0;
  }
}

/// `x * keep` for `keep` of 0 to 1. A denormal's steps are multiplied in double, which is exact, and rounded to whole steps.
template <bool Denormals, typename T>
HFTA_INLINE T kept(T x, T keep) {
  if constexpr (!Denormals || !std::is_same_v<T, float>) return x * keep;
  else {
    constexpr double kWhole = 0x1.8p52;  // Added and taken away it leaves the nearest integer.
    const bool denormal = is_denormal(x);
    const double steps = static_cast<double>(static_cast<std::int32_t>(magnitude(x))) * static_cast<double>(keep);
    const auto rounded = static_cast<std::uint32_t>(static_cast<std::int32_t>(steps + kWhole - kWhole));
    const float small = std::bit_cast<float>(rounded | (std::bit_cast<std::uint32_t>(x) & 0x80000000U));
    const float other = (denormal ? 0.0F : x) * keep;
    return denormal ? small : other;
  }
}

/// Moves both moments; leaves the values whose roots are taken in `squares`.
template <typename T, bool Fused, bool Amsgrad, bool Denormals>
HFTA_INLINE void adam_moments(const T* __restrict p, const T* __restrict g, T* __restrict first, T* __restrict second, T* __restrict largest,
                              T* __restrict squares, std::int64_t size, const LaneNumbers& lane) {
  const T scale = lane.scale, decay = lane.decay, keep = lane.keep, add = lane.add, keep_square = lane.keep_square, add_square = lane.add_square;
#pragma GCC ivdep
  for (std::int64_t i = 0; i < size; ++i) {
    T gradient = g[i] * scale;
    gradient = decay != 0 ? fused<Fused>(p[i], decay, gradient) : gradient;
    T square = fused<Fused>(add_square * gradient, gradient, second[i] * keep_square);
    first[i] = fused<Fused>(gradient, add, kept<Denormals>(first[i], keep));
    second[i] = square;
    if constexpr (Amsgrad) largest[i] = square = largest[i] > square || largest[i] != largest[i] ? largest[i] : square;
    squares[i] = square;
  }
}

template <typename T, bool Fused, bool Denormals>
HFTA_INLINE void adam_parameter(T* __restrict p, const T* __restrict first, const T* __restrict roots, std::int64_t size, const LaneNumbers& lane) {
  const T shrink = lane.shrink, rate = lane.rate, divisor = lane.root_divisor, eps = lane.eps, inverse = 1 / divisor;
  // A parameter of this size is not moved by a denormal: the quotient is less than a quarter of its last digit.
  const T unmoved = Denormals ? std::fabs(rate) / eps * static_cast<T>(0x1p-98) : 0;
#pragma GCC ivdep
  for (std::int64_t i = 0; i < size; ++i) {
    const T shrunk = p[i] * shrink;
    T moment = first[i];
    if constexpr (Denormals && std::is_same_v<T, float>) moment = is_denormal(moment) && std::fabs(shrunk) > unmoved ? T(0) : moment;
    p[i] = shrunk + (rate * moment) / (quotient<Fused>(roots[i], divisor, inverse) + eps);
  }
}

/// Rows `[l0, end)`, elements `[from, from + size)`: both passes.
template <typename T, bool Fused, bool Amsgrad, bool Denormals>
HFTA_INLINE void adam_part(const Rows& rows, const LaneNumbers* numbers, std::int64_t l0, std::int64_t end, std::int64_t from, std::int64_t size, T* block) {
  const auto parameter = [&](std::int64_t l) { return static_cast<T*>(rows.parameter) + l * rows.parameter_stride + from; };
  const auto state = [&](std::size_t slot, std::int64_t l) { return static_cast<T*>(rows.state[slot]) + l * rows.state_stride + from; };
  for (std::int64_t l = l0; l < end; ++l) {
    const T* g = static_cast<const T*>(rows.gradient) + l * rows.gradient_stride + from;
    adam_moments<T, Fused, Amsgrad, Denormals>(parameter(l), g, state(0, l), state(1, l), Amsgrad ? state(2, l) : nullptr, block + (l - l0) * size, size, numbers[l]);
  }
  take_roots(block, (end - l0) * size);
  for (std::int64_t l = l0; l < end; ++l) adam_parameter<T, Fused, Denormals>(parameter(l), state(0, l), block + (l - l0) * size, size, numbers[l]);
}

/// Rows `[l0, end)`, elements `[from, from + size)`: of a size that stays in the first-level cache between the two passes.
template <typename T, bool Fused>
HFTA_INLINE void adam_block(const Rows& rows, const LaneNumbers* numbers, std::int64_t l0, std::int64_t end, std::int64_t from, std::int64_t size) {
  alignas(64) T block[kBlock];
  bool denormals = false;
  for (std::int64_t l = l0; l < end; ++l) denormals |= has_denormals(static_cast<const T*>(rows.state[0]) + l * rows.state_stride + from, size);
  if (rows.state[2])
    denormals ? adam_part<T, Fused, true, true>(rows, numbers, l0, end, from, size, block) : adam_part<T, Fused, true, false>(rows, numbers, l0, end, from, size, block);
  else
    denormals ? adam_part<T, Fused, false, true>(rows, numbers, l0, end, from, size, block) : adam_part<T, Fused, false, false>(rows, numbers, l0, end, from, size, block);
}

/// In one pass but for the blocks that cannot be.
template <bool Fused>
HFTA_INLINE void wide_adam_body(const Rows& rows, const LaneNumbers* numbers) {
  for (std::int64_t l = 0; l < rows.lanes; ++l)
    for (std::int64_t from = 0; from < rows.size;) {
      from += wide_adam_row(static_cast<float*>(rows.parameter) + l * rows.parameter_stride + from, static_cast<const float*>(rows.gradient) + l * rows.gradient_stride + from,
                            static_cast<float*>(rows.state[0]) + l * rows.state_stride + from, static_cast<float*>(rows.state[1]) + l * rows.state_stride + from,
                            rows.size - from, numbers[l]);
      const auto rest = std::min(kBlock, rows.size - from);
      if (rest > 0) adam_block<float, Fused>(rows, numbers, l, l + 1, from, rest);
      from += rest;
    }
}

template <typename T, bool Fused>
HFTA_INLINE void adam_body(const Rows& rows, const LaneNumbers* numbers, bool wide) {
  if constexpr (std::is_same_v<T, float>)
    if (wide) return wide_adam_body<Fused>(rows, numbers);
  const std::int64_t together = std::max<std::int64_t>(1, kBlock / rows.size), length = std::min(kBlock, rows.size);
  for (std::int64_t l0 = 0; l0 < rows.lanes; l0 += together)
    for (std::int64_t from = 0; from < rows.size; from += length)
      adam_block<T, Fused>(rows, numbers, l0, std::min(rows.lanes, l0 + together), from, std::min(length, rows.size - from));
}

template <typename T, bool Fused>
HFTA_INLINE void adadelta_row(T* __restrict p, const T* __restrict g, T* __restrict squares, T* __restrict deltas, std::int64_t size, const LaneNumbers& lane) {
  const T scale = lane.scale, decay = lane.decay, rate = lane.rate, keep = lane.keep, add = lane.add, eps = lane.eps;
#pragma GCC ivdep
  for (std::int64_t i = 0; i < size; ++i) {
    T gradient = g[i] * scale;
    gradient = decay != 0 ? fused<Fused>(p[i], decay, gradient) : gradient;
    const T square = fused<Fused>(add * gradient, gradient, squares[i] * keep);
    const T delta = root(deltas[i] + eps) / root(square + eps) * gradient;
    squares[i] = square;
    deltas[i] = fused<Fused>(add * delta, delta, deltas[i] * keep);
    p[i] = fused<Fused>(delta, rate, p[i]);
  }
}

template <typename T, bool Fused>
HFTA_INLINE void adadelta_body(const Rows& rows, const LaneNumbers* numbers, bool) {
  for (std::int64_t l = 0; l < rows.lanes; ++l)
    adadelta_row<T, Fused>(static_cast<T*>(rows.parameter) + l * rows.parameter_stride, static_cast<const T*>(rows.gradient) + l * rows.gradient_stride,
                           static_cast<T*>(rows.state[0]) + l * rows.state_stride, static_cast<T*>(rows.state[1]) + l * rows.state_stride, rows.size, numbers[l]);
}

/// Sums in double, in `kParts` running sums so that the loop has no chain through one register.
template <typename T, bool Fused>
HFTA_INLINE void square_sum_body(const Rows& rows, double* sums, bool) {
  constexpr std::int64_t kParts = 32;
  for (std::int64_t l = 0; l < rows.lanes; ++l) {
    const T* __restrict g = static_cast<const T*>(rows.gradient) + l * rows.gradient_stride;
    double parts[kParts] = {};
    std::int64_t i = 0;
    for (; i + kParts <= rows.size; i += kParts)
      for (std::int64_t k = 0; k < kParts; ++k) {
        const double x = g[i + k];
        parts[k] = fused<Fused>(x, x, parts[k]);
      }
    for (std::int64_t k = 0; i < rows.size; ++i, ++k) {
      const double x = g[i];
      parts[k] = fused<Fused>(x, x, parts[k]);
    }
    for (std::int64_t half = kParts / 2; half > 0; half /= 2)
      for (std::int64_t k = 0; k < half; ++k) parts[k] += parts[k + half];
    sums[l] += parts[0];
  }
}

template <typename T, bool Fused>
HFTA_INLINE void scale_body(const Rows& rows, const double* factors, bool) {
  for (std::int64_t l = 0; l < rows.lanes; ++l) {
    const T factor = factors[l];
    if (factor == 1) continue;
    T* __restrict row = static_cast<T*>(rows.parameter) + l * rows.parameter_stride;
    for (std::int64_t i = 0; i < rows.size; ++i) row[i] *= factor;
  }
}

enum class Code { Default, Avx2, Avx512 };

/// LibTorch's own choice (which `ATEN_CPU_CAPABILITY` can lower), so that both round alike.
Code code() {
  static const Code chosen = [] {
    const std::string capability = at::get_cpu_capability();
    if (capability == "AVX512") return Code::Avx512;
    return capability == "AVX2" ? Code::Avx2 : Code::Default;
  }();
  return chosen;
}

#if defined(__x86_64__)
#define HFTA_AVX2 __attribute__((target("avx2,fma")))
#define HFTA_AVX512 __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,prefer-vector-width=512")))
constexpr bool kDefaultFuses = false;
#else
#define HFTA_AVX2
#define HFTA_AVX512
constexpr bool kDefaultFuses = true;
#endif

/// Defines `NAME`: `BODY` compiled for each processor code and both types, and the choice between them.
#define HFTA_KERNEL(NAME, BODY, ARGUMENT)                                                                                    \
  template <typename T> HFTA_AVX512 void NAME##_avx512(const Rows& r, ARGUMENT a, bool flag) { BODY<T, true>(r, a, flag); }    \
  template <typename T> HFTA_AVX2 void NAME##_avx2(const Rows& r, ARGUMENT a, bool flag) { BODY<T, true>(r, a, flag); }        \
  template <typename T> void NAME##_default(const Rows& r, ARGUMENT a, bool flag) { BODY<T, kDefaultFuses>(r, a, flag); }      \
  template <typename T> void NAME##_of(const Rows& r, ARGUMENT a, bool flag) {                                                 \
    switch (code()) {                                                                                                          \
      case Code::Avx512: return NAME##_avx512<T>(r, a, flag);                                                                  \
      case Code::Avx2: return NAME##_avx2<T>(r, a, flag);                                                                      \
      case Code::Default: return NAME##_default<T>(r, a, flag);                                                                \
    }                                                                                                                          \
  }                                                                                                                            \
  void NAME(const Rows& r, ARGUMENT a, bool flag = false) {                                                                    \
    if (r.size == 0) return;                                                                                                   \
    r.type == c10::ScalarType::Float ? NAME##_of<float>(r, a, flag) : NAME##_of<double>(r, a, flag);                           \
  }

HFTA_KERNEL(run_sgd, sgd_body, const LaneNumbers*)
HFTA_KERNEL(run_adam, adam_body, const LaneNumbers*)
HFTA_KERNEL(run_adadelta, adadelta_body, const LaneNumbers*)
HFTA_KERNEL(run_square_sum, square_sum_body, double*)
HFTA_KERNEL(run_scale, scale_body, const double*)

}  // namespace

void sgd_rows(const Rows& rows, const LaneNumbers* numbers, bool nesterov) { run_sgd(rows, numbers, nesterov); }
void adam_rows(const Rows& rows, const LaneNumbers* numbers) {
  const bool one_pass = rows.type == c10::ScalarType::Float && !rows.state[2] && has_wide_adam() && (rows.rounds_freely || wide_adam_is_libtorch_s());
  run_adam(rows, numbers, one_pass);
}
void adadelta_rows(const Rows& rows, const LaneNumbers* numbers) { run_adadelta(rows, numbers); }
void add_square_sums(const Rows& rows, double* sums) { run_square_sum(rows, sums); }
void scale_rows(const Rows& rows, const double* factors) { run_scale(rows, factors); }

}  // namespace hfta::optim
