package server

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
	"time"

	"github.com/psyche-go/psyche/backend/tcp/frame"
	"github.com/psyche-go/psyche/coordinator"
	"github.com/psyche-go/psyche/identity"
	"github.com/psyche-go/psyche/server/journal"
	"github.com/psyche-go/psyche/wire"
)

// RecordKind says what an entry of the journal did.
type RecordKind uint8

// The kinds of records. The first record of a journal, and no other, is a genesis or a
// create.
const (
	RecordGenesis RecordKind = iota + 1 // canonical bytes of the state a run starts with
	RecordTick                          // time and draw of a Tick that changed the state
	RecordAction                        // signed action, the bytes as they were sent
	RecordDigest                        // SHA-256 of the state, which it does not change
	RecordCreate                        // signed create, the bytes as they were sent
)

// tickSize is the size of a tick behind its kind.
const tickSize = 8 + 32

// Record is one entry of the journal.
type Record struct {
	Kind   RecordKind
	State  []byte            // RecordGenesis
	Now    uint64            // RecordTick: Unix time in milliseconds
	Draw   [32]byte          // RecordTick: zero when it began no round
	Action wire.SignedAction // RecordAction
	Digest [sha256.Size]byte // RecordDigest
	Create frame.Create      // RecordCreate
}

// String says what the record is, for people.
func (r Record) String() string {
	switch r.Kind {
	case RecordGenesis:
		return "genesis"
	case RecordCreate:
		return fmt.Sprintf("create by %s", r.Create.Creator)
	case RecordTick:
		return "tick at " + time.UnixMilli(int64(min(r.Now, math.MaxInt64))).UTC().Format("2006-01-02T15:04:05.000Z")
	case RecordDigest:
		return "digest"
	default:
		return fmt.Sprintf("%s by %s", ActionName(r.Action.Action), r.Action.From)
	}
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
		return append(b, r.Draw[:]...)
	case RecordDigest:
		return append(b, r.Digest[:]...)
	case RecordCreate:
		return append(b, r.Create.Raw...)
	default:
		return append(b, r.Action.Raw...)
	}
}

// first returns the state that a genesis or a create begins with, and nil for other records.
func (r Record) first() []byte {
	switch r.Kind {
	case RecordGenesis:
		return r.State
	case RecordCreate:
		return r.Create.State
	default:
		return nil
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
		if len(body) != tickSize {
			return Record{}, fmt.Errorf("%w: a tick of %d bytes", ErrReplay, len(body))
		}
		r.Now, r.Draw = binary.LittleEndian.Uint64(body), [32]byte(body[8:])
	case RecordAction:
		action, err := wire.OpenAction(body, runID)
		if err != nil {
			return Record{}, fmt.Errorf("%w: %w", ErrReplay, err)
		}
		r.Action = action
	case RecordDigest:
		if len(body) != sha256.Size {
			return Record{}, fmt.Errorf("%w: a digest of %d bytes", ErrReplay, len(body))
		}
		r.Digest = [sha256.Size]byte(body)
	case RecordCreate:
		create, err := frame.OpenCreate(body)
		if err != nil {
			return Record{}, fmt.Errorf("%w: %w", ErrReplay, err)
		}
		r.Create = create
	default:
		return Record{}, fmt.Errorf("%w: record of unknown kind %d", ErrReplay, r.Kind)
	}
	return r, nil
}

// replayer rebuilds a state from the records of a journal.
type replayer struct {
	begun      bool // the first record was applied, or a snapshot stands for it
	wantDigest bool // the next record has to confirm a snapshot
	state      coordinator.State
}

// apply does what one record did.
func (r *replayer) apply(payload []byte) (Record, error) {
	record, err := decodeRecord(payload, r.state.RunID)
	if err != nil {
		return record, err
	}
	first := record.first()
	if r.begun == (first != nil) {
		return record, fmt.Errorf("%w: the state a run starts with is not its first record, or not its only one", ErrReplay)
	}
	if r.wantDigest && record.Kind != RecordDigest {
		return record, fmt.Errorf("%w: %w: no digest follows", ErrReplay, errSnapshot)
	}
	switch record.Kind {
	case RecordGenesis, RecordCreate:
		err = r.begin(record, first)
	case RecordTick:
		if !r.state.Tick(record.Now, record.Draw) {
			err = fmt.Errorf("%w: the %s has no effect", ErrReplay, record)
		}
	case RecordAction:
		err = r.act(record.Action)
	case RecordDigest:
		if r.state.Hash() != record.Digest {
			err = fmt.Errorf("%w: the state is not the one whose digest is recorded", ErrReplay)
		}
		r.wantDigest = false
	}
	return record, err
}

// begin takes the first state.
func (r *replayer) begin(record Record, first []byte) (err error) {
	if r.state, err = coordinator.Decode(first); err != nil {
		return fmt.Errorf("%w: genesis state: %w", ErrReplay, err)
	}
	if record.Kind == RecordCreate {
		if err := checkCreate(record.Create, r.state); err != nil {
			return fmt.Errorf("%w: %w", ErrReplay, err)
		}
	}
	r.begun = true
	return nil
}

// act applies a signed action.
func (r *replayer) act(action wire.SignedAction) error {
	if err := r.state.Apply(coordinator.ClientID(action.From), action.Nonce, action.Action); err != nil {
		return fmt.Errorf("%w: %s of %s is refused: %w", ErrReplay, ActionName(action.Action), action.From, err)
	}
	return nil
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
	if !r.begun {
		return coordinator.State{}, summary, fmt.Errorf("replay %s: %w: it holds no genesis state", path, ErrReplay)
	}
	return r.state, summary, nil
}

// checkCreate verifies that a signed first state is one that a run may start with, made by
// its main authority.
func checkCreate(c frame.Create, state coordinator.State) error {
	if identity.ID(state.Authority.Main) != c.Creator {
		return fmt.Errorf("create of %s: it names another main authority, %s", c.Creator, identity.ID(state.Authority.Main))
	}
	fresh, err := coordinator.Genesis{
		RunID: state.RunID, Host: state.Host, MainAuthority: state.Authority.Main, JoinAuthority: state.Authority.Join,
		Permissioned: state.Authority.Permissioned, Paused: state.RunState == coordinator.Paused,
		Config: state.Config, Model: state.Model, Draws: state.DrawCommitment,
		Progress: state.Progress, // it may continue an older run
	}.State()
	if err != nil {
		return fmt.Errorf("create of %s: %w", c.Creator, err)
	}
	if !bytes.Equal(fresh.AppendTo(nil), c.State) {
		return fmt.Errorf("create of %s: the state is not one that a run starts with", c.Creator)
	}
	return nil
}

// ActionName is the name of an action's type, for people.
func ActionName(a coordinator.Action) string {
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
	case coordinator.ReportUpload:
		return "report-upload"
	case coordinator.Withdraw:
		return "withdraw"
	case coordinator.SetPaused:
		return "set-paused"
	case coordinator.UpdateConfig:
		return "update-config"
	case coordinator.Authorize:
		return "authorize"
	case coordinator.SetDelegates:
		return "set-delegates"
	case coordinator.Eject:
		return "eject"
	case coordinator.Close:
		return "close"
	default:
		return fmt.Sprintf("%T", a)
	}
}
