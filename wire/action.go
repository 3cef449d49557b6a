package wire

import (
	"fmt"

	"github.com/psyche-go/psyche/coordinator"
	"github.com/psyche-go/psyche/identity"
)

// MaxActionSize is the size in bytes of the largest action, a HealthCheck of
// coordinator.MaxClients clients.
const MaxActionSize = prefixSize + runIDFieldSize + 8 + 1 + 4 + 2 + coordinator.MaxClients*identity.IDSize

// Kinds of actions on the wire. Numbers are never used again.
const (
	kindJoin             = 1
	kindReady            = 2
	kindWitnessRound     = 3
	kindHealthCheck      = 4
	kindReportCheckpoint = 5
	kindWithdraw         = 6
	kindSetPaused        = 7
)

// SignedAction is an action whose signature has been verified.
type SignedAction struct {
	From   identity.ID
	Nonce  uint64
	Action coordinator.Action
	Raw    []byte // exactly what was signed and sent; shared with the caller of OpenAction
}

// SignAction returns the bytes of an action signed by key. Nonces of one key must
// strictly increase, also over restarts: the time in nanoseconds serves. The action is
// one of package coordinator's values, with at most coordinator.MaxClients clients.
func SignAction(key identity.Key, runID string, nonce uint64, a coordinator.Action) []byte {
	body := appendRunID(nil, runID)
	body = le.AppendUint64(body, nonce)
	return seal(key, DomainAction, appendAction(body, a))
}

// OpenAction verifies the signature of an action and then decodes it. The error wraps
// ErrSize, ErrVersion, ErrSignature, ErrRunID or ErrMalformed.
func OpenAction(raw []byte, runID string) (SignedAction, error) {
	from, body, err := unseal(DomainAction, raw, MaxActionSize)
	if err != nil {
		return SignedAction{}, fmt.Errorf("open action: %w", err)
	}
	r := reader{rest: body}
	r.runID(runID)
	signed := SignedAction{From: from, Raw: raw}
	signed.Nonce = r.uint64("nonce")
	signed.Action = r.action()
	if err := r.end(); err != nil {
		return SignedAction{}, fmt.Errorf("open action of %s: %w", from, err)
	}
	return signed, nil
}

// AppendAction appends the canonical bytes of an action without sender and signature, as
// SignAction has them.
func AppendAction(b []byte, a coordinator.Action) []byte { return appendAction(b, a) }

// DecodeAction reads what AppendAction wrote. The error wraps ErrMalformed.
func DecodeAction(b []byte) (coordinator.Action, error) {
	r := reader{rest: b}
	a := r.action()
	if err := r.end(); err != nil {
		return nil, fmt.Errorf("decode action: %w", err)
	}
	return a, nil
}

func appendAction(b []byte, a coordinator.Action) []byte {
	switch a := a.(type) {
	case coordinator.Join:
		return le.AppendUint32(append(b, kindJoin), a.Epoch)
	case coordinator.Ready:
		return le.AppendUint32(append(b, kindReady), a.Epoch)
	case coordinator.WitnessRound:
		b = le.AppendUint32(append(b, kindWitnessRound), a.Step)
		b = appendFilter(b, &a.Participants)
		b = appendFilter(b, &a.Commitments)
		b = append(b, a.CommitmentsRoot[:]...)
		return append(b, a.Replica[:]...)
	case coordinator.HealthCheck:
		if len(a.Clients) > coordinator.MaxClients {
			panic("wire: health check names more clients than a run has")
		}
		b = le.AppendUint32(append(b, kindHealthCheck), a.Step)
		b = le.AppendUint16(b, uint16(len(a.Clients)))
		for _, id := range a.Clients {
			b = append(b, id[:]...)
		}
		return b
	case coordinator.ReportCheckpoint:
		b = le.AppendUint32(append(b, kindReportCheckpoint), a.Step)
		return append(b, a.Digest[:]...)
	case coordinator.Withdraw:
		return append(append(b, kindWithdraw), a.Client[:]...)
	case coordinator.SetPaused:
		if a.Paused {
			return append(b, kindSetPaused, 1)
		}
		return append(b, kindSetPaused, 0)
	default:
		panic(fmt.Sprintf("wire: %T is no action of the coordinator", a))
	}
}

func (r *reader) action() coordinator.Action {
	switch kind := r.uint8("kind of action"); kind {
	case kindJoin:
		return coordinator.Join{Epoch: r.uint32("join")}
	case kindReady:
		return coordinator.Ready{Epoch: r.uint32("ready")}
	case kindWitnessRound:
		return coordinator.WitnessRound{
			Step:            r.uint32("witness's step"),
			Participants:    r.filter("participants"),
			Commitments:     r.filter("commitments"),
			CommitmentsRoot: r.hash("commitments root"),
			Replica:         r.hash("replica"),
		}
	case kindHealthCheck:
		return r.healthCheck()
	case kindReportCheckpoint:
		return coordinator.ReportCheckpoint{
			Step:   r.uint32("report's step"),
			Digest: r.hash("digest"),
		}
	case kindWithdraw:
		return coordinator.Withdraw{Client: coordinator.ClientID(r.hash("withdrawn client"))}
	case kindSetPaused:
		return coordinator.SetPaused{Paused: r.bool("paused")}
	default:
		r.fail("kind of action")
		return nil
	}
}

func (r *reader) healthCheck() coordinator.HealthCheck {
	check := coordinator.HealthCheck{Step: r.uint32("health check's step")}
	lengthBytes := r.take(2, "accused clients")
	if lengthBytes == nil {
		return check
	}
	n := int(le.Uint16(lengthBytes))
	if n > coordinator.MaxClients || n*identity.IDSize != len(r.rest) {
		r.fail("accused clients")
		return check
	}
	for range n {
		check.Clients = append(check.Clients, coordinator.ClientID(r.hash("accused clients")))
	}
	return check
}
