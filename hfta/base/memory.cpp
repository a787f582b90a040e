#include "hfta/base/memory.h"

#include <malloc.h>
#include <sys/mman.h>

#include <cstdint>
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

void prefer_large_pages(void* data, std::size_t bytes) {
  constexpr std::uintptr_t kPage = 2 << 20;
  const auto from = (reinterpret_cast<std::uintptr_t>(data) + kPage - 1) / kPage * kPage;
  const auto end = (reinterpret_cast<std::uintptr_t>(data) + bytes) / kPage * kPage;
  if (from >= end) return;
  auto* const pages = reinterpret_cast<void*>(from);
  constexpr int kCollapse = 25;  // MADV_COLLAPSE of Linux 6.1, not in every C library's headers; an older kernel refuses it
  madvise(pages, end - from, MADV_HUGEPAGE);
  madvise(pages, end - from, kCollapse);  // what the allocator hands out again has small pages
}

void return_freed_memory() { malloc_trim(0); }

}  // namespace hfta::base
