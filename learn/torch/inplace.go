package torch

/*
#include "bind.h"
*/
import "C"

// The operations in this file change t and return it. If t requires gradients, gradients must be
// off (Do with grad false, or WithGrad).

// AddInPlace is t += alpha·u.
func (t *Tensor) AddInPlace(u *Tensor, alpha float64) *Tensor {
	check("AddInPlace", C.pt_add_in_place(t.raw(), u.raw(), C.double(alpha)))
	return t
}

// MulScalarInPlace is t *= v.
func (t *Tensor) MulScalarInPlace(v float64) *Tensor {
	check("MulScalarInPlace", C.pt_mul_scalar_in_place(t.raw(), C.double(v)))
	return t
}

// LerpInPlace is t += weight·(end − t).
func (t *Tensor) LerpInPlace(end *Tensor, weight float64) *Tensor {
	check("LerpInPlace", C.pt_lerp_in_place(t.raw(), end.raw(), C.double(weight)))
	return t
}

// CopyFrom overwrites t with u, and converts type and device. One of the two may be a tensor of
// another engine if no other code uses it during the call. So CopyFrom can move values between
// engines.
func (t *Tensor) CopyFrom(u *Tensor) *Tensor {
	check("CopyFrom", C.pt_copy(t.raw(), u.raw()))
	return t
}
