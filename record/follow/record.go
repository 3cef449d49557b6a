package follow

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/record/wire"
)

// Kind is the type of a record.
type Kind uint8

// Kinds of records. A genesis is the first record of a log, and occurs nowhere else.
const (
	KindGenesis Kind = iota + 1 // the signed genesis, exactly the sent bytes
	KindTick                    // time and draw of a Tick that changed the state
	KindAction                  // signed action, exactly the sent bytes
	KindDigest                  // SHA-256 of the state; does not change the state
)

// MaxRecord is the maximum size of a record in bytes. An honest host never writes a longer record.
const MaxRecord = 1 + max(MaxGenesis, wire.MaxActionSize)

// tickSize is the size of a tick without its kind.
const tickSize = 8 + 32

// ErrRecord means that a record does not follow from the previous records.
var ErrRecord = errors.New("record does not follow from the previous records")

// Record is one entry of a run's log.
type Record struct {
	Kind    Kind
	Genesis Genesis           // KindGenesis
	Now     uint64            // KindTick: Unix time in milliseconds
	Draw    [32]byte          // KindTick: zero if it started no round
	Action  wire.SignedAction // KindAction
	Digest  [sha256.Size]byte // KindDigest
}

// String describes the record for people.
func (r Record) String() string {
	switch r.Kind {
	case KindGenesis:
		return fmt.Sprintf("genesis by %s", r.Genesis.Signer)
	case KindTick:
		return "tick at " + time.UnixMilli(int64(min(r.Now, math.MaxInt64))).UTC().Format("2006-01-02T15:04:05.000Z")
	case KindDigest:
		return "digest"
	default:
		text := fmt.Sprintf("%s by %s", ActionName(r.Action.Action), r.Action.From)
		if join, is := r.Action.Action.(coordinator.Join); is && wire.NameOf(join) != "" {
			text += fmt.Sprintf(" as %q", join.Name)
		}
		return text
	}
}

// AppendTo appends the bytes of the record.
func (r Record) AppendTo(b []byte) []byte {
	b = append(b, byte(r.Kind))
	switch r.Kind {
	case KindGenesis:
		return append(b, r.Genesis.Raw...)
	case KindTick:
		b = binary.LittleEndian.AppendUint64(b, r.Now)
		return append(b, r.Draw[:]...)
	case KindDigest:
		return append(b, r.Digest[:]...)
	default:
		return append(b, r.Action.Raw...)
	}
}

// Decode decodes a record, which aliases b. It verifies the signature of an action for the run with
// that hash. The error wraps ErrRecord.
func Decode(b []byte, run [32]byte) (Record, error) {
	if len(b) == 0 {
		return Record{}, fmt.Errorf("%w: empty record", ErrRecord)
	}
	r, body := Record{Kind: Kind(b[0])}, b[1:]
	var err error
	switch r.Kind {
	case KindGenesis:
		r.Genesis, err = OpenGenesis(body)
	case KindTick:
		if len(body) != tickSize {
			return Record{}, fmt.Errorf("%w: a tick of %d bytes", ErrRecord, len(body))
		}
		r.Now, r.Draw = binary.LittleEndian.Uint64(body), [32]byte(body[8:])
	case KindAction:
		r.Action, err = wire.OpenAction(body, run)
	case KindDigest:
		if len(body) != sha256.Size {
			return Record{}, fmt.Errorf("%w: a digest of %d bytes", ErrRecord, len(body))
		}
		r.Digest = [sha256.Size]byte(body)
	default:
		err = fmt.Errorf("unknown kind %d", r.Kind)
	}
	if err != nil {
		return Record{}, fmt.Errorf("%w: %w", ErrRecord, err)
	}
	return r, nil
}

// Chain returns the hash of a record, given the hash of the previous record, which is zero for the
// first. It equals the hash of the record's entry in a journal (package record/journal).
func Chain(previous [sha256.Size]byte, record []byte) [sha256.Size]byte {
	b := make([]byte, 0, 4+sha256.Size+4+len(record))
	b = binary.BigEndian.AppendUint32(b, uint32(len(record)))
	b = append(b, previous[:]...)
	check := sha256.Sum256(b)
	b = append(b, check[:4]...)
	return sha256.Sum256(append(b, record...))
}

// ActionName returns the name of an action's type, for people.
func ActionName(a coordinator.Action) string {
	switch a.(type) {
	case coordinator.Join:
		return "join"
	case coordinator.Ready:
		return "ready"
	case coordinator.Return:
		return "return"
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
	case coordinator.Admit:
		return "admit"
	case coordinator.Eject:
		return "eject"
	case coordinator.Equivocation:
		return "equivocation"
	case coordinator.Accuse:
		return "accuse"
	case coordinator.Vote:
		return "vote"
	case coordinator.Offer:
		return "offer"
	case coordinator.Close:
		return "close"
	default:
		return fmt.Sprintf("%T", a)
	}
}
