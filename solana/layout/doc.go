// Package layout says how a run's state lies in its account on the chain: the structure of
// solana/program/rules/state.h, field by field, in Go.
//
//	account := layout.Append(nil, &state)
//	state, err := layout.Decode(account)
//
// An account has what coordinator.State has, and fields that follow from it which the program
// keeps because working them out again is too dear there. Append fills them in, so that what it
// appends is byte for byte what the program makes of the same actions and ticks.
package layout
