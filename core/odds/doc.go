// Package odds computes how often a share of a run's members has so many of a committee of
// witnesses that it can do harm: exactly, by the hypergeometric distribution, since a round draws
// its witnesses from its members without replacement.
//
// atLeast is the probability of one round. Of returns it for what a gang needs: Blocks, one more
// than the witnesses that a quorum can do without, and Captures, a quorum. docs/trust.md has tables
// that the tests of this package make, and psyche server validate-config warns by it.
package odds
