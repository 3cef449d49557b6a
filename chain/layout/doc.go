// Package layout says how a run lies in its account on the chain, and a client in its own: the
// structures of chain/program, field by field, in Go.
//
//	account, err := layout.ReadAccount(bytes)
//	summary, err := layout.ReadSummary(bytes[:layout.HeadSize])
//	peer, err := layout.ReadPeer(bytes)
//
// The state in an account has what coordinator.State has, and fields that follow from it which the
// program keeps because working them out again is too dear there. Append fills them in, so that
// what it appends is byte for byte what the program makes of the same actions and ticks.
package layout
