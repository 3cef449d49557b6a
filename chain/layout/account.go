package layout

import (
	"fmt"
	"slices"

	"github.com/psyche-go/psyche/core/coordinator"
)

// Parts of a run's account.
const (
	// AccountSize is the number of bytes of an account: what the host on the chain keeps, the
	// state, and the staging area.
	AccountSize = stageAt + StageSize

	// HeadSize is how many bytes from the beginning ReadSummary needs.
	HeadSize = StateOffset + configAt

	// StateOffset is where the state lies.
	StateOffset = 104

	// JoinAuthorityOffset is where a run that has begun has the key of its join authority.
	JoinAuthorityOffset = 274_792

	// StageOffset is where the staging area lies.
	StageOffset = stageAt

	// RunStateOffset is where the state of the run lies: zero before its genesis.
	RunStateOffset = 12

	// StageSize bounds what can be staged.
	StageSize = 8960

	// AccountVersion is the version of accounts, of runs and of peers.
	AccountVersion = 1

	stageAt  = StateOffset + Size + 8
	configAt = 184 // of the state
)

// Magics are the first eight bytes of accounts: what they are. Filters of the chain's JSON-RPC
// interface find accounts by them.
const (
	RunMagic   = "psy-run\x00"
	PeerMagic  = "psy-peer"
	FreedMagic = "psy-free" // freed, and funded again before the transaction ended
)

// Account is a run's account.
type Account struct {
	Summary

	// State is zero where the run has not begun.
	State coordinator.State

	// Stage is what the main authority has written of a genesis or an UpdateConfig that is not yet
	// in force.
	Stage []byte
}

// Summary is what the first HeadSize bytes of an account have, for callers that look often: whether the
// run changed, and where it is.
type Summary struct {
	Main     [32]byte             // its main authority, which created it
	RunID    string               // empty before the run's genesis, as are all fields below
	RunState coordinator.RunState // Uninitialized before the run's genesis
	Closed   bool
	Slot     uint64   // of the newest change of the state
	Armed    uint64   // slot since which a tick waits for its draw; 0: none does
	Head     [32]byte // of the chain of hashes over the run's events
	Sequence uint64   // how many events there are

	StateStart, MinimumSince uint64
	Progress                 coordinator.Progress
}

// ReadAccount reads a run's account. What follows from the rest, and copies of fields of the state,
// are not compared with what they follow from: the program keeps them right.
func ReadAccount(b []byte) (Account, error) {
	if len(b) != AccountSize {
		return Account{}, fmt.Errorf("account of a run: has %d bytes, want %d", len(b), AccountSize)
	}
	summary, err := ReadSummary(b)
	if err != nil {
		return Account{}, err
	}
	staged := le.Uint32(b[96:])
	if staged > StageSize {
		return Account{}, fmt.Errorf("account of a run: %d bytes are staged, at most %d can be", staged, StageSize)
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
		return Account{}, fmt.Errorf("account of a run: is %s (closed %t), its state %s (closed %t)", summary.RunState, summary.Closed, x.State.RunState, x.State.Closed)
	}
	return x, nil
}

// ReadSummary reads the beginning of a run's account. Bytes behind it are ignored.
func ReadSummary(b []byte) (Summary, error) {
	if len(b) < HeadSize {
		return Summary{}, fmt.Errorf("account of a run: %d bytes, its head has %d", len(b), HeadSize)
	}
	if err := checkMagic(b, RunMagic, "a run"); err != nil {
		return Summary{}, err
	}
	h := Summary{RunState: coordinator.RunState(b[12]), Closed: b[13] != 0, Main: [32]byte(b[16:]), Slot: le.Uint64(b[48:]), Armed: le.Uint64(b[56:]), Head: [32]byte(b[64:])}
	if h.RunState > coordinator.Paused || b[13] > 1 {
		return Summary{}, fmt.Errorf("account of a run: state %d and closed %d cannot be", b[12], b[13])
	}
	if h.RunState == coordinator.Uninitialized {
		return h, nil
	}
	s := b[StateOffset:]
	length := s[17]
	if length > coordinator.MaxRunIDLength {
		return Summary{}, fmt.Errorf("account of a run: a run id of %d bytes, at most %d can be", length, coordinator.MaxRunIDLength)
	}
	h.RunID = string(s[24 : 24+int(length)])
	h.Sequence, h.StateStart, h.MinimumSince = le.Uint64(s[56:]), le.Uint64(s[64:]), le.Uint64(s[72:])
	h.Progress = coordinator.Progress{Epoch: le.Uint32(s[152:]), Step: le.Uint32(s[156:]), DataIndex: le.Uint64(s[160:])}
	return h, nil
}

// checkMagic wants an account to be of a kind, and of this version.
func checkMagic(b []byte, magic, of string) error {
	switch found := string(b[:8]); {
	case found == FreedMagic:
		return fmt.Errorf("account of %s: was freed", of)
	case found != magic:
		return fmt.Errorf("account of %s: starts with %q, want %q; check that the address belongs to this program", of, found, magic)
	}
	if version := le.Uint32(b[8:]); version != AccountVersion {
		return fmt.Errorf("account of %s: version %d, this program reads %d: update it", of, version, AccountVersion)
	}
	return nil
}

// AppendAccount appends an account to b, as the program writes it. Fields of Summary that the state
// has are the state's.
func AppendAccount(b []byte, x *Account) []byte {
	n := len(b)
	b = slices.Grow(b, AccountSize)[:n+AccountSize]
	a := b[n:]
	clear(a)
	copy(a, RunMagic)
	le.PutUint32(a[8:], AccountVersion)
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
