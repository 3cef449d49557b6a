package follow

import (
	"fmt"
	"slices"

	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/record/wire"
)

// keptStarts is the number of rounds whose starting heads are kept: the rounds in the state, and one
// more for members that are late.
const keptStarts = coordinator.StoredRounds + 1

// Follower is the state of a run according to its log. Only one goroutine may use it.
type Follower struct {
	State   coordinator.State
	run     [32]byte
	genesis Genesis
	head    wire.Head            // after the newest record; not signed
	starts  []wire.Head          // at the starts of the newest rounds, oldest first; not signed
	begun   uint32               // step of the newest round
	phase   coordinator.RunState // after the newest record
	epoch   Epoch                // newest; zero if none has started since the Follower exists
	first   Epoch                // of the run; zero if it started before the Follower existed
	later   bool                 // the run's first epoch has started
	broken  error                // from the first invalid record
}

// Begin returns a Follower of the run that starts with a genesis. The genesis counts as applied.
func Begin(g Genesis) (*Follower, error) {
	state, err := g.First()
	if err != nil {
		return nil, err
	}
	record := Record{Kind: KindGenesis, Genesis: g}.AppendTo(nil)
	return &Follower{State: state, run: g.Run(), genesis: g, phase: state.RunState, head: wire.Head{Index: 1, Hash: Chain([32]byte{}, record)}}, nil
}

// BeginWith returns the first record of a log and a Follower that has applied it.
func BeginWith(payload []byte) (Record, *Follower, error) {
	record, err := Decode(append([]byte(nil), payload...), [32]byte{})
	if err == nil && record.Kind != KindGenesis {
		err = fmt.Errorf("%w: the first record is not a genesis", ErrRecord)
	}
	if err != nil {
		return record, nil, err
	}
	f, err := Begin(record.Genesis)
	return record, f, err
}

// Take applies the next record of a log, as Apply does. log is nil for the first record, which
// starts a run.
func Take(log *Follower, payload []byte) (Record, *Follower, error) {
	if log == nil {
		return BeginWith(payload)
	}
	record, err := log.Apply(payload)
	return record, log, err
}

// Resume returns a Follower at a position of the log. The caller must know that the log leads to
// state there. starts are the heads at the starts of the newest rounds, as far as they are known.
func Resume(g Genesis, state coordinator.State, at wire.Head, starts []wire.Head) *Follower {
	return &Follower{State: state, run: g.Run(), genesis: g, head: at, starts: slices.Clone(starts), begun: newestStep(&state), phase: state.RunState, later: true}
}

// Run returns the hash of the run.
func (f *Follower) Run() [32]byte { return f.run }

// Genesis returns the genesis of the run.
func (f *Follower) Genesis() Genesis { return f.genesis }

// Head returns the number of records and the hash of the newest. Its Step is the step of the round
// that the newest record started. The head is not signed.
func (f *Follower) Head() wire.Head { return f.head }

// Starts returns the heads at the starts of the newest rounds, oldest first. They are not signed.
// The caller must not modify them.
func (f *Follower) Starts() []wire.Head { return f.starts }

// Epoch returns the newest epoch whose start the Follower has seen, or zero if there is none.
func (f *Follower) Epoch() Epoch { return f.epoch }

// FirstEpoch returns the start of the run's first epoch, or zero if the Follower did not see it.
func (f *Follower) FirstEpoch() Epoch { return f.first }

// Apply executes the next record. After an error, which wraps ErrRecord, the Follower accepts no
// more records, because the state may be half changed.
func (f *Follower) Apply(payload []byte) (Record, error) {
	if f.broken != nil {
		return Record{}, f.broken
	}
	record, err := Decode(payload, f.run)
	if err == nil {
		err = f.act(record)
	}
	if err != nil {
		f.broken = fmt.Errorf("record %d: %w", f.head.Index, err)
		return record, f.broken
	}
	f.Note(payload)
	return record, nil
}

// Note adds a record that the caller has already applied to State. The host, which writes the log,
// uses it.
func (f *Follower) Note(payload []byte) {
	f.head = wire.Head{Index: f.head.Index + 1, Hash: Chain(f.head.Hash, payload)}
	if before := f.phase; f.State.RunState != before {
		f.phase = f.State.RunState
		if before == coordinator.WaitingForMembers && f.phase == coordinator.Warmup {
			f.epoch = f.epochOf()
			if !f.later {
				f.first, f.later = f.epoch, true
			}
		}
	}
	step := newestStep(&f.State)
	if step <= f.begun {
		return
	}
	f.begun, f.head.Step = step, step
	kept := f.starts[max(0, len(f.starts)-keptStarts+1):]
	f.starts = append(slices.Clone(kept), f.head)
}

// headOf returns the head of the log at the start of an epoch.
func headOf(e Epoch) wire.Head { return wire.Head{Index: e.Index, Hash: e.Hash} }

// newestStep returns the step of the newest round of the epoch, or 0 if there is none yet.
func newestStep(s *coordinator.State) uint32 {
	if n := len(s.Epoch.Rounds); n > 0 {
		return s.Epoch.Rounds[n-1].Step
	}
	return 0
}

// act applies a record to the state.
func (f *Follower) act(record Record) error {
	switch record.Kind {
	case KindTick:
		if !f.State.Tick(record.Now, record.Draw) {
			return fmt.Errorf("%w: the %s has no effect", ErrRecord, record)
		}
	case KindAction:
		a := record.Action
		if err := f.State.Apply(coordinator.ClientID(a.From), a.Nonce, a.Action); err != nil {
			return fmt.Errorf("%w: %s of %s is refused: %w", ErrRecord, ActionName(a.Action), a.From, err)
		}
	case KindDigest:
		if f.State.Hash() != record.Digest {
			return fmt.Errorf("%w: the state does not match the recorded digest", ErrRecord)
		}
	default:
		return fmt.Errorf("%w: a genesis after the first record", ErrRecord)
	}
	return nil
}
