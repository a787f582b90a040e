#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/MT19937RNGEngine.h>

#include <cstdint>
#include <mutex>
#include <span>

namespace hfta::ops {

/// Takes numbers from a CPU generator's Mersenne Twister many at a time: the same numbers in the same order as one by one, about ten times faster.
/// The generator is locked and goes on from there when the stream ends.
class MersenneStream {
 public:
  explicit MersenneStream(const at::Generator& generator);
  ~MersenneStream();
  MersenneStream(const MersenneStream&) = delete;
  MersenneStream& operator=(const MersenneStream&) = delete;

  /// The next 32-bit numbers, tempered.
  void take(std::span<std::uint32_t> out);

 private:
  at::Generator generator_;
  std::unique_lock<std::mutex> lock_;
  at::mt19937_data_pod state_;
};

/// Writes 1 with probability `p`, else 0, as `tensor.bernoulli_(p, generator)` does where LibTorch draws from the Mersenne Twister.
template <typename T>
void fill_bernoulli(std::span<T> out, double p, const at::Generator& generator);

/// True where `fill_bernoulli` gives LibTorch's own numbers on this machine (it draws with MKL on some processors); tried once.
bool fill_bernoulli_is_native();

}  // namespace hfta::ops
