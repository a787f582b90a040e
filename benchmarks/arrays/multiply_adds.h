#pragma once

namespace hfta::bench {

/// Multiplications and additions of floats a second that the vector units of so many cores do when nothing waits for memory: what no product
/// can exceed that they compute.
double multiply_adds_per_second(int cores);

}  // namespace hfta::bench
