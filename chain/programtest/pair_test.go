package programtest

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"

	"github.com/psyche-go/psyche/chain/layout"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/record/wire"
)

// pair is the same run in Go and in C. If they differ, the Go run continues, so that a script
// reaches its end.
type pair struct {
	c          core
	s          coordinator.State
	raw        []byte // encoding of s
	account    []byte // account of s
	operations int
	seen       map[string]int // number of operations by kind and result
}

// differs is the error of a pair if Go and C are not equal.
type differs struct{ subject string }

func (d *differs) Error() string { return d.subject }

func differ(format string, arguments ...any) error {
	return &differs{fmt.Sprintf(format, arguments...)}
}

// core executes the rules in C, as a process or on the chain's machine.
type core interface {
	do(o operation) (answer, error)
	state() []byte // state in the account
}

func newPair(c core) *pair { return &pair{c: c, seen: map[string]int{}} }

func (r *pair) do(o operation) (answer, error) {
	r.operations++
	a, err := r.c.do(o)
	if err != nil {
		err = differ("the program ends at an operation of kind %d: %v", o.kind, err)
	}
	return a, err
}

// genesis begins a run.
func (r *pair) genesis(g coordinator.Genesis) (coordinator.Code, error) {
	s, err := g.State()
	want := codeOf(err)
	r.s = s
	a, err := r.do(operation{kind: opGenesis, body: layout.AppendGenesis(nil, g)})
	if err != nil {
		return want, err
	}
	if a.result != uint64(want) {
		return want, differ("genesis: Go %d, C %d\n%+v", want, a.result, g)
	}
	r.seen[fmt.Sprintf("genesis %d", want)]++
	if want != 0 {
		return want, r.sameAccount(make([]byte, layout.Size), "refused genesis")
	}
	return want, r.compare("genesis")
}

// load sets both runs to a state.
func (r *pair) load(s coordinator.State) error {
	r.s = s
	if _, err := r.do(operation{kind: opLoad, body: layout.Append(nil, &s)}); err != nil {
		return err
	}
	return r.compare("load")
}

// apply sends the bytes of an action.
func (r *pair) apply(from coordinator.ClientID, nonce uint64, body []byte) (coordinator.Code, error) {
	action, err := wire.DecodeAction(body)
	want := codeOf(err)
	if err == nil {
		want = codeOf(r.s.Apply(from, nonce, action))
	}
	a, err := r.do(operation{kind: opApply, from: from, nonce: nonce, body: body})
	if err != nil {
		return want, err
	}
	r.seen[fmt.Sprintf("%T %d", action, want)]++
	if a.result != uint64(want) {
		return want, differ("%T: Go %d, C %d: %x\n%s", action, want, a.result, body[:min(len(body), 100)], r.s.String())
	}
	if want == 0 {
		return want, r.compare(fmt.Sprintf("%T", action))
	}
	if a.changed > 0 {
		return want, differ("%T: C refuses it (%d) and changes the account", action, want)
	}
	if !bytes.Equal(r.raw, r.s.AppendTo(nil)) {
		return want, differ("%T: Go refuses it (%d) and changes the state", action, want)
	}
	return want, nil
}

// chooses is a core that determines the time and the draw of its ticks.
type chooses interface {
	prepare(s *coordinator.State, now uint64) (at uint64, draw [32]byte, err error)
}

// tick first asks when a tick is due, if the core supports that.
func (r *pair) tick(now, seed uint64) (bool, error) {
	before, draw := r.s.RunState, sha256.Sum256(le.AppendUint64(nil, seed))
	if c, ok := r.c.(chooses); ok {
		var err error
		if now, draw, err = c.prepare(&r.s, now); err != nil {
			return false, differ("before a tick: %v\n%s", err, r.s.String())
		}
	} else if err := r.due(now); err != nil {
		return false, err
	}
	want := r.s.Tick(now, draw)
	a, err := r.do(operation{kind: opTick, now: now, draw: draw})
	if err != nil {
		return want, err
	}
	r.seen[fmt.Sprintf("tick %s to %s", before, r.s.RunState)]++
	if want != (a.result != 0) {
		return want, differ("tick: Go %t, C %d\n%s", want, a.result, r.s.String())
	}
	if want != (a.changed > 0) {
		return want, differ("tick: C says changed %t and changes %d parts", want, a.changed)
	}
	return want, r.compare("tick")
}

func (r *pair) due(now uint64) error {
	at, ok := r.s.Due(now)
	a, err := r.do(operation{kind: opDue, now: now})
	if err != nil {
		return err
	}
	if ok != (a.result != 0) || ok && at != a.number {
		return differ("due at %d: Go %d %t, C %d %d\n%s", now, at, ok, a.number, a.result, r.s.String())
	}
	return nil
}

// compare compares the account with the account of Go's state.
func (r *pair) compare(subject string) error {
	r.raw = r.s.AppendTo(r.raw[:0])
	r.account = layout.Append(r.account[:0], &r.s)
	return r.sameAccount(r.account, subject)
}

func (r *pair) sameAccount(want []byte, subject string) error {
	account := r.c.state()
	if bytes.Equal(want, account) {
		return nil
	}
	at := 0
	for want[at] == account[at] {
		at++
	}
	end := min(at+32, len(want))
	return differ("%s: the account differs from byte %d on: Go %x, C %x\n%s", subject, at, want[at:end], account[at:end], r.s.String())
}

func codeOf(err error) coordinator.Code {
	if err == nil {
		return 0
	}
	if code, ok := errors.AsType[coordinator.Code](err); ok {
		return code
	}
	return coordinator.ErrMalformed // package wire cannot decode the bytes
}

// encode does the same as wire.AppendAction, but accepts invalid actions.
func encode(a coordinator.Action) []byte {
	switch a := a.(type) {
	case coordinator.UpdateConfig:
		return a.AppendTo([]byte{8})
	case coordinator.ReportUpload:
		b := append(le.AppendUint32([]byte{13}, a.Step), a.Digest[:]...)
		b = append(b, byte(a.Place.Kind), byte(len(a.Place.Repo)))
		b = append(append(b, a.Place.Repo...), byte(len(a.Place.Revision)))
		return append(b, a.Place.Revision...)
	default:
		return wire.AppendAction(nil, a)
	}
}
