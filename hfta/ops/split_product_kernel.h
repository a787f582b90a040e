#pragma once

#include <cstdint>

#include "hfta/ops/unpacked_product_kernel.h"

namespace hfta::ops {

// Products by the processor's matrix unit (Intel AMX), which multiplies bfloat16 and sums in float. Each float is split into three bfloat16
// parts of 8 bits, together exact; six of the nine products of parts are summed. Those left out are below 2^-25 of the whole: less than what
// summing in float loses. Numbers below 2^-110 lose their low parts, as the unit takes denormals for zero.
// Source: Henry, Tang, Heinecke: Leveraging the bfloat16 artificial intelligence datatype for higher-precision computations (2019).

/// Whether the processor has such a unit and the system lets this process use it; asks for that once.
bool has_split_products();

/// How the factors of one product become tiles: chosen by what must be turned.
struct SplitWay {
  bool turned;         ///< The result is computed transposed.
  bool keeps_left;     ///< The left factor is split as a whole, the right one piece by piece as it is used; else the other way around.
};

/// @param shared_left, shared_right whether all lanes multiply by the same factor: it is split once.
SplitWay split_way(const Matrix<float>& left, bool shared_left, const Matrix<float>& right, bool shared_right, const ProductShape& shape);

/// How many bfloat16 numbers the kept factor's parts take.
std::int64_t kept_parts(SplitWay way, const ProductShape& shape);
/// Splits the factor that is kept. @returns whether all its numbers can be split: none is infinite, no number, or next to infinity.
bool split_kept(SplitWay way, const Matrix<float>& left, const Matrix<float>& right, const ProductShape& shape, std::uint16_t* parts);

/// `out[rows, columns] = left @ right`, contiguous, from a kept factor's parts. One of each factor's strides is 1.
/// @returns false where a number cannot be split: the result is then no use.
bool split_product(SplitWay way, const Matrix<float>& left, const Matrix<float>& right, const std::uint16_t* parts, const Ends<float>& ends, float* out,
                   const ProductShape& shape);

}  // namespace hfta::ops
