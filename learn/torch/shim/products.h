// Products whose result has another element type than the factors, and conversions of weights.
#pragma once

#include "shim.h"

namespace psyche {

// Returns a*b in the given element type.
at::Tensor product(const at::Tensor &a, const at::Tensor &b, at::ScalarType type);
// sum += a*b, for any types.
void add_product_to(at::Tensor sum, const at::Tensor &a, const at::Tensor &b);

// Returns t converted to the element type; it is the same tensor if t has that type. If the program
// keeps conversions of t's memory, the result is a view of the kept conversion.
at::Tensor cast(const at::Tensor &t, at::ScalarType type);

} // namespace psyche
