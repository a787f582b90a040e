#include "hfta/optim/wide_adam.h"

#if defined(__x86_64__)

#include <ATen/Version.h>
#include <immintrin.h>

#include <algorithm>
#include <bit>
#include <limits>
#include <string>
#include <vector>

#include "hfta/optim/mkl_root.h"

// This file is compiled with -ffp-contract=off, as kernels.cpp is: every rounding stands here.

#define HFTA_WIDE __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl")))
#define HFTA_WIDE_INLINE HFTA_WIDE inline __attribute__((always_inline))

namespace hfta::optim {
namespace {

constexpr std::int64_t kVector = 16;
constexpr __mmask16 kAll = 0xFFFF;
constexpr int kDenormal = 0x20, kZero = 0x02 | 0x04;  // classes of vfpclassps

/// Square roots from `kLeastRoot` to `kMostRoot`, and of zero: one Newton step from the processor's estimate, as MKL takes them.
HFTA_WIDE_INLINE __m512 root(__m512 x, __mmask16 not_zero) {
  const __m512 estimate = _mm512_maskz_rsqrt14_ps(not_zero, x);
  const __m512 near = _mm512_mul_ps(x, estimate), half = _mm512_mul_ps(estimate, _mm512_set1_ps(0.5F));
  return _mm512_fmadd_ps(_mm512_fnmadd_ps(near, near, x), half, near);
}
/// Between these every step of `root` scales with the exponent, and no remainder is denormal.
constexpr float kLeastRoot = 0x1p-70F, kMostRoot = 0x1p100F;

/// The same of those `small` ones that are below: what is scaled by a power of four has scaled roots.
HFTA_WIDE_INLINE __m512 scaled_root(__m512 x, __mmask16 not_zero, __mmask16 small) {
  const __m512 roots = root(_mm512_mask_mul_ps(x, small, x, _mm512_set1_ps(0x1p80F)), not_zero);
  return _mm512_mask_mul_ps(roots, small, roots, _mm512_set1_ps(0x1p-40F));
}

/// `x * keep` where some are denormal: those are whole steps of 2^-149, which are multiplied in double, exactly, and rounded to whole ones.
HFTA_WIDE_INLINE __m512 kept(__m512 x, __m512 keep, __mmask16 denormal) {
  const __m512i steps = _mm512_and_si512(_mm512_castps_si512(x), _mm512_set1_epi32(0x7FFFFFFF));
  const __m512d low = _mm512_mul_pd(_mm512_cvtepi32_pd(_mm512_castsi512_si256(steps)), _mm512_cvtps_pd(_mm512_castps512_ps256(keep)));
  const __m512d high = _mm512_mul_pd(_mm512_cvtepi32_pd(_mm512_extracti64x4_epi64(steps, 1)), _mm512_cvtps_pd(_mm512_castps512_ps256(keep)));
  const __m512i whole = _mm512_inserti64x4(_mm512_castsi256_si512(_mm512_cvtpd_epi32(low)), _mm512_cvtpd_epi32(high), 1);
  const __m512i sign = _mm512_and_si512(_mm512_castps_si512(x), _mm512_set1_epi32(std::numeric_limits<std::int32_t>::min()));
  const __m512 other = _mm512_mul_ps(_mm512_maskz_mov_ps(static_cast<__mmask16>(~denormal), x), keep);
  return _mm512_mask_mov_ps(other, denormal, _mm512_castsi512_ps(_mm512_or_si512(whole, sign)));
}

HFTA_WIDE_INLINE __m512 all(double x) { return _mm512_set1_ps(static_cast<float>(x)); }

/// One lane's numbers, each in all places of a vector.
struct Numbers {
  __m512 scale, decay, keep, add, keep_square, add_square, shrink, rate, divisor, inverse, eps;
};

HFTA_WIDE_INLINE Numbers numbers_of(const LaneNumbers& lane) {
  return {all(lane.scale), all(lane.decay), all(lane.keep), all(lane.add), all(lane.keep_square), all(lane.add_square),
          all(lane.shrink), all(lane.rate), all(lane.root_divisor), _mm512_set1_ps(1 / static_cast<float>(lane.root_divisor)), all(lane.eps)};
}

struct Element {
  __m512 parameter, first, second;
};

/// The elements of a vector after the update. @returns those that it is not right for.
/// @tparam Plain no scale, no decay of either kind: their factors are 1 and change nothing.
/// @tparam Rare right for denormal first moments and for small second ones too.
template <bool Plain, bool Rare>
HFTA_WIDE_INLINE __mmask16 update(Element& e, __m512 gradient, const Numbers& n, bool decays) {
  if constexpr (!Plain) {
    gradient = _mm512_mul_ps(gradient, n.scale);
    if (decays) gradient = _mm512_fmadd_ps(e.parameter, n.decay, gradient);
  }
  const __mmask16 denormal = _mm512_fpclass_ps_mask(e.first, kDenormal);
  e.second = _mm512_fmadd_ps(_mm512_mul_ps(n.add_square, gradient), gradient, _mm512_mul_ps(e.second, n.keep_square));
  e.first = _mm512_fmadd_ps(gradient, n.add, Rare ? kept(e.first, n.keep, denormal) : _mm512_mul_ps(e.first, n.keep));
  const auto not_zero = static_cast<__mmask16>(~_mm512_fpclass_ps_mask(e.second, kZero));
  // As integers: positive floats are ordered, and what is below the least wraps around.
  constexpr auto kLeast = std::bit_cast<std::int32_t>(kLeastRoot), kMost = std::bit_cast<std::int32_t>(kMostRoot);
  const __m512i bits = _mm512_castps_si512(e.second);
  __mmask16 other = 0;
  __m512 roots;
  if constexpr (Rare) {
    other = _mm512_cmp_epu32_mask(bits, _mm512_set1_epi32(kMost), _MM_CMPINT_NLE);
    roots = scaled_root(e.second, not_zero, _mm512_cmp_epu32_mask(bits, _mm512_set1_epi32(kLeast), _MM_CMPINT_LT));
  } else {
    other = denormal | _mm512_mask_cmp_epu32_mask(not_zero, _mm512_sub_epi32(bits, _mm512_set1_epi32(kLeast)), _mm512_set1_epi32(kMost - kLeast), _MM_CMPINT_NLE);
    roots = root(e.second, not_zero);
  }
  // The quotient by the lane's divisor, rounded as the division is: one Newton step (Markstein 1990).
  const __m512 near = _mm512_mul_ps(roots, n.inverse);
  const __m512 denominator = _mm512_add_ps(_mm512_fmadd_ps(_mm512_fnmadd_ps(near, n.divisor, roots), n.inverse, near), n.eps);
  const __m512 shrunk = Plain ? e.parameter : _mm512_mul_ps(e.parameter, n.shrink);
  __m512 moment = e.first;
  if constexpr (Rare) {
    // A parameter above this is not moved by a denormal: the quotient is less than a quarter of its last digit.
    const __m512 unmoved = _mm512_mul_ps(_mm512_div_ps(_mm512_abs_ps(n.rate), n.eps), _mm512_set1_ps(0x1p-98F));
    const __mmask16 moves = _mm512_cmp_ps_mask(_mm512_abs_ps(shrunk), unmoved, _CMP_NGT_UQ);
    moment = _mm512_maskz_mov_ps(static_cast<__mmask16>(~_mm512_fpclass_ps_mask(moment, kDenormal) | moves), moment);
  }
  e.parameter = _mm512_add_ps(shrunk, _mm512_div_ps(_mm512_mul_ps(n.rate, moment), denominator));
  return other;
}

template <bool Plain>
HFTA_WIDE std::int64_t update_row(float* parameter, const float* gradient, float* first, float* second, std::int64_t size, const LaneNumbers& lane) {
  const Numbers n = numbers_of(lane);
  const bool decays = lane.decay != 0;
  const auto place = [&](std::int64_t i, __mmask16 those) HFTA_WIDE __attribute__((always_inline)) {
    const Element before{_mm512_maskz_loadu_ps(those, parameter + i), _mm512_maskz_loadu_ps(those, first + i), _mm512_maskz_loadu_ps(those, second + i)};
    const __m512 by = _mm512_maskz_loadu_ps(those, gradient + i);
    Element after = before;
    if (update<Plain, false>(after, by, n, decays) != 0) {
      after = before;
      if (update<Plain, true>(after, by, n, decays) != 0) return false;
    }
    _mm512_mask_storeu_ps(parameter + i, those, after.parameter);
    _mm512_mask_storeu_ps(first + i, those, after.first);
    _mm512_mask_storeu_ps(second + i, those, after.second);
    return true;
  };
  std::int64_t i = 0;
  for (; i + kVector <= size; i += kVector)
    if (!place(i, kAll)) return i;
  if (i < size && !place(i, static_cast<__mmask16>((1U << (size - i)) - 1U))) return i;
  return size;
}

/// Whether the roots of all numbers between two, in steps, are MKL's.
HFTA_WIDE bool roots_are_mkl_s(float least, float most, std::int32_t step) {
  constexpr std::int64_t kBlock = 1 << 12;
  const auto end = std::bit_cast<std::int32_t>(most);
  std::vector<float> x(kBlock), mine(kBlock);
  for (auto bits = std::bit_cast<std::int32_t>(least); bits < end;) {
    for (auto& value : x) value = std::bit_cast<float>(bits), bits = std::min(bits + step, end);
    for (std::int64_t i = 0; i < kBlock; i += kVector) {
      const __m512 of = _mm512_loadu_ps(x.data() + i);
      _mm512_storeu_ps(mine.data() + i, scaled_root(of, kAll, _mm512_cmp_ps_mask(of, _mm512_set1_ps(kLeastRoot), _CMP_LT_OQ)));
    }
    mkl_roots(x.data(), kBlock);
    if (x != mine) return false;
  }
  return true;
}

/// All significands at both parities of the exponent, which decide a root's digits; below, where MKL takes roots another way, some.
bool roots_are_mkl_s() { return roots_are_mkl_s(1, 4, 1) && roots_are_mkl_s(std::numeric_limits<float>::denorm_min(), kLeastRoot, 997); }

}  // namespace

bool has_wide_adam() {
  static const bool has = at::get_cpu_capability() == "AVX512";
  return has;
}

bool wide_adam_is_libtorch_s() {
  static const bool is = has_wide_adam() && has_mkl_roots() && roots_are_mkl_s();
  return is;
}

std::int64_t wide_adam_row(float* parameter, const float* gradient, float* first, float* second, std::int64_t size, const LaneNumbers& lane) {
  const bool plain = lane.scale == 1 && lane.decay == 0 && lane.shrink == 1;
  return plain ? update_row<true>(parameter, gradient, first, second, size, lane) : update_row<false>(parameter, gradient, first, second, size, lane);
}

}  // namespace hfta::optim

#else

namespace hfta::optim {
bool has_wide_adam() { return false; }
bool wide_adam_is_libtorch_s() { return false; }
std::int64_t wide_adam_row(float*, const float*, float*, float*, std::int64_t, const LaneNumbers&) { return 0; }
}  // namespace hfta::optim

#endif
