package server

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"

	"github.com/psyche-go/psyche/coordinator"
	"github.com/psyche-go/psyche/server/journal"
	"github.com/psyche-go/psyche/wire"
)

// RecordKind says what an entry of the journal did.
type RecordKind uint8

// The kinds of records. The first record of a journal, and no other, is a genesis.
const (
	RecordGenesis RecordKind = iota + 1 // canonical bytes of the state a run starts with
	RecordTick                          // time and seed of a Tick that changed the state
	RecordAction                        // signed action, the bytes as they were sent
)

// Record is one entry of the journal.
type Record struct {
	Kind   RecordKind
	State  []byte            // RecordGenesis
	Now    uint64            // RecordTick: Unix time in seconds
	Seed   uint64            // RecordTick
	Action wire.SignedAction // RecordAction
}

// ErrReplay says that a journal is intact but its records do not follow from one another.
var ErrReplay = errors.New("journal does not replay")

// AppendTo appends the journal payload of the record.
func (r Record) AppendTo(b []byte) []byte {
	b = append(b, byte(r.Kind))
	switch r.Kind {
	case RecordGenesis:
		return append(b, r.State...)
	case RecordTick:
		b = binary.LittleEndian.AppendUint64(b, r.Now)
		return binary.LittleEndian.AppendUint64(b, r.Seed)
	default:
		return append(b, r.Action.Raw...)
	}
}

// decodeRecord reads a journal payload; the signature of an action is verified for runID.
func decodeRecord(payload []byte, runID string) (Record, error) {
	if len(payload) == 0 {
		return Record{}, fmt.Errorf("%w: empty record", ErrReplay)
	}
	r, body := Record{Kind: RecordKind(payload[0])}, payload[1:]
	switch r.Kind {
	case RecordGenesis:
		r.State = body
	case RecordTick:
		if len(body) != 16 {
			return Record{}, fmt.Errorf("%w: a tick of %d bytes", ErrReplay, len(body))
		}
		r.Now, r.Seed = binary.LittleEndian.Uint64(body), binary.LittleEndian.Uint64(body[8:])
	case RecordAction:
		action, err := wire.OpenAction(body, runID)
		if err != nil {
			return Record{}, fmt.Errorf("%w: %w", ErrReplay, err)
		}
		r.Action = action
	default:
		return Record{}, fmt.Errorf("%w: record of unknown kind %d", ErrReplay, r.Kind)
	}
	return r, nil
}

// replayer rebuilds a state from the records of a journal.
type replayer struct {
	genesis   []byte // canonical bytes; nil before the first record
	state     coordinator.State
	hostNonce uint64 // of the newest action that the host signed
}

// apply does what one record did.
func (r *replayer) apply(payload []byte) (Record, error) {
	record, err := decodeRecord(payload, r.state.RunID)
	if err != nil {
		return record, err
	}
	if (r.genesis == nil) != (record.Kind == RecordGenesis) {
		return record, fmt.Errorf("%w: the genesis state is not its first record, or not its only one", ErrReplay)
	}
	switch record.Kind {
	case RecordGenesis:
		r.state, err = coordinator.Decode(record.State)
		if err != nil {
			return record, fmt.Errorf("%w: genesis state: %w", ErrReplay, err)
		}
		r.genesis = append([]byte{}, record.State...)
	case RecordTick:
		if !r.state.Tick(record.Now, record.Seed) {
			return record, fmt.Errorf("%w: the tick at %d has no effect", ErrReplay, record.Now)
		}
	case RecordAction:
		from := coordinator.ClientID(record.Action.From)
		if err := r.state.Apply(from, record.Action.Nonce, record.Action.Action); err != nil {
			return record, fmt.Errorf("%w: %s of %s is refused: %w",
				ErrReplay, actionName(record.Action.Action), record.Action.From, err)
		}
		if from == r.state.Host {
			r.hostNonce = max(r.hostNonce, record.Action.Nonce)
		}
	}
	return record, nil
}

// Replay reads the journal at path, verifies every record and returns the state after the
// last one. visit, which may be nil, sees each record and the state after it; it must keep
// neither. The error names the first entry that does not verify and its offset. A torn tail
// is no error: the summary has its length.
func Replay(path string, visit func(Record, *coordinator.State) error) (coordinator.State, journal.Summary, error) {
	file, err := os.Open(path)
	if err != nil {
		return coordinator.State{}, journal.Summary{}, fmt.Errorf("replay: %w", err)
	}
	defer func() { _ = file.Close() }()
	var r replayer
	summary, err := journal.Read(file, func(payload []byte) error {
		record, err := r.apply(payload)
		if err == nil && visit != nil {
			err = visit(record, &r.state)
		}
		return err
	})
	if err != nil {
		return coordinator.State{}, summary, fmt.Errorf("replay %s: %w", path, err)
	}
	if r.genesis == nil {
		return coordinator.State{}, summary, fmt.Errorf("replay %s: %w: it holds no genesis state", path, ErrReplay)
	}
	return r.state, summary, nil
}

// actionName is the name of an action's type, for people.
func actionName(a coordinator.Action) string {
	switch a.(type) {
	case coordinator.Join:
		return "join"
	case coordinator.Ready:
		return "ready"
	case coordinator.WitnessRound:
		return "witness-round"
	case coordinator.HealthCheck:
		return "health-check"
	case coordinator.ReportCheckpoint:
		return "report-checkpoint"
	case coordinator.Withdraw:
		return "withdraw"
	case coordinator.SetPaused:
		return "set-paused"
	default:
		return fmt.Sprintf("%T", a)
	}
}
