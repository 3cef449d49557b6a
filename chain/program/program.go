// Package program contains Psyche's program for the chain: the deployed file, the numbers of its
// instructions, and the meaning of its results. Its sources are C files in rules and chain.
// docs/solana.md describes the program.
//
// The first line of each C file names its Go source. There are two exceptions. decode.c also ports
// record/wire/equivocation.go, and chain/proof.c checks the signatures of an equivocation. A system
// call of the chain (chain/system.c) replaces crypto/sha256; tests use native/sha256.c.
//
// The program does not contain functions that only clients need: batch outcomes, the next round,
// assignments, the encoding of a state, and Merkle trees. The coordinator stores Merkle roots but
// never computes them.
//
// The rules in C have the same results as package coordinator. They compute some results
// differently, so that no input exceeds the cost limit of a transaction:
//
//   - Batch owners and witnesses are computed once and stored in the round. So are a member's marks:
//     it is ready, it has reported, the run no longer admits it. state.h calls these fields
//     derived.
//   - A change of an authorization checks the keys that it names, at most eight, instead of all
//     clients.
//   - A majority vote in one pass finds the digest that a quorum reported.
//   - A hash table, keyed by the draw of the tick, finds clients that exited and are not pending.
//   - If several trials end with a round, one pass over the clients removes their jurors' bits.
//   - A new round has the epoch's members in the epoch's order, so marking a jury needs no search.
//   - If few positions of a shuffle are needed (witnesses, a small jury, a few members that do not
//     train), only these are computed, by applying the shuffle's rounds backwards.
//   - An action is decoded before any other check, as in a Go host: bytes that do not encode an
//     action are ErrMalformed, even in a finished run.
package program

import (
	_ "embed"
)

// ELF is the deployable file of the program.
//
//go:embed psyche.so
var ELF []byte

// Slots of a draw.
const (
	// DrawWait is the number of slots from the first due tick to the slot whose hash becomes the draw.
	// A tick after that slot succeeds.
	DrawWait = 2

	// DrawForgotten is the number of slots after which a waiting tick has to wait again.
	DrawForgotten = 400
)
