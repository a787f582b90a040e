#pragma once

/// Compiles a function for several vector widths and takes the widest that the processor has when the library is loaded. Loops inside are
/// vectorized by the compiler; functions called from it must be inlined.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define HFTA_HAS_VECTOR_TARGETS 1
#define HFTA_VECTOR_TARGETS __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define HFTA_VECTOR_TARGETS
#endif
