// Package hashchain implements hash chains: sequences of values that are revealed one by one and
// fixed in advance by a commitment. Each value is the SHA-256 of the next. Given one value, later
// values can be verified but not predicted.
//
//	c := hashchain.New(secret, 1<<20)
//	c.Commitment()          // published first
//	c.Opening(commitment)   // the value whose SHA-256 is commitment; then pass this value, and so on
//
// A chain needs no record of the revealed values: it finds its position from the newest value. It
// stores some intermediate values, so that the next value costs about one hash.
package hashchain
