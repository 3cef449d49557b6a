// Package hashchain reveals values one after the other that were all fixed by a first one: each is
// the SHA-256 of the next. Anybody who knows one of them can check all that follow and foresee none.
//
//	c := hashchain.New(secret, 1<<20)
//	c.Commitment()          // published first
//	c.Opening(commitment)   // the value whose SHA-256 that is, then the one of that, and so on
//
// A chain needs no note of how far it was revealed: it finds its place by the newest value. It
// keeps some values on the way, so that the next one costs about one hash.
package hashchain
