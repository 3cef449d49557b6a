package torch

/*
#include "bind.h"
*/
import "C"

import "unsafe"

// SetKernels sets the C function that launches the kernels of package cuda on devices, a pt_launch of
// abi.h, with its context. Operations then use these kernels in place of several operations of
// libtorch each. They must not run meanwhile. nil removes the function.
func SetKernels(launch, context unsafe.Pointer) {
	C.pt_set_device_kernels(C.pt_launch(launch), context)
}
