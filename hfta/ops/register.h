#pragma once

namespace hfta::ops {

// One function per file of rules; `rule.cpp` calls each once, when the table is first asked for. Called by name, not registered by
// static objects, so that no linker drops them.

void register_convolution_rules();
void register_product_rules();
void register_random_rules();

}  // namespace hfta::ops
