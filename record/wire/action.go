package wire

import (
	"fmt"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/core/coordinator"
)

// MaxActionSize is the size in bytes of the largest action, an UpdateConfig.
const MaxActionSize = prefixSize + runSize + 8 + 1 + coordinator.MaxUpdateConfigSize

// Kinds of actions in the wire format. Numbers are never reused.
const (
	kindJoin             = 1
	kindReady            = 2
	kindWitnessRound     = 3
	kindHealthCheck      = 4
	kindReportCheckpoint = 5
	kindWithdraw         = 6
	kindSetPaused        = 7
	kindUpdateConfig     = 8
	kindAuthorize        = 9
	kindSetDelegates     = 10
	kindEject            = 11
	kindClose            = 12
	kindReportUpload     = 13
	kindEquivocation     = 14
	kindReturn           = 15
	kindAccuse           = 18 // 16, 17 and 19 were seals, verdicts and openings
	kindVote             = 20
	kindAdmit            = 21 // only on a chain
)

// SignedAction is an action whose signature has been verified.
type SignedAction struct {
	From   identity.ID
	Nonce  uint64
	Action coordinator.Action
	Raw    []byte // exactly the signed and sent bytes; shared with the caller of OpenAction
}

// SignAction returns the bytes of an action, signed by key for the run with that hash. The nonces
// of one key must strictly increase, also across restarts; the time in nanoseconds is suitable. a
// must be one of package coordinator's action values, with at most coordinator.MaxClients clients
// or coordinator.MaxDelegates delegates. An UpdateConfig must be valid (UpdateConfig.Validate).
func SignAction(key identity.Key, run [32]byte, nonce uint64, a coordinator.Action) []byte {
	body := append([]byte(nil), run[:]...)
	body = le.AppendUint64(body, nonce)
	return seal(key, domainAction, appendAction(body, a))
}

// Signer returns a function that signs actions for a run as SignAction does, and returns them as
// OpenAction would.
func Signer(key identity.Key, run [32]byte) func(nonce uint64, a coordinator.Action) SignedAction {
	return func(nonce uint64, a coordinator.Action) SignedAction {
		return SignedAction{From: key.ID(), Nonce: nonce, Action: a, Raw: SignAction(key, run, nonce, a)}
	}
}

// OpenAction verifies the signature of an action and then decodes it. The error wraps
// errSize, errVersion, ErrSignature, ErrRun or errMalformed.
func OpenAction(raw []byte, run [32]byte) (SignedAction, error) {
	from, body, err := unseal(domainAction, raw, MaxActionSize)
	if err != nil {
		return SignedAction{}, fmt.Errorf("open action: %w", err)
	}
	r := reader{rest: body}
	r.run(run)
	signed := SignedAction{From: from, Raw: raw}
	signed.Nonce = r.uint64("nonce")
	signed.Action = r.action()
	if err := r.end(); err != nil {
		return SignedAction{}, fmt.Errorf("open action of %s: %w", from, err)
	}
	if proof, ok := signed.Action.(coordinator.Equivocation); ok && !Proves(proof, run) {
		return SignedAction{}, fmt.Errorf("open action of %s: %w: the proof of two results", from, ErrSignature)
	}
	if _, ok := signed.Action.(coordinator.Admit); ok {
		return SignedAction{}, fmt.Errorf("open action of %s: %w: only a chain verifies grants", from, ErrSignature)
	}
	return signed, nil
}

// AppendAction appends the canonical bytes of an action without sender and signature, in the
// encoding of SignAction.
func AppendAction(b []byte, a coordinator.Action) []byte { return appendAction(b, a) }

