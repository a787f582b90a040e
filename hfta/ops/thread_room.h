#pragma once

#include <cstdint>
#include <memory>
#include <new>

namespace hfta::ops {

/// What a thread's memory is for: kernels that run inside one another have rooms of their own.
enum class Room { TurnedFactor, Columns, Sums, Parts, Pieces, Images, Gradients, Weights, Results };

/// A thread's memory for so many numbers, on a cache line; kept, so that a step allocates nothing. What was there is lost where it grows.
template <typename T, Room Which>
T* thread_room(std::int64_t count) {
  struct Free {
    void operator()(T* data) const { ::operator delete[](data, std::align_val_t(64)); }
  };
  static thread_local std::unique_ptr<T[], Free> data;
  static thread_local std::int64_t size = 0;
  if (count > size) {
    data.reset(new (std::align_val_t(64)) T[static_cast<std::size_t>(count)]);
    size = count;
  }
  return data.get();
}

}  // namespace hfta::ops
