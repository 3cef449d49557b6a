// Package layout encodes and decodes the accounts of runs and clients on the chain. It defines the
// structures of chain/program, field by field, in Go.
//
//	account, err := layout.ReadAccount(bytes)
//	summary, err := layout.ReadSummary(bytes[:layout.HeadSize])
//	peer, err := layout.ReadPeer(bytes)
//
// The state in an account contains the fields of coordinator.State, and derived fields that would
// be too expensive for the program to recompute. Append computes the derived fields. Its output
// equals, byte for byte, the program's state after the same actions and ticks.
package layout
