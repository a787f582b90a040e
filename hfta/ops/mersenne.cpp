#include "hfta/ops/mersenne.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/bernoulli.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/equal.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "hfta/base/generator.h"
#include "hfta/base/vector_targets.h"

namespace hfta::ops {
namespace {

constexpr std::size_t kState = at::MERSENNE_STATE_N, kShift = at::MERSENNE_STATE_M;

std::uint32_t twist(std::uint32_t u, std::uint32_t v) {
  const std::uint32_t mixed = (u & at::UMASK) | (v & at::LMASK);
  return (mixed >> 1) ^ ((0U - (v & 1U)) & at::MATRIX_A);
}

HFTA_VECTOR_TARGETS void next_state(std::uint32_t* state) {
  for (std::size_t j = 0; j < kState - kShift; ++j) state[j] = state[j + kShift] ^ twist(state[j], state[j + 1]);
#pragma GCC ivdep  // what is read lies 227 behind what is written
  for (std::size_t j = kState - kShift; j < kState - 1; ++j) state[j] = state[j + kShift - kState] ^ twist(state[j], state[j + 1]);
  state[kState - 1] = state[kShift - 1] ^ twist(state[kState - 1], state[0]);
}

HFTA_VECTOR_TARGETS void temper(const std::uint32_t* state, std::uint32_t* out, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    std::uint32_t y = state[i];
    y ^= y >> 11;
    y ^= (y << 7) & 0x9d2c5680U;
    y ^= (y << 15) & 0xefc60000U;
    out[i] = y ^ (y >> 18);
  }
}

/// Element i is 1 where the 53-bit number made of draws 2i (high) and 2i + 1 (low) is below `limit`.
template <typename T>
[[gnu::always_inline]] inline void compare(const std::uint32_t* draws, T* out, std::size_t count, std::int64_t limit) {
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint64_t bits = (static_cast<std::uint64_t>(draws[2 * i]) << 32) | draws[2 * i + 1];
    out[i] = static_cast<T>(static_cast<std::int64_t>(bits & ((1ULL << 53) - 1)) < limit);
  }
}
HFTA_VECTOR_TARGETS void below(const std::uint32_t* draws, float* out, std::size_t count, std::int64_t limit) { compare(draws, out, count, limit); }
HFTA_VECTOR_TARGETS void below(const std::uint32_t* draws, double* out, std::size_t count, std::int64_t limit) { compare(draws, out, count, limit); }
HFTA_VECTOR_TARGETS void below(const std::uint32_t* draws, bool* out, std::size_t count, std::int64_t limit) { compare(draws, out, count, limit); }

}  // namespace

MersenneStream::MersenneStream(const at::Generator& generator)
    : generator_(generator), lock_(generator_.mutex()), state_(at::check_generator<at::CPUGeneratorImpl>(generator_)->engine().data()) {}

MersenneStream::~MersenneStream() {
  at::mt19937 engine;
  engine.set_data(state_);
  at::check_generator<at::CPUGeneratorImpl>(generator_)->set_engine(engine);
}

void MersenneStream::take(std::span<std::uint32_t> out) {
  std::size_t done = 0;
  while (done < out.size()) {
    // `left_` counts the number about to be taken too: 1 means that none is left.
    if (state_.left_ == 1) {
      next_state(state_.state_.data());
      state_.next_ = 0;
      state_.left_ = static_cast<int>(kState) + 1;
    }
    const auto count = std::min<std::size_t>(out.size() - done, static_cast<std::size_t>(state_.left_ - 1));
    temper(state_.state_.data() + state_.next_, out.data() + done, count);
    state_.next_ += static_cast<std::uint32_t>(count);
    state_.left_ -= static_cast<int>(count);
    done += count;
  }
}

template <typename T>
void fill_bernoulli(std::span<T> out, double p, const at::Generator& generator) {
  MersenneStream stream(generator);
  // u < p for u = k / 2^53 is k < p * 2^53, exactly.
  const auto limit = static_cast<std::int64_t>(std::ceil(std::ldexp(p, 53)));
  std::array<std::uint32_t, 2 * at::MERSENNE_STATE_N> draws;
  for (std::size_t done = 0; done < out.size();) {
    const auto count = std::min(out.size() - done, draws.size() / 2);
    stream.take(std::span(draws).first(2 * count));
    below(draws.data(), out.data() + done, count, limit);
    done += count;
  }
}
template void fill_bernoulli(std::span<float>, double, const at::Generator&);
template void fill_bernoulli(std::span<double>, double, const at::Generator&);
template void fill_bernoulli(std::span<bool>, double, const at::Generator&);

bool fill_bernoulli_is_native() {
  static const bool same = [] {
    auto ours = at::empty({2001}, at::dtype(at::kFloat)), theirs = at::empty_like(ours);
    const auto generator = base::seeded_generator(7), other = base::seeded_generator(7);
    for (const double p : {0.1, 0.5, 0.937}) {
      fill_bernoulli(std::span(ours.mutable_data_ptr<float>(), static_cast<std::size_t>(ours.numel())), p, generator);
      theirs.bernoulli_(p, other);
      if (!at::equal(ours, theirs)) return false;
    }
    return at::equal(generator.get_state(), other.get_state());
  }();
  return same;
}

}  // namespace hfta::ops
