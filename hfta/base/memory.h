#pragma once

#include <cstddef>

namespace hfta::base {

/// Makes the C allocator keep large freed blocks for the next step instead of returning their pages to the system.
/// CPU only; called once per process by whatever trains. Repeated calls do nothing.
void keep_freed_memory();

/// Asks the system for large pages behind this memory, where it has them: a step that walks through all of an array's memory otherwise
/// waits for the translation of addresses. Only whole large pages (2 MiB) within `[data, data + bytes)`; elsewhere nothing changes.
void prefer_large_pages(void* data, std::size_t bytes);

/// Returns what was freed to the system once: blocks that the allocator cannot give out again in their old size pile up otherwise.
void return_freed_memory();

}  // namespace hfta::base
