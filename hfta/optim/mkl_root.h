#pragma once

#include <cstdint>

extern "C" {
// LibTorch's square root is this one wherever it was built with MKL: within an ulp, not always the nearest. Absent elsewhere.
void vmsSqrt(int count, const float* x, float* y, long long mode) __attribute__((weak));
void vmdSqrt(int count, const double* x, double* y, long long mode) __attribute__((weak));
}

namespace hfta::optim {

constexpr long long kMklMode = 0x2 | 0x140000 | 0x100;  ///< LibTorch's: high accuracy, denormals kept, errors ignored.

inline bool has_mkl_roots() { return vmsSqrt && vmdSqrt; }
/// In place, where there are such.
inline void mkl_roots(float* x, std::int64_t count) { vmsSqrt(static_cast<int>(count), x, x, kMklMode); }
inline void mkl_roots(double* x, std::int64_t count) { vmdSqrt(static_cast<int>(count), x, x, kMklMode); }

}  // namespace hfta::optim
