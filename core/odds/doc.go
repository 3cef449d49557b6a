// Package odds computes the probability that a coalition of a run's members has enough witnesses in
// a committee to do harm. The result is exact: a round draws its witnesses from its members without
// replacement, so the number has a hypergeometric distribution.
//
// atLeast is the probability in one round. Of returns the probabilities of two goals: Blocks needs
// one more witness than a quorum can do without, and Captures needs a quorum. The tests of this
// package generate tables in docs/trust.md, and psyche server validate-config uses the package for
// its warnings.
package odds
