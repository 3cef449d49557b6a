// Package odds computes the probability that a coalition of a run's members has enough witnesses in
// a committee to do harm. The result is exact: a round draws its witnesses from its members without
// replacement, so the number has a hypergeometric distribution.
//
// Of returns the probabilities of one round for a coalition. Blocks is the probability that the
// coalition can prevent a quorum: it has at least one more witness than a quorum can do without.
// Captures is the probability that the coalition has a quorum by itself. docs/trust.md and README.md
// have tables that the tests of this package compute. psyche server validate-config warns by these
// odds.
package odds
