package torch

/*
#include "bind.h"
*/
import "C"

// Backward adds the gradient of t, a tensor of one element, to every tensor it was
// computed from that requires gradients, and releases what was recorded.
func (t *Tensor) Backward() { check("Backward", C.pt_backward(t.raw())) }

// Grad is the gradient gathered by Backward, sharing its memory; nil if there is none.
func (t *Tensor) Grad() *Tensor {
	r := C.pt_grad(t.raw())
	check("Grad", r.error)
	if r.tensor == nil {
		return nil
	}
	return t.scope().wrap(r.tensor)
}

// ClearGrad drops the gradient.
func (t *Tensor) ClearGrad() { check("ClearGrad", C.pt_clear_grad(t.raw())) }

// SetRequiresGrad says whether Backward gathers a gradient for t, and returns t.
func (t *Tensor) SetRequiresGrad(on bool) *Tensor {
	check("SetRequiresGrad", C.pt_set_requires_grad(t.raw(), flag(on)))
	return t
}

// RequiresGrad tells whether Backward reaches t.
func (t *Tensor) RequiresGrad() bool { return C.pt_requires_grad(t.raw()) != 0 }

// Detach is t without its history, sharing its memory.
func (t *Tensor) Detach() *Tensor { return t.result("Detach", C.pt_detach(t.raw())) }