// DecodeAction decodes the output of AppendAction. The error wraps errMalformed.
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
		b = le.AppendUint32(append(b, kindJoin), a.Epoch)
		b = append(b, a.Commitment[:]...)
		if a.Holds != [32]byte{} || a.Name != "" {
			b = append(b, a.Holds[:]...)
		}
		if a.Name == "" {
			return b
		}
		if len(a.Name) > coordinator.MaxMemberName {
			panic("wire: a longer name than a member can have")
		}
		return appendText(b, a.Name)
	case coordinator.Ready:
		b = le.AppendUint32(append(b, kindReady), a.Epoch)
		b = append(b, a.Reveal[:]...)
		return append(b, a.Next[:]...)
	case coordinator.Return:
		return le.AppendUint32(append(b, kindReturn), a.Epoch)
	case coordinator.WitnessRound:
		b = le.AppendUint32(append(b, kindWitnessRound), a.Step)
		b = appendFilter(b, &a.Participants)
		b = appendFilter(b, &a.Commitments)
		b = append(b, a.CommitmentsRoot[:]...)
		b = append(b, a.Replica[:]...)
		b = append(b, a.Reveal[:]...)
		b = le.AppendUint16(b, a.Claim.Loss)
		return le.AppendUint32(b, a.Claim.Speed)
	case coordinator.HealthCheck:
		if len(a.Clients) > coordinator.MaxClients {
			panic("wire: health check names more clients than a run has")
		}
		b = le.AppendUint32(append(b, kindHealthCheck), a.Step)
		return appendIDs(b, a.Clients)
	case coordinator.ReportCheckpoint:
		b = le.AppendUint32(append(b, kindReportCheckpoint), a.Step)
		return append(b, a.Digest[:]...)
	case coordinator.ReportUpload:
		if len(a.Place.Repo)+len(a.Place.Revision) > coordinator.MaxRepoLength {
			panic("wire: a place with a longer name than a run can keep")
		}
		b = le.AppendUint32(append(b, kindReportUpload), a.Step)
		b = append(b, a.Digest[:]...)
		b = append(b, byte(a.Place.Kind))
		return appendText(appendText(b, a.Place.Repo), a.Place.Revision)
	case coordinator.Withdraw:
		return append(append(b, kindWithdraw), a.Client[:]...)
	case coordinator.SetPaused:
		return appendBool(append(b, kindSetPaused), a.Paused)
	case coordinator.UpdateConfig:
		if err := a.Validate(); err != nil {
			panic("wire: invalid configuration: " + err.Error())
		}
		return a.AppendTo(append(b, kindUpdateConfig))
	case coordinator.Authorize:
		b = append(append(b, kindAuthorize), a.Grantee[:]...)
		return appendBool(b, a.Allowed)
	case coordinator.SetDelegates:
		if len(a.Delegates) > coordinator.MaxDelegates {
			panic("wire: more delegates than a grantee may have")
		}
		return appendIDs(le.AppendUint32(append(b, kindSetDelegates), a.Number), a.Delegates)
	case coordinator.Admit:
		b = append(append(b, kindAdmit), a.Grant[:]...)
		return appendBool(append(b, a.Client[:]...), a.Allowed)
	case coordinator.Eject:
		return append(append(b, kindEject), a.Client[:]...)
	case coordinator.Equivocation:
		b = append(append(b, kindEquivocation), a.Client[:]...)
		for i := range a.Results {
			b = append(b, a.Results[i].Signature[:]...)
			b = append(le.AppendUint16(b, uint16(len(a.Results[i].Message))), a.Results[i].Message...)
		}
		return b
	case coordinator.Close:
		return append(b, kindClose)
	case coordinator.Accuse:
		b = append(le.AppendUint32(append(b, kindAccuse), a.Step), a.Client[:]...)
		return append(b, byte(a.Fault))
	case coordinator.Vote:
		b = append(le.AppendUint32(append(b, kindVote), a.Step), a.Client[:]...)
		return appendBool(b, a.Guilty)
	default:
		panic(fmt.Sprintf("wire: %T is not an action of the coordinator", a))
	}
}

