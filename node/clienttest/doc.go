// Package clienttest provides fakes for the tests of the client's packages: a trainer whose model
// shows the applied results and their order, training data whose tokens are the indices of the
// sequences, the configuration of a small run, and rounds with the proofs of witnesses.
//
// It imports none of the client's packages, so that their internal tests can use it.
package clienttest
