package torch

/*
#include "bind.h"
*/
import "C"

// Backward adds the gradient of t, a tensor of one element, to every tensor from which t was
// computed and that requires gradients. It then releases the recorded operations.
func (t *Tensor) Backward() { check("Backward", C.pt_backward(t.raw())) }

// Grad returns the gradient accumulated by Backward, sharing its memory, or nil if there is none.
func (t *Tensor) Grad() *Tensor {
	r := C.pt_grad(t.raw())
	check("Grad", r.error)
	if r.tensor == nil {
		return nil
	}
	return t.scope().wrap(r.tensor)
}

// TakeGrad returns the bits of the gradient in the memory of the CPU, or nil if there is none, and drops
// the gradient.
func (t *Tensor) TakeGrad() (values []float32) {
	_ = t.scope().Sub(func(*Scope) error { // frees the gradient
		if grad := t.Grad(); grad != nil {
			values = grad.CopyFloat32s()
		}
		t.ClearGrad()
		return nil
	})
	return values
}

// PutGrad makes values that TakeGrad returned the gradient of t, which must have none, bit for bit.
// Gradients must be on.
func (t *Tensor) PutGrad(values []float32) {
	if values == nil {
		return
	}
	_ = t.scope().Sub(func(s *Scope) error {
		t.Mul(s.FromFloat32s(values, t.Shape()...)).Sum().Backward() // its derivative is values
		return nil
	})
}

// ClearGrad drops the gradient.
func (t *Tensor) ClearGrad() { check("ClearGrad", C.pt_clear_grad(t.raw())) }

// SetRequiresGrad sets whether Backward accumulates a gradient for t, and returns t.
func (t *Tensor) SetRequiresGrad(on bool) *Tensor {
	check("SetRequiresGrad", C.pt_set_requires_grad(t.raw(), flag(on)))
	return t
}

// RequiresGrad reports whether Backward reaches t.
func (t *Tensor) RequiresGrad() bool { return C.pt_requires_grad(t.raw()) != 0 }

// Detach returns t without its history, sharing its memory.
func (t *Tensor) Detach() *Tensor { return t.result("Detach", C.pt_detach(t.raw())) }
