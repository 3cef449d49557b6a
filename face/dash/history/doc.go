// Package history computes statistics of a run from its log: the speed of its rounds and their
// share of counted results, its phases, the history of each member, and its checkpoints.
//
// The reader of a log (a server's journal, the archive of a run on a chain) calls History.See with
// each entry and the state after it. The same log gives the same History. Everything in a History
// is bounded. The newest data is complete. Older rounds are merged into stretches of 2, 4, 8 …
// rounds. Of the members that left long ago, a History first forgets members without incidents.
package history
