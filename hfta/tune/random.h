#pragma once

#include <cstdint>

namespace hfta::tune {

/// Numbers that follow from (seed, trial number) alone, the same on every platform: a resumed study draws what it would have drawn.
/// @par Source splitmix64: Steele, Lea, Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014.
class Random {
 public:
  Random(std::uint64_t seed, std::int64_t trial) : state_(mix(seed) ^ mix(~static_cast<std::uint64_t>(trial))) {}

  std::uint64_t next() { return mix(state_ += 0x9E3779B97F4A7C15U); }
  /// Even over [0, 1], both included.
  double unit() { return static_cast<double>(next() >> 11) / 9007199254740991.0; }
  /// Even over [0, count).
  std::uint64_t below(std::uint64_t count) {
    const std::uint64_t unfair = -count % count;  // the lowest numbers would come once too often
    for (;;)
      if (const auto n = next(); n >= unfair) return n % count;
  }

 private:
  static std::uint64_t mix(std::uint64_t z) {
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9U;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBU;
    return z ^ (z >> 31);
  }
  std::uint64_t state_;
};

}  // namespace hfta::tune
