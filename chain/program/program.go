// Package program is the program of a run on the chain: the file that is deployed, the numbers of
// its instructions, and what its results mean. Its sources are C, in rules and chain; what it does
// is in docs/solana.md.
package program

import (
	_ "embed"
)

// ELF is the program as it is deployed.
//
//go:embed psyche.so
var ELF []byte

// Instructions: the first byte of an instruction's data.
const (
	Init = iota + 1
	Write
	Genesis
	Act
	Tick
	Free
	Announce
	Forget
	Migrate
)

// Bounds of instructions.
const (
	MaxSalt = 32  // bytes of a TICK
	MaxPart = 950 // bytes of a WRITE that fit a transaction; the program takes as many as it has room for
)

// Slots of a draw.
const (
	// DrawWait is how many slots after the first tick that is due the slot lies whose hash is drawn
	// from. A tick after that slot passes.
	DrawWait = 2

	// DrawForgotten is after how many slots a tick waits anew.
	DrawForgotten = 400
)
