#include "hfta/base/parallel.h"

#include <ATen/Parallel.h>

namespace hfta::base::detail {

void run_parallel(std::int64_t begin, std::int64_t end, std::int64_t grain, void (*run)(const void* work, std::int64_t begin, std::int64_t end), const void* work) {
  at::parallel_for(begin, end, grain, [=](std::int64_t first, std::int64_t last) { run(work, first, last); });
}

}  // namespace hfta::base::detail
