// Package odds computes the probability that a coalition of a run's members has enough witnesses in
// a committee to do harm. The result is exact: a round draws its witnesses from its members without
// replacement, so the number has a hypergeometric distribution.
//
// Of returns the probabilities of one round for a coalition: Blocks, it has one more
// than the witnesses that a quorum can do without; Captures, it has a quorum. docs/trust.md and README.md
// have tables that the tests of this package compute. psyche server validate-config warns by these odds.
package odds
