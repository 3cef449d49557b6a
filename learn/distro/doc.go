// Package distro implements the DisTrO optimizer. It compresses a gradient to the few numbers worth
// sending, and computes the same weight update from the numbers of all trainers on every machine.
//
// The algorithm is Decoupled Momentum Optimization (arXiv 2411.19870). A tensor is cut into chunks.
// The momentum of each chunk is transformed by a discrete cosine transform (DCT), and its TopK
// largest coefficients are sent and removed from the momentum. The receiver averages each
// coefficient over the trainers that sent it, transforms back, and moves every weight in the
// direction of the sign: by the learning rate times the fraction of the results that sent something
// in its chunk.
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
// Replicas must hold the same bits on every machine. A difference in the last place of a sum can
// change its sign, and so change a step by twice the learning rate. The order of the
// single-precision operations is therefore part of the definition. The kernel "go" (reference.go,
// transform.go) is the specification, with an explicit rounding around every product. The C kernels
// do the same operations on vectors of 4, 8 or 16 columns of a chunk without contracting them. The
// bits therefore do not depend on the instruction set, the number of threads or the optimisation
// level. The tables are correctly rounded constants. Package learn/distro/cuda has the same kernels
// for GPUs.
//
// A coefficient that is exactly zero is never sent, because it has no sign. A chunk may therefore
// have fewer than TopK entries. The first results after a cold start have none.
package distro
