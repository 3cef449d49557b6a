// Package cuda implements package distro's kernels for CUDA devices. It computes the same bits as
// distro.Kernel, on tensors in the memory of a device.
//
//	device, err := cuda.Open(0)
//	if errors.Is(err, cuda.ErrNoCUDA) { … use distro.Kernel and copy … }
//	defer device.Close()
//	model, err := device.NewModel(layouts, 8)
//	defer model.Close()
//	results, err := model.Encode(delta, delta, grad, distro.EncodeParams{Decay: 0.999, LR: 4e-4, TopK: 8}, 0)
//	err = model.Apply([][]codec.TensorResult{results}, weights, distro.ApplyParams{LR: 4e-4, WeightFactor: 1})
//
// The tensors are in the order of the layouts. A tensor's address may come from another library, such
// as libtorch's data pointer, because the package uses the device's primary context, like the CUDA
// runtime. Calls run on the default stream, after earlier work there, and return when they are done.
// A caller that works on other streams must synchronise them first. Calls may come from any thread:
// a call makes the context current for its duration and then restores the previous context.
//
// # Bits
//
// The kernels (the .cu files) do the operations of distro's reference in the same order. Each
// operation is an intrinsic that rounds once and is never contracted, subnormal numbers included.
// Only the bits of a NaN may differ: weights with a NaN are lost anyway. Norms and floors are sums in
// double precision, in a fixed order that differs from the order on a CPU.
//
// Tests without a device check this in three ways. They run the kernels' source compiled for the CPU,
// they find races between the threads of a block, and they inspect the instructions that NVRTC
// generates. On an NVIDIA H200 the kernels for one tensor, from which the kernels for a model are
// derived, gave the bits of the reference.
//
// # Building
//
// The build needs neither CUDA's headers nor its libraries. The package opens the driver (libcuda.so.1)
// and NVRTC, which compiles the kernels for the present device, at run time. If $PSYCHE_NVRTC
// names a library or its directory, NVRTC is loaded only from there. Otherwise the package searches, in
// this order, the libraries of the process, the packages of its libtorch, the linker's path, and
// /usr/local/cuda.
package cuda
