// Package distro is the DisTrO optimizer: it turns a gradient into the few numbers worth
// sending, and the numbers that all trainers sent into the same weight update everywhere.
//
// The algorithm is Decoupled Momentum Optimization (arXiv 2411.19870). A tensor is cut
// into chunks; the momentum of each chunk is transformed by a discrete cosine transform
// (DCT), its TopK largest coefficients are sent and taken out of the momentum. The
// receiver averages each coefficient over those who sent it, transforms back and moves
// every weight in the direction of the sign: by the learning rate times the share of the results
// that sent something in its chunk.
//
// Order of calls, for each tensor:
//
//	kernel, err := distro.NewKernel(distro.Options{Threads: 2})
//	layout, err := distro.NewLayout(shape, 64)
//	result, err := kernel.Encode(layout, delta, grad, distro.EncodeParams{Decay: 0.999, LR: 4e-4, TopK: 8})
//	blob, err := codec.Encode(header, []codec.TensorLayout{layout.Codec(8)}, true, []codec.TensorResult{result})
//	…
//	err = kernel.DecodeApply(layout, results, weights, distro.ApplyParams{LR: 4e-4, WeightFactor: 1})
//
// # Bits
//
// Replicas must hold the same bits on every machine, and the sign of a sum turns a
// difference in its last place into a step of twice the learning rate. So the order of
// the single-precision operations is part of the definition: the kernel "go" (reference.go,
// transform.go) is the specification, with an explicit rounding around every product; the
// C kernels do the same operations on vectors of 4, 8 or 16 columns of a chunk without
// contracting them. Instruction set, thread count and optimisation level
// therefore do not change a bit. The tables are correctly rounded constants. Package
// learn/distro/cuda has the same kernels for GPUs.
//
// A coefficient that is exactly zero is never sent: it has no sign. A chunk may
// therefore carry fewer than TopK entries (all of them, at a cold start).
package distro
