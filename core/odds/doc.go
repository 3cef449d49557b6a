// Package odds computes how often a share of a run's members has so many of a committee of
// witnesses that it can do harm: exactly, by the hypergeometric distribution, since a round draws
// its witnesses from its members without replacement.
//
// AtLeast is the probability of one round. Of returns it for what a gang needs: Blocks, one more
// than the witnesses that a quorum can do without, and Captures, a quorum. docs/trust.md and README.md
// have tables that the tests of this package compute. psyche server validate-config warns by these odds.
package odds
