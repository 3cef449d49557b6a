// Package localsteps implements local steps: members make many optimizer steps locally between two
// exchanges, for links that are too slow for an exchange after each step.
//
// The method is SparseLoCo (arXiv 2508.15706), which extends DiLoCo (arXiv 2311.08105). In a round,
// each member starts from the common weights and makes H steps of an inner optimizer. Its
// pseudo-gradient, the weights before the steps minus the weights after them, is added to the residual
// that it could not send in earlier rounds (error feedback). For each chunk of these sums, the TopK largest
// coefficients of the discrete cosine transform are sent, in a few bits each. The sent values, as
// rounded, are subtracted from the sums. All members move the weights by the mean of the results
// that counted. The transform is an addition of this project: without it, the same number of
// elements carries far less information (proof/bench/parity).
//
// Order of calls, for each tensor:
//
//	kernel, err := distro.NewKernel(distro.Options{Threads: 2})
//	layout, err := distro.NewLayout(shape, 64)
//	Far(before, after, nil, 0)
//	result, err := Encode(kernel, layout, sums, after, EncodeParams{Reach: lr * H, TopK: 16, LevelBits: 2, Decay: 1})
//	blob, err := codec.EncodeLevels(header, []codec.TensorLayout{layout.Codec(16)}, 2, []codec.TensorResult{result})
//	…
//	err = Apply(kernel, layout, results, weights, ApplyParams{Reach: lr * H, LevelBits: 2, Rate: 1})
//
// # Values
//
// A value is a level, a whole number from 1 to 2^(LevelBits−1) with a sign, times the unit of its
// chunk. A unit is a fraction of the L2 norm of a change that moves every weight of a chunk by Reach. Reach
// is the learning rate times the number of inner steps, about the largest distance that these steps
// can move a weight. So no member can send a number that moves weights much further than its steps
// could have. See unitOf.
//
// # The weight of a member
//
// The weights of the results that counted are their votes, which are equal unless shares follow speeds
// (assign.Batches). A member that sent nothing for a coefficient counts as zero there. In each tensor, a result whose L2 norm is more than twice the median
// norm of the nonzero results is scaled down to twice the median. The median of an even number of norms is
// the lower of the middle two.
//
// # Bits
//
// Replicas must hold the same bits on every machine. The mean is computed in double precision,
// coefficient by coefficient and result by result in the given order, with a rounding after every
// operation, and rounded to single precision. Then the kernels of package distro transform it back
// and add it to the weights, with the same bits on every instruction set.
package localsteps
