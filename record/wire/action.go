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
	kindOffer            = 22
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
	return seal(key, domainAction, AppendAction(body, a))
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
	c := coder{rest: body}
	c.run(run)
	signed := SignedAction{From: from, Raw: raw}
	c.uint64(&signed.Nonce, "nonce")
	signed.Action = c.action()
	if err := c.end(); err != nil {
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
func AppendAction(b []byte, a coordinator.Action) []byte {
	c := coder{writes: true, bytes: b}
	for kind, format := range formats {
		if format.write(&c, kind, a) {
			return c.bytes
		}
	}
	panic(fmt.Sprintf("wire: %T is not an action of the coordinator", a))
}

// DecodeAction decodes the output of AppendAction. The error wraps errMalformed.
func DecodeAction(b []byte) (coordinator.Action, error) {
	c := coder{rest: b}
	a := c.action()
	if err := c.end(); err != nil {
		return nil, fmt.Errorf("decode action: %w", err)
	}
	return a, nil
}

func (c *coder) action() coordinator.Action {
	var kind uint8
	c.uint8(&kind, "kind of action")
	if format := formats[kind]; format != nil {
		return format.read(c)
	}
	c.fail("kind of action")
	return nil
}

// format is the encoding of one type of actions.
type format interface {
	// write appends the kind and the fields of an action of this type. It reports whether the
	// action has this type.
	write(c *coder, kind uint8, a coordinator.Action) bool
	read(c *coder) coordinator.Action
}

// fields moves the fields of an action of type A.
type fields[A coordinator.Action] func(c *coder, a *A)

// fieldsOf returns the format of the actions whose fields a function moves.
func fieldsOf[A coordinator.Action](move func(c *coder, a *A)) format { return fields[A](move) }

func (move fields[A]) write(c *coder, kind uint8, a coordinator.Action) bool {
	action, ok := a.(A)
	if ok {
		c.uint8(&kind, "kind of action")
		move(c, &action)
	}
	return ok
}

func (move fields[A]) read(c *coder) coordinator.Action {
	var action A
	move(c, &action)
	return action
}

// formats are the encodings of all actions by their kinds.
var formats = map[uint8]format{
	kindJoin: fieldsOf((*coder).join),
	kindReady: fieldsOf(func(c *coder, a *coordinator.Ready) {
		c.uint32(&a.Epoch, "ready")
		c.move(a.Reveal[:], "reveal")
		c.move(a.Next[:], "next commitment")
	}),
	kindWitnessRound: fieldsOf(func(c *coder, a *coordinator.WitnessRound) {
		c.uint32(&a.Step, "witness's step")
		c.filter(&a.Participants, "participants")
		c.filter(&a.Commitments, "commitments")
		c.move(a.CommitmentsRoot[:], "commitments root")
		c.move(a.Replica[:], "replica")
		c.move(a.Reveal[:], "reveal")
		c.uint16(&a.Claim.Loss, "claimed loss")
		c.uint32(&a.Claim.Speed, "claimed speed")
	}),
	kindOffer: fieldsOf(func(c *coder, a *coordinator.Offer) {
		c.uint32(&a.Step, "offer's step")
		c.uint8(&a.Level, "offered level")
	}),
	kindHealthCheck: fieldsOf(func(c *coder, a *coordinator.HealthCheck) {
		c.uint32(&a.Step, "health check's step")
		c.ids(&a.Clients, "accused clients", coordinator.MaxClients)
	}),
	kindReportCheckpoint: fieldsOf((*coder).report),
	kindWithdraw:         fieldsOf(func(c *coder, a *coordinator.Withdraw) { c.move(a.Client[:], "withdrawn client") }),
	kindSetPaused:        fieldsOf(func(c *coder, a *coordinator.SetPaused) { c.bool(&a.Paused, "paused") }),
	kindUpdateConfig:     fieldsOf((*coder).updateConfig),
	kindAuthorize: fieldsOf(func(c *coder, a *coordinator.Authorize) {
		c.move(a.Grantee[:], "grantee")
		c.bool(&a.Allowed, "allowed")
	}),
	kindSetDelegates: fieldsOf(func(c *coder, a *coordinator.SetDelegates) {
		c.uint32(&a.Number, "number of the authorization")
		c.ids(&a.Delegates, "delegates", coordinator.MaxDelegates)
	}),
	kindEject: fieldsOf(func(c *coder, a *coordinator.Eject) { c.move(a.Client[:], "ejected client") }),
	kindClose: fieldsOf(func(*coder, *coordinator.Close) {}),
	kindReportUpload: fieldsOf(func(c *coder, a *coordinator.ReportUpload) {
		c.uint32(&a.Step, "upload's step")
		c.move(a.Digest[:], "digest")
		c.uint8((*uint8)(&a.Place.Kind), "kind of location")
		c.text(&a.Place.Repo, "repository", coordinator.MaxRepoLength)
		c.text(&a.Place.Revision, "revision", coordinator.MaxRepoLength)
	}),
	kindEquivocation: fieldsOf((*coder).equivocation),
	kindReturn:       fieldsOf(func(c *coder, a *coordinator.Return) { c.uint32(&a.Epoch, "return") }),
	kindAccuse: fieldsOf(func(c *coder, a *coordinator.Accuse) {
		c.uint32(&a.Step, "step of the accused's result")
		c.move(a.Client[:], "accused client")
		c.uint8((*uint8)(&a.Fault), "fault")
	}),
	kindVote: fieldsOf(func(c *coder, a *coordinator.Vote) {
		c.uint32(&a.Step, "step of the accused's result")
		c.move(a.Client[:], "accused client")
		c.bool(&a.Guilty, "guilty")
	}),
	kindAdmit: fieldsOf(func(c *coder, a *coordinator.Admit) {
		c.move(a.Grant[:], "grant")
		c.move(a.Client[:], "admitted client")
		c.bool(&a.Allowed, "allowed")
	}),
}

// join moves a join. The digest and the name are optional. Before a name without a digest, the
// digest is zero.
func (c *coder) join(a *coordinator.Join) {
	c.uint32(&a.Epoch, "join")
	c.move(a.Commitment[:], "commitment")
	if c.done(a.Holds == [32]byte{} && a.Name == "") {
		return
	}
	c.move(a.Holds[:], "digest of the model that is held")
	if c.done(a.Name == "") {
		c.check(a.Holds != [32]byte{}, "digest of the model that is held")
		return
	}
	c.text(&a.Name, "name", coordinator.MaxMemberName)
	c.check(a.Name != "", "name")
}

// report moves a report of a model. The claim is optional.
func (c *coder) report(a *coordinator.ReportCheckpoint) {
	c.uint32(&a.Step, "report's step")
	c.move(a.Digest[:], "digest")
	if c.done(a.HeldOut == 0) {
		return
	}
	c.uint16(&a.HeldOut, "held-out loss")
	c.check(a.HeldOut != 0, "held-out loss")
}

// updateConfig moves the configuration and the model, the last fields of the action.
func (c *coder) updateConfig(a *coordinator.UpdateConfig) {
	if c.writes {
		if err := a.Validate(); err != nil {
			panic("wire: invalid configuration: " + err.Error())
		}
		c.bytes = a.AppendTo(c.bytes)
		return
	}
	raw := c.next(len(c.rest), "configuration")
	if c.err != nil {
		return
	}
	update, err := coordinator.DecodeUpdateConfig(raw)
	if err == nil {
		err = update.Validate()
	}
	if err != nil {
		c.err = fmt.Errorf("%w: configuration: %w", errMalformed, err)
	}
	*a = update
}
