// Package codec turns the result of a trained batch into bytes and back.
//
// A result holds, for each tensor of the model and each chunk of it, at most K
// coefficients: their indices within the chunk and either their signs (1-bit) or their
// values. Both sides know the model, so the bytes carry no shapes: a TensorLayout for
// each tensor says how many chunks there are and how many entries fit in one.
//
// The encoding is canonical: Decode accepts exactly the bytes that Encode writes for some
// result, so one result has one hash. What Decode allocates depends on the layouts, never
// on what the bytes claim.
//
// Format, version 1 (integers little-endian):
//
//	offset  size  field
//	0       4     "PSYD"
//	4       1     version, 1
//	5       1     1 when quantized to signs, else 0
//	6       32    SHA-256 of the run id
//	38      4     step
//	42      8+8   first sequence index of the batch, and the one after its last
//	58      32    ed25519 key of the trainer
//	90            the tensors, each starting at a byte
//
// A tensor is a stream of bits, the lowest bit of a byte first, zero bits up to the next
// byte at its end:
//
//	1 bit         0 when every chunk holds exactly K entries, else 1
//	if that is 1  for each chunk its count, in bits(K) bits
//	for each chunk, for each entry in ascending order of index:
//	              the index in bits(ChunkSize−1) bits, then
//	              quantized: 1 bit, set for a negative value; else 32 bits, IEEE 754
//
// where bits(n) is the length of n in binary. A value that is zero, infinite or NaN has
// no encoding.
package codec
