package torch

/*
#include "bind.h"
*/
import "C"

import (
	"fmt"
	"runtime"
	"unsafe"
)

// Tensor is an n-dimensional array in libtorch's memory. Its operations run on the engine's thread,
// inside Do, and panic with an *Error. Results belong to the innermost scope. Float32s, Shape,
// Numel, DType and Device may be used from any goroutine as long as the tensor lives and no code
// writes to it.
type Tensor struct {
	handle C.pt_tensor
	engine *Engine
	owner  *Scope // nil if kept
	index  int    // in owner.tensors
}

// Parameter is a trainable tensor with its name in a checkpoint.
type Parameter struct {
	Name   string
	Tensor *Tensor
}

func (t *Tensor) raw() C.pt_tensor {
	if t == nil || t.handle == nil {
		panic(&Error{Op: "Tensor", Message: "the tensor is nil, or its scope has ended"})
	}
	return t.handle
}

// scope returns the scope that receives the results of operations on t.
func (t *Tensor) scope() *Scope {
	if t.engine.scope == nil {
		panic(&Error{Op: "Tensor", Message: "operation outside Engine.Do"})
	}
	return t.engine.scope
}

func (t *Tensor) result(op string, r C.pt_result) *Tensor {
	check(op, r.error)
	return t.scope().wrap(r.tensor)
}

// Free frees a kept tensor. It must be called inside Do. It is not needed for a tensor of a scope.
func (t *Tensor) Free() {
	handle := t.raw()
	if t.owner != nil {
		t.owner.forget(t)
	}
	delete(t.engine.kept, t)
	C.pt_free_tensors(&handle, 1)
	t.handle = nil
}

// Shape is the size of each dimension.
func (t *Tensor) Shape() []int64 {
	shape := make([]int64, int(C.pt_dims(t.raw())))
	if len(shape) > 0 {
		C.pt_shape(t.raw(), (*C.int64_t)(unsafe.Pointer(&shape[0])))
	}
	return shape
}

// Dim is the size of dimension i; negative i counts from the end.
func (t *Tensor) Dim(i int) int64 {
	shape := t.Shape()
	if i < 0 {
		i += len(shape)
	}
	if i < 0 || i >= len(shape) {
		panic(&Error{Op: "Dim", Message: fmt.Sprintf("no dimension %d in shape %v", i, shape)})
	}
	return shape[i]
}

// DType is the element type.
func (t *Tensor) DType() DType { return DType(C.pt_dtype(t.raw())) }

// Device is the device of the tensor.
func (t *Tensor) Device() Device { return Device(C.pt_device(t.raw())) }

// Numel is the number of elements.
func (t *Tensor) Numel() int64 { return int64(C.pt_numel(t.raw())) }

// Item is the value of a tensor of one element.
func (t *Tensor) Item() float64 {
	r := C.pt_item(t.raw())
	check("Item", r.error)
	return float64(r.value)
}

// Float32s returns the tensor's own memory: writing to it changes the tensor. It needs a contiguous
// f32 tensor on the CPU. The slice is valid as long as the tensor lives.
func (t *Tensor) Float32s() []float32 {
	data := C.pt_cpu_data(t.raw())
	if t.DType() != F32 || (data == nil && t.Numel() > 0) {
		panic(&Error{Op: "Float32s", Message: fmt.Sprintf("needs a contiguous f32 tensor on the CPU, this is %s", t)})
	}
	return unsafe.Slice((*float32)(data), t.Numel())
}

// Share returns an object that keeps the tensor's memory as long as it is reachable, even after the
// tensor and its engine have been freed. It may be called from any goroutine.
func (t *Tensor) Share() *Memory {
	shared := C.pt_detach(t.raw())
	check("Share", shared.error)
	m := &Memory{shared.tensor}
	runtime.AddCleanup(m, func(handle C.pt_tensor) { C.pt_free_tensors(&handle, 1) }, shared.tensor)
	return m
}

// Memory is the memory of a tensor; see [Tensor.Share].
type Memory struct{ handle C.pt_tensor }

// Address returns the address of the elements of a contiguous f32 tensor in its device's memory. It
// is valid as long as the tensor lives. It is for code that works on that memory directly, in order
// with libtorch's operations on the device's default stream.
func (t *Tensor) Address() uintptr {
	address := C.pt_address(t.raw())
	if t.DType() != F32 || (address == nil && t.Numel() > 0) {
		panic(&Error{Op: "Address", Message: fmt.Sprintf("needs a contiguous f32 tensor, this is %s", t)})
	}
	return uintptr(address)
}

// CopyFloat32s copies the elements out of a tensor of any float type and device.
func (t *Tensor) CopyFloat32s() []float32 {
	out := make([]float32, t.Numel())
	t.ReadFloat32s(out)
	return out
}

// ReadFloat32s is CopyFloat32s into an existing slice of t's length.
func (t *Tensor) ReadFloat32s(into []float32) {
	if t.DType() != F32 {
		t = t.To(F32)
	}
	check("ReadFloat32s", C.pt_to_bytes(t.raw(), unsafe.Pointer(unsafe.SliceData(into)), C.size_t(4*len(into))))
}

// Bytes returns a copy of the elements, little-endian, in row-major order.
func (t *Tensor) Bytes() []byte {
	out := make([]byte, t.Numel()*int64(t.DType().Size()))
	check("Bytes", C.pt_to_bytes(t.raw(), unsafe.Pointer(unsafe.SliceData(out)), C.size_t(len(out))))
	return out
}

// Memory returns the memory of Float32s as bytes. They are little-endian, as on all machines that
// libtorch supports.
func (t *Tensor) Memory() []byte {
	values := t.Float32s()
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(values))), 4*len(values))
}

// String returns type, shape and device, without the values.
func (t *Tensor) String() string {
	if t == nil || t.handle == nil {
		return "no tensor"
	}
	return fmt.Sprintf("%s%v on %s", t.DType(), t.Shape(), t.Device())
}
