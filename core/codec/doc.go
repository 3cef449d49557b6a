// Package codec encodes and decodes the result of a trained batch.
//
// For each chunk of each tensor of the model, a result contains at most K coefficients: their
// indices within the chunk, and either their signs (1-bit), their values, or their levels, which
// are small integer multiples of a unit of the chunk. Both sides know the model, so the bytes
// contain no shapes: a TensorLayout for each tensor contains the number of chunks and the number of
// entries per chunk.
//
// The encoding is canonical: Decode accepts exactly the bytes that Encode writes for some result,
// so a result has only one hash. The memory that Decode allocates depends only on the layouts, not
// on the bytes.
//
// Format, version 3 (integers little-endian):
//
//	offset  size  field
//	0       4     "PSYD"
//	4       1     version, 3
//	5       1     form of the values: 0 value, 1 sign, b + 1 level of b bits (1 to 4)
//	6       32    SHA-256 of the run id
//	38      4     step
//	42      8+8   first sequence index of the batch, and the one after its last
//	58      32    ed25519 key of the trainer
//	90      32    Merkle root of the trainer's momentum after the step; zero without audits
//	122     4     step of the result from which this momentum continues; 0: it started as zeros
//	126     1     type of the gradient: 1 f32, 2 bf16; 0 without audits
//	127     32    SHA-256 of the batch's tokens (data.Batch.Hash); zero without audits
//	159           the tensors, each starting at a byte
//
// Other versions are refused.
//
// A tensor is a stream of bits, lowest bit of a byte first, padded with zero bits to a whole byte
// at its end:
//
//	1 bit         0 if every chunk has exactly K entries, else 1
//	if it is 1    1 bit: 0 if every chunk has K entries or none, else 1; then
//	              for each chunk 1 bit, set if it has any, and after a set one,
//	              if the second bit is 1, its count less 1, in bits(K−1) bits
//	for each chunk, whose count is n:
//	              levels, if n is not 0: its unit
//	              its set of indices, then
//	              for each entry in ascending order of index
//	              value: 32 bits, IEEE 754; sign: 1 bit, set for a negative value;
//	              level of b bits: 1 bit, set for a negative one, and b − 1 bits, its size less 1
//
// The function bits(x) is the length of x in binary. A value that is zero, infinite or NaN has no
// encoding.
//
// A unit is a number u from 0 to 127, encoded as its difference from the unit of the preceding
// chunk of the tensor that has entries (40 for the first): with d = 2·(u − before) for u ≥ before,
// else 2·(before − u) − 1, the number d + 1 in the Elias gamma code, bits(d+1) − 1 zero bits, a one
// bit, and the other bits of d + 1, lowest first. The codec does not know the size of a unit.
//
// A set of n indices i₁ < i₂ < … < iₙ is written as its rank among all sets of n out of ChunkSize
// in colexicographic order, C(i₁,1) + C(i₂,2) + … + C(iₙ,n), in bits(C(ChunkSize,n)−1) bits. Sets
// of 8 out of 4096 take 81 bits, a third of a percent over the bound log₂ C(4096,8); 12-bit numbers
// would take 96. If ChunkSize·K is more than 131072, the table of binomials would be large, so the
// indices are written in ascending order in bits(ChunkSize−1) bits each.
package codec
