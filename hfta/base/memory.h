#pragma once

namespace hfta::base {

/// Makes the C allocator keep large freed blocks for the next step instead of returning their pages to the system.
/// CPU only; called once per process by whatever trains. Repeated calls do nothing.
void keep_freed_memory();

/// Returns what was freed to the system once: blocks that the allocator cannot give out again in their old size pile up otherwise.
void return_freed_memory();

}  // namespace hfta::base
