// Package odds computes how often a share of a run's members has so many of a committee of
// witnesses that it can do harm: exactly, by the hypergeometric distribution, since a round draws
// its witnesses from its members without replacement.
//
// Of returns the probabilities of one round for a coalition: Blocks, it has one more
// than the witnesses that a quorum can do without; Captures, it has a quorum. docs/trust.md and README.md
// have tables that the tests of this package compute. psyche server validate-config warns by these odds.
package odds
