package torch

/*
#include "bind.h"
*/
import "C"

import (
	"unsafe"
)

// Scope owns the tensors that are created while it is the innermost scope, and frees them when it
// ends. Only the function that received a scope may use it, on the engine's thread.
type Scope struct {
	engine  *Engine
	parent  *Scope
	tensors []*Tensor
	slab    []Tensor // next structs to hand out; never reused, so that stale pointers are detected
	ended   bool
}

func newScope(e *Engine) *Scope { return &Scope{engine: e, parent: e.scope} }

// Sub runs fn with a new scope, which ends when fn returns. It is for the steps of a loop.
// [Scope.Lift] and [Scope.Keep] keep a tensor longer.
func (s *Scope) Sub(fn func(s *Scope) error) error {
	e := s.engine
	inner, outer := newScope(e), e.scope
	e.scope = inner
	defer func() {
		e.scope = outer
		inner.free()
	}()
	return fn(inner)
}

// WithGrad runs fn with gradients on or off, whatever the argument of Do.
func (s *Scope) WithGrad(on bool, fn func() error) error {
	before := C.pt_grad_mode(flag(on))
	defer C.pt_grad_mode(before)
	return fn()
}

// Keep removes t from its scope. t lives until [Tensor.Free] or the engine's Close.
func (s *Scope) Keep(t *Tensor) *Tensor {
	t.raw()
	if t.owner != nil {
		t.owner.forget(t)
		s.engine.kept[t] = struct{}{}
	}
	return t
}

// Lift moves t from this scope to the enclosing one, so that it outlives a Sub.
func (s *Scope) Lift(t *Tensor) *Tensor {
	t.raw()
	if t.owner != nil && s.parent != nil {
		t.owner.forget(t)
		s.parent.adopt(t)
	}
	return t
}

func (s *Scope) adopt(t *Tensor) {
	t.owner, t.index = s, len(s.tensors)
	s.tensors = append(s.tensors, t)
}

func (s *Scope) forget(t *Tensor) {
	s.tensors[t.index] = nil
	t.owner = nil
}

const slabSize = 64

func (s *Scope) wrap(handle C.pt_tensor) *Tensor {
	if s.ended {
		C.pt_free_tensors(&handle, 1)
		panic(&Error{Op: "Scope", Message: "used after its function returned"})
	}
	if len(s.slab) == 0 {
		s.slab = make([]Tensor, slabSize)
	}
	t := &s.slab[0]
	s.slab = s.slab[1:]
	t.handle, t.engine = handle, s.engine
	s.adopt(t)
	return t
}

func (s *Scope) free() {
	s.ended = true
	handles := make([]C.pt_tensor, 0, len(s.tensors))
	for _, t := range s.tensors {
		if t != nil {
			handles = append(handles, t.handle)
			t.handle, t.owner = nil, nil
		}
	}
	if len(handles) > 0 {
		C.pt_free_tensors(&handles[0], C.int(len(handles)))
	}
	s.tensors, s.slab = nil, nil
}

// result takes ownership of the shim's result of op.
func (s *Scope) result(op string, r C.pt_result) *Tensor {
	check(op, r.error)
	return s.wrap(r.tensor)
}

// ints passes a list of sizes to the shim.
func ints(list []int64) (*C.int64_t, C.int) {
	return (*C.int64_t)(unsafe.Pointer(unsafe.SliceData(list))), C.int(len(list))
}

// Full returns a tensor filled with value.
func (s *Scope) Full(dtype DType, value float64, shape ...int64) *Tensor {
	sizes, dims := ints(shape)
	return s.result("Full", C.pt_full(sizes, dims, C.double(value), C.int(dtype), C.int(s.engine.device)))
}

// Zeros returns a tensor of zeros.
func (s *Scope) Zeros(dtype DType, shape ...int64) *Tensor { return s.Full(dtype, 0, shape...) }

// FromBytes copies little-endian elements. len(data) must be the number of elements times their
// size.
func (s *Scope) FromBytes(data []byte, dtype DType, shape ...int64) *Tensor {
	return s.from("FromBytes", unsafe.Pointer(unsafe.SliceData(data)), len(data), dtype, shape)
}

// FromFloat32s copies data into an f32 tensor of that shape.
func (s *Scope) FromFloat32s(data []float32, shape ...int64) *Tensor {
	return s.from("FromFloat32s", unsafe.Pointer(unsafe.SliceData(data)), 4*len(data), F32, shape)
}

// FromInt64s copies data into an i64 tensor of that shape.
func (s *Scope) FromInt64s(data []int64, shape ...int64) *Tensor {
	return s.from("FromInt64s", unsafe.Pointer(unsafe.SliceData(data)), 8*len(data), I64, shape)
}

// FromInt32s copies data, such as token ids, into an i64 tensor of that shape.
func (s *Scope) FromInt32s(data []int32, shape ...int64) *Tensor {
	wide := make([]int64, len(data))
	for i, v := range data {
		wide[i] = int64(v)
	}
	return s.from("FromInt32s", unsafe.Pointer(unsafe.SliceData(wide)), 8*len(wide), I64, shape)
}

func (s *Scope) from(op string, data unsafe.Pointer, size int, dtype DType, shape []int64) *Tensor {
	sizes, dims := ints(shape)
	return s.result(op, C.pt_from_bytes(data, C.size_t(size), sizes, dims, C.int(dtype), C.int(s.engine.device)))
}

// Cat joins tensors along dim.
func (s *Scope) Cat(dim int, tensors ...*Tensor) *Tensor {
	list, count := handles(tensors)
	return s.result("Cat", C.pt_cat(list, count, C.int64_t(dim)))
}

// Norm is the 2-norm of all elements of all tensors together, as in gradient clipping.
func (s *Scope) Norm(tensors ...*Tensor) float64 {
	list, count := handles(tensors)
	r := C.pt_norm(list, count)
	check("Norm", r.error)
	return float64(r.value)
}

// AllFinite reports whether no element of any tensor is NaN or infinite.
func (s *Scope) AllFinite(tensors ...*Tensor) bool {
	list, count := handles(tensors)
	r := C.pt_all_finite(list, count)
	check("AllFinite", r.error)
	return r.value != 0
}

func handles(tensors []*Tensor) (*C.pt_tensor, C.int) {
	list := make([]C.pt_tensor, len(tensors))
	for i, t := range tensors {
		list[i] = t.raw()
	}
	return unsafe.SliceData(list), C.int(len(list))
}
