// Package clienttest is what the tests of the client's packages share: a trainer whose
// model shows which results were applied and in which order, data made of indices, a small
// run's configuration, and rounds with the proofs of witnesses.
//
// It imports none of the client's packages, so that their internal tests can use it.
package clienttest
