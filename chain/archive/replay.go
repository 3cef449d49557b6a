package archive

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/psyche-go/psyche/chain/event"
	"github.com/psyche-go/psyche/chain/replay"
	"github.com/psyche-go/psyche/chain/transaction"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/record/journal"
	"github.com/psyche-go/psyche/record/wire"
)

// Summary describes the content of an archive.
type Summary struct {
	Header
	Main         transaction.PublicKey // the run's main authority
	Transactions int
	Sequence     uint64   // of the newest event
	Head         [32]byte // of the hash chain
	Torn         int64    // bytes of an incomplete write at the end
}

// Step is an event with the instruction that caused it.
type Step struct {
	Header      Header
	Event       event.Event
	Signer      transaction.PublicKey // of the transaction
	Transaction transaction.Signature
	Actor       transaction.PublicKey // author of the action; zero for a tick
	Data        []byte                // of the instruction
	Signatures  int                   // of the transaction; each costs a fee
}

// Action returns the actor's action; nil for the genesis and for a tick. For a new configuration it
// returns an empty UpdateConfig.
func (s *Step) Action() coordinator.Action {
	if s.Event.Instruction != event.Act {
		return nil
	}
	const begin = 1 + 8 // number and nonce
	if len(s.Data) > begin {
		if action, err := wire.DecodeAction(s.Data[begin:]); err == nil {
			return action
		}
	}
	return coordinator.UpdateConfig{} // its content is in the staged bytes
}

// RunHash returns the hash of the run.
func (h *Header) RunHash() [32]byte { return wire.ChainRun(h.Program, h.Run) }

// Replayer replays the records of an archive one by one. The zero value is ready for the first
// record. A Replayer is not safe for concurrent use.
type Replayer struct {
	// Visit, which may be nil, is called with each event and the state after it, and must not keep
	// either.
	Visit func(Step, *coordinator.State) error

	header  Header
	begun   bool // the header was read
	run     *replay.Run
	count   int
	signed  int
	newest  transaction.Signature
	visited error // error of Visit
}

// Take verifies and applies the next record of an archive, the payload of a journal entry. After an
// error the Replayer is unusable. ErrArchive means that the record does not verify.
func (r *Replayer) Take(payload []byte) error {
	if !r.begun {
		var err error
		r.header, err = readHeader(payload)
		r.begun = err == nil
		r.run = replay.New(r.header.Program, r.header.Run)
		return err
	}
	record, err := readRecord(payload)
	if err != nil {
		return err
	}
	_, err = r.follow(&record, false)
	return err
}

// follow applies a transaction and returns the events that its instructions for this run logged. If
// lenient, the transaction may also have events of other runs, as a transaction from a node may.
func (r *Replayer) follow(record *Record, lenient bool) (used []event.Event, err error) {
	name := record.Transaction.Name()
	if err := record.Transaction.Verify(); err != nil {
		return nil, fmt.Errorf("%w: transaction %s: %w", ErrArchive, name, err)
	}
	left, others := record.Events, false
	m := &record.Transaction.Message
	for n := range m.Instructions {
		in := m.Instruction(n)
		if !r.concerns(&in) {
			others = others || in.Program == r.header.Program
			continue
		}
		found, err := r.instruction(in, left, record)
		if err != nil {
			return nil, fmt.Errorf("%w: transaction %s, instruction %d: %w", ErrArchive, name, n, err)
		}
		if found >= 0 {
			used, left = append(used, left[found]), left[found+1:]
		}
	}
	if unexplained := len(record.Events) - len(used); unexplained > 0 && (!lenient || !others) {
		return nil, fmt.Errorf("%w: transaction %s has %d events that belong to none of its instructions", ErrArchive, name, unexplained)
	}
	r.count, r.signed, r.newest = r.count+1, r.signed+len(record.Transaction.Signatures), name
	return used, r.visited
}

// concerns reports whether an instruction calls the program for this run.
func (r *Replayer) concerns(in *transaction.Instruction) bool {
	return in.Program == r.header.Program && len(in.Accounts) > 0 && in.Accounts[0].Key == r.header.Run && len(in.Data) > 0
}

