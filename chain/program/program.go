// Package program is the program of a run on the chain: the file that is deployed, the numbers of
// its instructions, and what its results mean. Its sources are C, in rules and chain; what it does
// is in docs/solana.md.
//
// The first lines of each C file name its Go source. The exceptions: decode.c also decodes
// record/wire/equivocation.go, whose signatures chain/proof.c checks, and crypto/sha256 is the chain's
// system call (chain/system.c), in tests native/sha256.c.
//
// Functions that only clients need have no port: batch outcomes, the next round, assignments, the encoding of
// a state, and Merkle trees, whose roots the coordinator stores and never computes.
//
// The rules in C have the results of package coordinator. They compute some of them differently, so that
// no input costs more than a transaction may:
//
//   - Batch owners and witnesses are computed once and kept in the round. So are a member's marks: it is
//     ready, it has reported, the run no longer admits it. state.h calls these fields derived.
//   - A change of an authorization checks the keys that it names, at most eight, instead of all clients.
//   - A majority vote in one pass finds the digest that a quorum reported.
//   - A hash table, keyed by the draw of the tick, finds clients that exited and are not pending.
//   - If several trials end with a round, one pass over the clients removes their jurors' bits.
//   - A new round has the epoch's members in the epoch's order, so marking a jury needs no search.
//   - If few positions of a shuffle are needed (witnesses, a small jury, a few members that do not train),
//     only these are computed, by applying the shuffle's rounds backwards.
//   - An action is decoded before any other check, as a Go host does it: bytes that do not encode an
//     action are ErrMalformed, even in a finished run.
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
