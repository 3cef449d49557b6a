package layout

import (
	"fmt"
	"slices"

	"github.com/psyche-go/psyche/core/coordinator"
)

// Parts of a run's account.
const (
	// AccountSize is the size of an account in bytes: the host's fields, the state, and the staging
	// area.
	AccountSize = stageAt + StageSize

	// HeadSize is the number of bytes that ReadSummary needs.
	HeadSize = StateOffset + configAt

	// StateOffset is the offset of the state.
	StateOffset = 104

	// JoinAuthorityOffset is the offset of the join authority's key in a run with a genesis.
	JoinAuthorityOffset = 280_776

	// StageOffset is the offset of the staging area.
	StageOffset = stageAt

	// RunStateOffset is the offset of the run state, which is zero before the genesis.
	RunStateOffset = 12

	// StageSize is the size of the staging area in bytes.
	StageSize = 8960

	// accountVersion is the version of accounts of runs, peers and grants.
	accountVersion = 1

	stageAt  = StateOffset + Size + 8
	configAt = 184 // of the state
)

// Magics are the first eight bytes of accounts and identify their kind. Filters of the chain's
// JSON-RPC interface find accounts by them.
const (
	RunMagic   = "psy-run\x00"
	PeerMagic  = "psy-peer"
	GrantMagic = "psy-auth"
	FreedMagic = "psy-free" // freed, and funded again before the transaction ended
)

// Account is a run's account.
type Account struct {
	Summary

	// State is zero before the run's genesis.
	State coordinator.State

	// Stage contains the bytes that the main authority has written for a genesis or an UpdateConfig
	// that is not in force yet.
	Stage []byte
}

// Summary is the content of the first HeadSize bytes of an account. Callers that poll use it to
// detect changes and progress of the run.
type Summary struct {
	Main     [32]byte             // main authority, which created the account
	RunID    string               // empty before the run's genesis, like all fields below
	RunState coordinator.RunState // Uninitialized before the run's genesis
	Closed   bool
	Slot     uint64   // of the newest change of the state
	Armed    uint64   // slot since which a tick waits for its draw; 0: none waits
	Head     [32]byte // of the hash chain over the run's events
	Sequence uint64   // number of events

	StateStart, MinimumSince uint64
	Progress                 coordinator.Progress
}

// ReadAccount parses a run's account. It does not verify derived fields and copies of fields, which
// the program keeps consistent.
func ReadAccount(b []byte) (Account, error) {
	if len(b) != AccountSize {
		return Account{}, fmt.Errorf("account of a run: %d bytes, want %d", len(b), AccountSize)
	}
	summary, err := ReadSummary(b)
	if err != nil {
		return Account{}, err
	}
	staged := le.Uint32(b[96:])
	if staged > StageSize {
		return Account{}, fmt.Errorf("account of a run: %d bytes are staged, at most %d are allowed", staged, StageSize)
	}
	x := Account{Summary: summary, Stage: slices.Clone(b[stageAt : stageAt+int(staged)])}
	if summary.RunState == coordinator.Uninitialized {
		return x, nil
	}
	x.State, err = decode(b[StateOffset : StateOffset+Size])
	if err != nil {
		return Account{}, err
	}
	if x.State.RunState != summary.RunState || x.State.Closed != summary.Closed {
		return Account{}, fmt.Errorf("account of a run: its head is %s (closed %t), but its state is %s (closed %t)", summary.RunState, summary.Closed, x.State.RunState, x.State.Closed)
	}
	return x, nil
}

// ReadSummary parses the head of a run's account. It ignores further bytes.
func ReadSummary(b []byte) (Summary, error) {
	if len(b) < HeadSize {
		return Summary{}, fmt.Errorf("account of a run: %d bytes, its head has %d", len(b), HeadSize)
	}
	if err := checkMagic(b, RunMagic, "a run"); err != nil {
		return Summary{}, err
	}
	h := Summary{RunState: coordinator.RunState(b[12]), Closed: b[13] != 0, Main: [32]byte(b[16:]), Slot: le.Uint64(b[48:]), Armed: le.Uint64(b[56:]), Head: [32]byte(b[64:])}
	if h.RunState > coordinator.Paused || b[13] > 1 {
		return Summary{}, fmt.Errorf("account of a run: invalid state %d or closed %d", b[12], b[13])
	}
	if h.RunState == coordinator.Uninitialized {
		return h, nil
	}
	s := b[StateOffset:]
	length := s[17]
	if length > coordinator.MaxRunIDLength {
		return Summary{}, fmt.Errorf("account of a run: the run id has %d bytes, at most %d are allowed", length, coordinator.MaxRunIDLength)
	}
	h.RunID = string(s[24 : 24+int(length)])
	h.Sequence, h.StateStart, h.MinimumSince = le.Uint64(s[56:]), le.Uint64(s[64:]), le.Uint64(s[72:])
	h.Progress = coordinator.Progress{Epoch: le.Uint32(s[152:]), Step: le.Uint32(s[156:]), DataIndex: le.Uint64(s[160:])}
	return h, nil
}

// checkMagic returns an error unless an account has the right kind and version.
func checkMagic(b []byte, magic, of string) error {
	switch found := string(b[:8]); {
	case found == FreedMagic:
		return fmt.Errorf("account of %s: the account was freed", of)
	case found != magic:
		return fmt.Errorf("account of %s: starts with %q, want %q; check that the address belongs to this program", of, found, magic)
	}
	if version := le.Uint32(b[8:]); version != accountVersion {
		return fmt.Errorf("account of %s: version %d, this program reads version %d; use a program of the same version", of, version, accountVersion)
	}
	return nil
}

// AppendAccount appends an account to b, as the program writes it. It takes fields that are in both
// x.Summary and x.State from the state.
func AppendAccount(b []byte, x *Account) []byte {
	n := len(b)
	b = slices.Grow(b, AccountSize)[:n+AccountSize]
	a := b[n:]
	clear(a)
	copy(a, RunMagic)
	le.PutUint32(a[8:], accountVersion)
	copy(a[16:], x.Main[:])
	copy(a[stageAt:], x.Stage)
	le.PutUint32(a[96:], uint32(min(len(x.Stage), StageSize)))
	if x.State.RunState == coordinator.Uninitialized {
		return b
	}
	a[12] = byte(x.State.RunState)
	if x.State.Closed {
		a[13] = 1
	}
	le.PutUint64(a[48:], x.Slot)
	le.PutUint64(a[56:], x.Armed)
	copy(a[64:], x.Head[:])
	Append(a[StateOffset:StateOffset], &x.State)
	le.PutUint64(a[StateOffset+56:], x.Sequence)
	return b
}
