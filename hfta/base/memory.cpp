#include "hfta/base/memory.h"

#include <malloc.h>

#include <limits>

namespace hfta::base {

void keep_freed_memory() {
  static const bool done = [] {
    mallopt(M_MMAP_THRESHOLD, std::numeric_limits<int>::max());
    mallopt(M_TRIM_THRESHOLD, std::numeric_limits<int>::max());
    mallopt(M_TOP_PAD, 64 << 20);
    return true;
  }();
  static_cast<void>(done);
}

void return_freed_memory() { malloc_trim(0); }

}  // namespace hfta::base
