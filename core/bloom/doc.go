// Package bloom is the fixed-size Bloom filter in which a witness says what it holds.
//
// A Filter has no false negatives. With the 256 entries that a round can have at most
// an item that was not added is found with a probability of 0.8 %. The keys of the
// hash functions come from the round's seed, so nobody can look for colliding items
// before the round begins:
//
//	var held bloom.Filter
//	held.Add(round.Seed, commitment[:])
//	if held.Contains(round.Seed, other[:]) { … }
//
// To ask many filters about the same items, derive the Keys once and ask by Positions.
package bloom