// instruction applies an instruction, and returns the index of the event that it logged, or -1.
func (r *Replayer) instruction(in transaction.Instruction, left []event.Event, record *Record) (int, error) {
	var signer transaction.PublicKey
	kind := in.Data[0]
	if kind != transaction.RunTick {
		if len(in.Accounts) < 2 || !in.Accounts[1].Signer {
			return -1, errors.New("the signature is missing")
		}
		signer = in.Accounts[1].Key
	}
	if kind == transaction.RunInit && r.run.Sequence > 0 {
		r.run = replay.New(r.header.Program, r.header.Run) // the account was freed and created again
	}
	var refused error
	for i, e := range left {
		if e.Instruction != uint64(kind) || e.Sequence != r.run.Sequence+1 {
			continue
		}
		if err := r.run.Do(signer, in.Data, [][]byte{e.AppendTo(nil)}); err != nil {
			refused = err // returned below, unless a later event matches
			continue
		}
		if r.Visit != nil && r.visited == nil {
			r.visited = r.Visit(Step{
				Header: r.header, Event: e, Signer: record.Transaction.Message.Keys[0], Transaction: record.Transaction.Name(),
				Actor: signer, Data: in.Data, Signatures: len(record.Transaction.Signatures),
			}, &r.run.State)
		}
		return i, nil
	}
	// The instruction logged nothing, like a tick with nothing due.
	if err := r.run.Do(signer, in.Data, nil); err != nil {
		return -1, cmp.Or(refused, err)
	}
	return -1, nil
}

// State returns the state after the newest event. Callers must not modify it. ok is false before
// the first event.
func (r *Replayer) State() (state *coordinator.State, ok bool) {
	if r.run == nil || r.run.Sequence == 0 {
		return nil, false
	}
	return &r.run.State, true
}

// Signatures returns the number of verified signatures over all transactions.
func (r *Replayer) Signatures() int { return r.signed }

// Summary describes the records taken so far. It does not set Torn.
func (r *Replayer) Summary() Summary {
	if r.run == nil {
		return Summary{}
	}
	return Summary{Header: r.header, Main: r.run.Main, Transactions: r.count, Sequence: r.run.Sequence, Head: r.run.Head}
}

// IsHeader reports whether the first record of a log is an archive's header.
func IsHeader(payload []byte) bool {
	_, err := readHeader(payload)
	return err == nil
}

// Is reports whether a file starts like an archive.
func Is(path string) bool {
	file, err := os.Open(path)
	if err != nil {
		return false
	}
	defer func() { _ = file.Close() }()
	found := false
	_, _ = journal.Read(file, func(payload []byte) error {
		found = IsHeader(payload)
		return errStop
	})
	return found
}

// errStop ends the reading of a journal.
var errStop = errors.New("enough was read")

// Replay reads the archive at path, verifies every transaction and every event, and returns the
// state after the last event. visit, which may be nil, is called with each event and the state
// after it, and must not keep either.
func Replay(path string, visit func(Step, *coordinator.State) error) (coordinator.State, Summary, error) {
	file, err := os.Open(path)
	if err != nil {
		return coordinator.State{}, Summary{}, fmt.Errorf("replay: %w", err)
	}
	defer func() { _ = file.Close() }()
	return ReplayFrom(path, file, visit)
}

// ReplayFrom replays an archive from a reader. Errors contain name.
func ReplayFrom(name string, from io.Reader, visit func(Step, *coordinator.State) error) (coordinator.State, Summary, error) {
	r := Replayer{Visit: visit}
	read, err := journal.Read(from, r.Take)
	if err != nil {
		return coordinator.State{}, Summary{}, fmt.Errorf("replay %s: %w", name, err)
	}
	state, begun := r.State()
	if !begun {
		return coordinator.State{}, Summary{}, fmt.Errorf("replay %s: %w: no genesis", name, ErrArchive)
	}
	summary := r.Summary()
	summary.Torn = read.Torn
	return *state, summary, nil
}
