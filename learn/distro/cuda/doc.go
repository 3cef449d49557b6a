// Package cuda is the twin of package distro's kernels for CUDA devices: the same bits as
// distro.Kernel, on tensors that lie in a device's memory.
//
//	device, err := cuda.Open(0)
//	if errors.Is(err, cuda.ErrNoCUDA) { … use distro.Kernel and copy … }
//	defer device.Close()
//	weights := cuda.Tensor{Address: cuda.DevicePointer(pointer), Elements: layout.Elements()}
//	err = device.DecodeApply(layout, results, weights, distro.ApplyParams{LR: 4e-4, WeightFactor: 1})
//
// The address may be that of another library's tensor, such as libtorch's data pointer: the
// package uses the device's primary context, which the CUDA runtime uses too. Calls run on
// the default stream, after what was put there, and return when they are done; a caller
// that works on other streams synchronises them first. Any thread may call: the context is
// made current for the duration of a call, and what was current before is put back.
//
// # Bits
//
// The kernels (kernel.cu) do the operations of distro's reference in its order, each by an
// intrinsic that rounds once and is never contracted, subnormal numbers included. The bits
// of a NaN are the only thing that may differ: weights that hold one are lost anyway.
//
// Tests without a device show it by the text compiled for the CPU, and by the instructions that
// NVRTC makes of it. On an NVIDIA H200 the kernels gave the bits of the reference.
//
// # Building
//
// Neither CUDA's headers nor its libraries are needed to build. The driver (libcuda.so.1)
// and NVRTC, which compiles the kernels for the device at hand, are opened at run time.
// NVRTC is sought where $PSYCHE_NVRTC says (a library or its directory), among the
// libraries of the process, beside its libtorch, in the linker's path and in
// /usr/local/cuda.
package cuda
