#pragma once

#include <cstdint>

namespace hfta::base {

namespace detail {
void run_parallel(std::int64_t begin, std::int64_t end, std::int64_t grain, void (*run)(const void* work, std::int64_t begin, std::int64_t end), const void* work);
}  // namespace detail

/// Runs `work(first, last)` over parts of `[begin, end)` of at least `grain`, on the calling thread's intra-op threads: `at::parallel_for`, which
/// is serial in a source compiled without OpenMP. Operators that `work` calls see none of the caller's modes.
/// @throws what `work` throws.
template <typename Work>
void parallel_for(std::int64_t begin, std::int64_t end, std::int64_t grain, const Work& work) {
  detail::run_parallel(begin, end, grain, [](const void* of, std::int64_t first, std::int64_t last) { (*static_cast<const Work*>(of))(first, last); }, &work);
}

}  // namespace hfta::base
