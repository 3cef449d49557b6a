// Package bloom implements the fixed-size Bloom filter in which a witness reports the results that
// it holds.
//
// A Filter has no false negatives. With 256 entries, the maximum of a round, the probability of a
// false positive is 0.8 %. The keys of the hash functions come from the round's seed, so colliding
// items cannot be searched for before the round starts:
//
//	var held bloom.Filter
//	held.Add(round.Seed, commitment[:])
//	if held.Contains(round.Seed, other[:]) { … }
//
// To query many filters for the same items, derive the Keys once and query by Positions.
package bloom
