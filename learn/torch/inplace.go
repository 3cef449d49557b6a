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

// MulInPlace is t *= u.
func (t *Tensor) MulInPlace(u *Tensor) *Tensor {
	check("MulInPlace", C.pt_mul_in_place(t.raw(), u.raw()))
	return t
}

// AddScalarInPlace is t += v.
func (t *Tensor) AddScalarInPlace(v float64) *Tensor {
	check("AddScalarInPlace", C.pt_add_scalar_in_place(t.raw(), C.double(v)))
	return t
}

// MulScalarInPlace is t *= v.
func (t *Tensor) MulScalarInPlace(v float64) *Tensor {
	check("MulScalarInPlace", C.pt_mul_scalar_in_place(t.raw(), C.double(v)))
	return t
}

// AddcmulInPlace is t += value·a·b.
func (t *Tensor) AddcmulInPlace(a, b *Tensor, value float64) *Tensor {
	check("AddcmulInPlace", C.pt_addcmul_in_place(t.raw(), a.raw(), b.raw(), C.double(value)))
	return t
}

// AddcdivInPlace is t += value·a/b.
func (t *Tensor) AddcdivInPlace(a, b *Tensor, value float64) *Tensor {
	check("AddcdivInPlace", C.pt_addcdiv_in_place(t.raw(), a.raw(), b.raw(), C.double(value)))
	return t
}

// LerpInPlace is t += weight·(end − t).
func (t *Tensor) LerpInPlace(end *Tensor, weight float64) *Tensor {
	check("LerpInPlace", C.pt_lerp_in_place(t.raw(), end.raw(), C.double(weight)))
	return t
}

// Fill sets every element to v.
func (t *Tensor) Fill(v float64) *Tensor {
	check("Fill", C.pt_fill(t.raw(), C.double(v)))
	return t
}

// Zero sets every element to 0.
func (t *Tensor) Zero() *Tensor { return t.Fill(0) }

// CopyFrom overwrites t with u, and converts type and device. One of the two may be a tensor of
// another engine if no other code uses it during the call. So CopyFrom can move values between
// engines.
func (t *Tensor) CopyFrom(u *Tensor) *Tensor {
	check("CopyFrom", C.pt_copy(t.raw(), u.raw()))
	return t
}
