// Package history is what can be told of a run after the fact: how fast its rounds were and how
// much of them counted, its phases, what became of each member and why, its checkpoints.
//
// It is a projection of the run's log. Somebody who reads a log (a server's journal, the archive
// of a run on a chain) calls See with each entry and the state after it; the same log gives the
// same History. Everything in it is bounded: newest things are kept whole, older rounds are merged
// into stretches of 2, 4, 8 … rounds, and of members that left long ago those are forgotten first
// of whom nothing bad is known.
package history
