package torch

/*
#include "bind.h"
*/
import "C"

import "fmt"

// Copy returns a copy of t, a tensor of any engine, on this scope's device. Gradients must be off.
func (s *Scope) Copy(t *Tensor) *Tensor { return s.Zeros(t.DType(), t.Shape()...).CopyFrom(t) }

// Alias returns t, a tensor of any engine on the same device, as a tensor of this scope. Both share
// their memory but have separate gradients. A caller that writes to one of them must ensure that no
// other code computes with the other.
func (s *Scope) Alias(t *Tensor) *Tensor {
	if t.engine.device != s.engine.device {
		panic(&Error{Op: "Alias", Message: fmt.Sprintf("a tensor on %s for an engine on %s", t.engine.device, s.engine.device)})
	}
	return s.result("Alias", C.pt_detach(t.raw()))
}
