#include "hfta/ops/block_product.h"

#include <algorithm>

#include "hfta/ops/channel_vectors.h"

namespace hfta::ops {
namespace {

/// Of `depth` in one go: a panel of `b` stays in the first-level cache meanwhile.
constexpr std::int64_t kDepth = 128;

/// `kRows` rows by `16 * kVectors` columns, all in registers.
template <int kRows, int kVectors>
HFTA_INLINE void tile(const float* a, const float* b, float* c, const BlockProduct& p, std::int64_t depth, bool add) {
  Lanes16 sums[kRows][kVectors];
  for (int i = 0; i < kRows; ++i)
    for (int j = 0; j < kVectors; ++j) {
      if (add)
        load(sums[i][j], c + i * p.c_row + j * kVector);
      else
        sums[i][j] = Lanes16{};
    }
  for (std::int64_t k = 0; k < depth; ++k, a += p.a_depth, b += p.b_depth) {
    Lanes16 right[kVectors];
    for (int j = 0; j < kVectors; ++j) load(right[j], b + j * kVector);
    for (int i = 0; i < kRows; ++i) {
      const auto left = Lanes16{} + a[i * p.a_row];
      for (int j = 0; j < kVectors; ++j) sums[i][j] += left * right[j];
    }
  }
  for (int i = 0; i < kRows; ++i)
    for (int j = 0; j < kVectors; ++j) store(c + i * p.c_row + j * kVector, sums[i][j]);
}

/// One panel of columns.
template <int kVectors>
HFTA_INLINE void panel(const BlockProduct& p, std::int64_t column, std::int64_t first, std::int64_t depth, bool add) {
  const auto* a = p.a + first * p.a_depth;
  const auto* b = p.b + first * p.b_depth + column;
  auto* c = p.c + column;
  std::int64_t row = 0;
  // Few columns leave registers free: more rows hide the latency of the sums.
  constexpr int kMany = kVectors == 1 ? 2 * kProductRows : kProductRows;
  for (; row + kMany <= p.rows; row += kMany) tile<kMany, kVectors>(a + row * p.a_row, b, c + row * p.c_row, p, depth, add);
  for (; row < p.rows; row += kProductRows) tile<kProductRows, kVectors>(a + row * p.a_row, b, c + row * p.c_row, p, depth, add);
}

template <bool kManyRegisters>
HFTA_INLINE void multiply_panels(const BlockProduct& p) {
  for (std::int64_t first = 0; first < p.depth; first += kDepth) {
    const auto depth = std::min(kDepth, p.depth - first);
    const bool add = p.add || first > 0;
    for (std::int64_t column = 0; column < p.columns;) {
      const auto left = p.columns - column;
      if (kManyRegisters && left >= 64) {
        panel<4>(p, column, first, depth, add);
        column += 64;
      } else if (kManyRegisters && left >= 32) {
        panel<2>(p, column, first, depth, add);
        column += 32;
      } else {
        panel<1>(p, column, first, depth, add);
        column += 16;
      }
    }
  }
}

#ifdef HFTA_HAS_VECTOR_TARGETS
bool many_registers() { return __builtin_cpu_supports("x86-64-v4") != 0; }
[[gnu::target("arch=x86-64-v4")]] void multiply_by_many(const BlockProduct& p) { multiply_panels<true>(p); }
#else
bool many_registers() { return false; }
void multiply_by_many(const BlockProduct& p) { multiply_panels<true>(p); }
#endif

HFTA_VECTOR_TARGETS
void multiply_by_few(const BlockProduct& p) { multiply_panels<false>(p); }

}  // namespace

std::int64_t panel_width(std::int64_t columns) {
  if (!many_registers()) return 16;
  return columns >= 64 ? 64 : columns >= 32 ? 32 : 16;
}

void multiply(const BlockProduct& product) { many_registers() ? multiply_by_many(product) : multiply_by_few(product); }

}  // namespace hfta::ops
