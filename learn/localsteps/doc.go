// Package localsteps is the exchange of members that make many optimizer steps by themselves between
// two exchanges: for links that are too slow for an exchange after each step.
//
// The method is that of SparseLoCo (arXiv 2508.15706), which goes on from DiLoCo (arXiv 2311.08105).
// In a round each member starts from the common weights and makes H steps of an inner optimizer. How far
// it came, the weights before less the weights after, is added to what it could not send in earlier rounds
// (error feedback). Of each chunk of these sums the TopK largest coefficients of the discrete cosine transform
// are sent, in a few bits each, and what was sent, rounded as it was, is taken out of the sums. Everybody moves
// the weights by the mean of what counted. The transform is ours: without it as many elements say far less
// (proof/bench/parity).
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
// # What a value is
//
// A value is a level, a whole number of 1 to 2^(LevelBits−1) with a sign, times the unit of its chunk. Units
// are fractions of how long a chunk would be all of whose weights came as far as Reach: the learning rate times
// the number of inner steps, which is about as far as these can move a weight. So no member can say a
// number that moves weights much further than its steps could have. See Unit.
//
// # How much a member weighs
//
// All results that counted weigh alike in the mean, and who sent nothing of a coefficient counts as zero there.
// In each tensor a result that is longer than twice the median of those that say anything there is shortened
// to that. The median of an even number is the lower one of the two.
//
// # Bits
//
// Replicas must hold the same bits on every machine. The mean is computed in double precision, coefficient by
// coefficient and result by result in the order given, with a rounding after every operation, and rounded to
// single precision; then the kernels of package distro transform it back and add it to the weights, with the
// same bits on every instruction set.
package localsteps
