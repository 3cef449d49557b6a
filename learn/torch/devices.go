package torch

/*
#include "bind.h"
*/
import "C"

import "unsafe"

// SetKernels sets the C function that launches the kernels of package learn/torch/cuda on a device, a
// pt_launch of abi.h, with its context. Operations on the device then use these kernels in place of
// several operations of libtorch each. They must not run meanwhile. nil removes the function.
func SetKernels(device Device, launch, context unsafe.Pointer) {
	C.pt_set_device_kernels(C.int(device), C.pt_launch(launch), context)
}

// Conversions are copies of weights in the types that operations compute in. Without them, each
// operation converts its weights again.
type Conversions struct{ weights []*Tensor }

// KeepConversions makes operations keep the conversions of f32 weights that they need. The caller must
// call Changed after each change of the weights through their address or Float32s, and Drop before it
// frees them. Operations of this package that change weights need no call.
func KeepConversions(weights ...*Tensor) Conversions {
	list, count := handles(weights)
	C.pt_keep_conversions(list, count)
	return Conversions{weights}
}

// Changed makes the next operation convert the weights again.
func (c Conversions) Changed() {
	list, count := handles(c.weights)
	C.pt_conversions_changed(list, count)
}

// Drop frees the conversions.
func (c Conversions) Drop() {
	list, count := handles(c.weights)
	C.pt_drop_conversions(list, count)
}
