// Package localsteps is the exchange of members that make many optimizer steps by themselves between
// two exchanges: for links that are too slow for an exchange after each step.
//
// The method is that of SparseLoCo (arXiv 2508.15706), which goes on from DiLoCo (arXiv 2311.08105).
// In a round each member starts from the common weights and makes H steps of an inner optimizer. How far
// it came, the weights before less the weights after, is added to what it could not send in earlier rounds
// (error feedback). Of each chunk the TopK largest of these sums are sent, in a few bits each, and what was
// sent, rounded as it was, is taken out of them. Everybody moves the weights by the mean of what counted.
//
// Order of calls, for each tensor:
//
//	layout, err := distro.NewLayout(shape, 64)
//	Feed(sums, before, after, decay, nil, 0)
//	result, err := Encode(layout, sums, EncodeParams{Reach: lr * H, TopK: 16, LevelBits: 2})
//	blob, err := codec.EncodeLevels(header, []codec.TensorLayout{layout.Codec(16)}, 2, []codec.TensorResult{result})
//	…
//	err = Apply(layout, results, weights, ApplyParams{Reach: lr * H, LevelBits: 2, Rate: 1})
//
// # What a value is
//
// A value is a level, a whole number of 1 to 2^(LevelBits−1) with a sign, times the unit of its chunk. Units
// are fractions of Reach, the learning rate times the number of inner steps, which is about as far as these
// can move a weight: see Unit. So no member can say a number that moves a weight much further than its
// steps could have.
//
// # How much a member weighs
//
// All results that counted weigh alike in the mean, and who sent nothing of an element counts as zero there.
// In each tensor a result that is longer than twice the median of those that say anything there is shortened
// to that. The median of an even number is the lower one of the two.
//
// # Bits
//
// Replicas must hold the same bits on every machine. Apply works in double precision, element by element and
// result by result in the order given, with a rounding after every operation; at the end the step is rounded to single precision and
// subtracted. There is one implementation, in Go, without a vector unit: it has little to do, once in H steps.
package localsteps