func (r *reader) action() coordinator.Action {
	switch kind := r.uint8("kind of action"); kind {
	case kindJoin:
		return r.join()
	case kindReady:
		return coordinator.Ready{Epoch: r.uint32("ready"), Reveal: r.hash("reveal"), Next: r.hash("next commitment")}
	case kindReturn:
		return coordinator.Return{Epoch: r.uint32("return")}
	case kindWitnessRound:
		return coordinator.WitnessRound{
			Step:            r.uint32("witness's step"),
			Participants:    r.filter("participants"),
			Commitments:     r.filter("commitments"),
			CommitmentsRoot: r.hash("commitments root"),
			Replica:         r.hash("replica"),
			Reveal:          r.hash("reveal"),
			Claim:           coordinator.Claim{Loss: r.uint16("claimed loss"), Speed: r.uint32("claimed speed")},
		}
	case kindHealthCheck:
		return coordinator.HealthCheck{
			Step:    r.uint32("health check's step"),
			Clients: r.ids("accused clients", coordinator.MaxClients),
		}
	case kindReportCheckpoint:
		return coordinator.ReportCheckpoint{
			Step:   r.uint32("report's step"),
			Digest: r.hash("digest"),
		}
	case kindReportUpload:
		return coordinator.ReportUpload{
			Step:   r.uint32("upload's step"),
			Digest: r.hash("digest"),
			Place: coordinator.Place{
				Kind:     coordinator.CheckpointKind(r.uint8("kind of place")),
				Repo:     r.text("repository", coordinator.MaxRepoLength),
				Revision: r.text("revision", coordinator.MaxRepoLength),
			},
		}
	case kindWithdraw:
		return coordinator.Withdraw{Client: coordinator.ClientID(r.hash("withdrawn client"))}
	case kindSetPaused:
		return coordinator.SetPaused{Paused: r.bool("paused")}
	case kindUpdateConfig:
		return r.updateConfig()
	case kindAuthorize:
		return coordinator.Authorize{
			Grantee: coordinator.ClientID(r.hash("grantee")),
			Allowed: r.bool("allowed"),
		}
	case kindSetDelegates:
		return coordinator.SetDelegates{
			Number:    r.uint32("number of the authorization"),
			Delegates: r.ids("delegates", coordinator.MaxDelegates),
		}
	case kindAdmit:
		return coordinator.Admit{
			Grant:   coordinator.ClientID(r.hash("grant")),
			Client:  coordinator.ClientID(r.hash("admitted client")),
			Allowed: r.bool("allowed"),
		}
	case kindEject:
		return coordinator.Eject{Client: coordinator.ClientID(r.hash("ejected client"))}
	case kindEquivocation:
		return r.equivocation()
	case kindClose:
		return coordinator.Close{}
	case kindAccuse:
		return coordinator.Accuse{
			Step:   r.uint32("step of the accused's result"),
			Client: coordinator.ClientID(r.hash("accused client")),
			Fault:  coordinator.Fault(r.uint8("fault")),
		}
	case kindVote:
		return coordinator.Vote{
			Step:   r.uint32("step of the accused's result"),
			Client: coordinator.ClientID(r.hash("accused client")),
			Guilty: r.bool("guilty"),
		}
	default:
		r.fail("kind of action")
		return nil
	}
}

// join decodes a join. The digest and the name are optional. Before a name without a digest, the
// digest is zero.
func (r *reader) join() coordinator.Join {
	a := coordinator.Join{Epoch: r.uint32("join"), Commitment: r.hash("commitment")}
	if r.err != nil || len(r.rest) == 0 {
		return a
	}
	a.Holds = r.hash("digest of the model that is held")
	if r.err == nil && len(r.rest) > 0 {
		if a.Name = r.text("name", coordinator.MaxMemberName); a.Name == "" {
			r.fail("name")
		}
	} else if a.Holds == [32]byte{} {
		r.fail("digest of the model that is held")
	}
	return a
}

// text decodes a text after its length.
func (r *reader) text(field string, limit int) string {
	n := int(r.uint8(field))
	if r.err == nil && n > limit {
		r.fail(field)
	}
	return string(r.take(n, field))
}

func appendText(b []byte, text string) []byte {
	return append(append(b, byte(len(text))), text...)
}

// updateConfig decodes the configuration and the model, the last fields of the action.
func (r *reader) updateConfig() coordinator.UpdateConfig {
	raw := r.take(len(r.rest), "configuration")
	if r.err != nil {
		return coordinator.UpdateConfig{}
	}
	update, err := coordinator.DecodeUpdateConfig(raw)
	if err == nil {
		err = update.Validate()
	}
	if err != nil {
		r.err = fmt.Errorf("%w: configuration: %w", errMalformed, err)
	}
	return update
}

// ids decodes a list of IDs, the last field of the action.
func (r *reader) ids(field string, limit int) []coordinator.ClientID {
	lengthBytes := r.take(2, field)
	if lengthBytes == nil {
		return nil
	}
	n := int(le.Uint16(lengthBytes))
	if n > limit || n*identity.IDSize != len(r.rest) {
		r.fail(field)
		return nil
	}
	var ids []coordinator.ClientID
	for range n {
		ids = append(ids, coordinator.ClientID(r.hash(field)))
	}
	return ids
}

func appendIDs(b []byte, ids []coordinator.ClientID) []byte {
	b = le.AppendUint16(b, uint16(len(ids)))
	for _, id := range ids {
		b = append(b, id[:]...)
	}
	return b
}

func appendBool(b []byte, v bool) []byte {
	if v {
		return append(b, 1)
	}
	return append(b, 0)
}
