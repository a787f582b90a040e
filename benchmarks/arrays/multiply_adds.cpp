#include "multiply_adds.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>

#include "hfta/base/threads.h"
#include "hfta/ops/wide_vectors.h"

namespace hfta::bench {
namespace {

using Vector = ops::Wide<float>::Vector;

constexpr std::int64_t kChains = 12;  ///< That do not wait for each other: more than are underway at once, and no more than registers hold.
constexpr std::int64_t kRounds = 1 << 20;  ///< Milliseconds, so that it does not matter when a worker wakes up.

/// @returns a number that depends on all of them, so that none is left out.
HFTA_VECTOR_TARGETS
float multiply_and_add(float factor, float summand) {
  Vector chains[kChains], factors = factor + Vector{}, summands = summand + Vector{};
  for (auto& chain : chains) chain = summands;
  for (std::int64_t round = 0; round < kRounds; ++round)
    for (auto& chain : chains) chain = chain * factors + summands;
  Vector sum{};
  for (const auto& chain : chains) sum += chain;
  return sum[0];
}

}  // namespace

double multiply_adds_per_second(int cores) {
  constexpr int kRepeats = 20;
  constexpr double kOperations = 2.0 * kChains * kRounds * ops::Wide<float>::kSize;
  base::Workers workers(cores, 1);
  std::atomic<float> factor{0.5F}, sum{0};
  double least = 0;
  for (int repeat = 0; repeat < kRepeats; ++repeat) {
    const auto start = std::chrono::steady_clock::now();
    workers.each([&](std::int64_t) { sum = multiply_and_add(factor, 1); });
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    least = repeat == 0 ? seconds : std::min(least, seconds);
  }
  return static_cast<double>(cores) * kOperations / least;
}

}  // namespace hfta::bench
