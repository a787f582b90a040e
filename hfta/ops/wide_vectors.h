#pragma once

#include <cstdint>
#include <cstring>

#include "hfta/base/vector_targets.h"

// What kernels that are compiled for several vector widths are written with; inlined into the versions.

#define HFTA_INLINE [[gnu::always_inline]] inline

// Functions that return vectors are inlined: how a call would pass them does not matter.
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wpsabi"
#endif

namespace hfta::ops {

/// As many numbers as fill the widest vector.
template <typename T>
struct Wide {
  typedef T Vector __attribute__((vector_size(64)));  // NOLINT(modernize-use-using): an alias drops the attribute
  static constexpr std::int64_t kSize = 64 / sizeof(T);
};

template <typename T>
HFTA_INLINE void load(typename Wide<T>::Vector& to, const T* from) {
  std::memcpy(&to, from, sizeof to);
}
template <typename T>
HFTA_INLINE void store(T* to, const typename Wide<T>::Vector& from) {
  std::memcpy(to, &from, sizeof from);
}

constexpr std::int64_t rounded_up(std::int64_t value, std::int64_t to) { return (value + to - 1) / to * to; }

}  // namespace hfta::ops
