package torch

/*
#include "bind.h"
*/
import "C"

import "fmt"

// Copy is a copy of t, a tensor of any engine, on this scope's device. Without gradients
// only.
func (s *Scope) Copy(t *Tensor) *Tensor { return s.Zeros(t.DType(), t.Shape()...).CopyFrom(t) }

// Alias is t, a tensor of any engine of the same device, as a tensor of this scope: the
// same memory, and gradients of its own. Whoever writes to one makes sure that nobody
// computes with the other.
func (s *Scope) Alias(t *Tensor) *Tensor {
	if t.engine.device != s.engine.device {
		panic(&Error{Op: "Alias", Message: fmt.Sprintf("a tensor on %s for an engine on %s", t.engine.device, s.engine.device)})
	}
	return s.result("Alias", C.pt_detach(t.raw()))
}
