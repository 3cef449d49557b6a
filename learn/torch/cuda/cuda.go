// Package cuda contains the text of the CUDA kernels for parts of a transformer layer.
//
// The shim launches them by name, through a function that the program passes to
// torch.SetKernels. Without that function, it uses several operations of libtorch in place of each
// kernel.
package cuda

import _ "embed"

//go:embed pieces.h
var arguments string

//go:embed pieces.cu
var kernels string

// Source is the text for NVRTC. It includes no files. Each kernel takes one struct by value, and needs
// blocks of [Threads] threads, without dynamic shared memory.
var Source = arguments + kernels

// Threads is the number of threads of each block.
const Threads = 256

// Names returns the names of the kernels.
func Names() []string {
	names := []string{"psyche_sum_parts", "psyche_count"}
	for _, name := range []string{"norm_forward", "norm_backward", "rotate", "swiglu", "swiglu_backward", "cross_entropy", "embed", "embed_gradient"} {
		names = append(names, "psyche_"+name+"_f32", "psyche_"+name+"_bf16")
	}
	return names
}
