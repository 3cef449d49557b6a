package core

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
)

// machine is a member's Jobs and Signing, or a mutation of them.
type machine interface {
	Start(w Work, cancel func()) ID
	Done(id ID) (wanted bool)
	End(s Scope)
	Cancel()
	Record(step uint32, write func() error) (Permit, error)
	Publish(p Permit, sign func() ([]byte, error), announce func([]byte) error) error
}

type member struct {
	Jobs
	Signing
}

// The mutations change one rule each.
type (
	appliesStale   struct{ member }
	forgetsCancel  struct{ member }
	forgetsEnd     struct{ member }
	recordsLate    struct{ member }
	ignoresDisk    struct{ member }
	announcesFirst struct{ member }
	signsTwice     struct{ member }
	signsUnmarked  struct{ member }
)

func (m *appliesStale) Done(id ID) bool { m.member.Done(id); return true }
func (m *forgetsCancel) Cancel()        {}
func (m *forgetsEnd) End(Scope)         {}

func (m *recordsLate) Record(step uint32, _ func() error) (Permit, error) { return Permit{step}, nil }

func (m *ignoresDisk) Record(step uint32, write func() error) (Permit, error) {
	_, _ = m.member.Record(step, write)
	return Permit{step}, nil
}

func (m *announcesFirst) Publish(p Permit, sign func() ([]byte, error), announce func([]byte) error) error {
	if !m.May(p.step) {
		return ErrSigned
	}
	_ = announce(nil)
	return m.member.Publish(p, sign, func([]byte) error { return nil })
}

func (m *signsTwice) Publish(p Permit, sign func() ([]byte, error), announce func([]byte) error) error {
	m.Recall(0)
	return m.member.Publish(p, sign, announce)
}

func (m *signsUnmarked) Publish(p Permit, sign func() ([]byte, error), announce func([]byte) error) error {
	newest := m.Newest()
	defer func() { m.Recall(newest) }()
	return m.member.Publish(p, sign, announce)
}

// TestMutations checks that random histories of a member break no rule, and that they find each
// mutation of the rules.
func TestMutations(t *testing.T) {
	for _, m := range []struct {
		name string
		make func() machine
		want error // nil: it breaks no rule
	}{
		{"none", func() machine { return new(member) }, nil},
		{"a stale result is applied", func() machine { return new(appliesStale) }, errStale},
		{"a cancel is forgotten", func() machine { return new(forgetsCancel) }, errNotCancelled},
		{"the end of a scope is forgotten", func() machine { return new(forgetsEnd) }, errStale},
		{"a result is signed before its record is written", func() machine { return new(recordsLate) }, errNotRecorded},
		{"a result is signed although its record was not written", func() machine { return new(ignoresDisk) }, errNotRecorded},
		{"a result is announced before it is signed", func() machine { return new(announcesFirst) }, errNotSigned},
		{"a step is signed twice", func() machine { return new(signsTwice) }, errTwice},
		{"a signature is not remembered", func() machine { return new(signsUnmarked) }, errTwice},
	} {
		t.Run(m.name, func(t *testing.T) {
			for seed := range uint64(200) {
				h := history{machine: m.make(), chance: rand.New(rand.NewPCG(seed, 0)), recorded: map[uint32]bool{}, signed: map[uint32]bool{}}
				for range 200 {
					if err := h.step(); err != nil {
						if !errors.Is(err, m.want) {
							t.Fatalf("seed %d: %v, want %v", seed, err, m.want)
						}
						return
					}
				}
			}
			if m.want != nil {
				t.Error("not found")
			}
		})
	}
}

// Rules of a member.
var (
	errStale        = errors.New("the result of a scope that has ended is applied")
	errNotCancelled = errors.New("cancelled work continues")
	errNotRecorded  = errors.New("signed without a durable record")
	errNotSigned    = errors.New("announced without a signature")
	errTwice        = errors.New("two signatures of one step")
)

// history is a random history of a member with at most one operation of the trainer.
type history struct {
	machine
	chance   *rand.Rand
	round    uint32
	id       ID
	work     Work // nil: the trainer is idle
	asked    bool // the executor was asked to stop
	stale    bool // the scope of work has ended
	recorded map[uint32]bool
	signed   map[uint32]bool
}

// step makes one event happen, and returns an error if the member breaks a rule.
func (h *history) step() error {
	switch h.chance.IntN(6) {
	case 0:
		h.round++
	case 1:
		s := Scope(h.chance.IntN(int(scopes)-1) + 1) // Process never ends
		h.End(s)
		h.stale = h.stale || h.work != nil && h.work.scope() == s
	case 2:
		h.Cancel()
		if h.work != nil && !h.asked {
			return errNotCancelled
		}
	default:
		if h.work != nil {
			return h.end()
		}
		h.work = []Work{Train{Step: h.round + 1, Ahead: true}, Train{Step: h.round}, Apply{Step: h.round}, Replay{}, Load{}}[h.chance.IntN(5)]
		h.asked, h.stale = false, false
		h.id = h.Start(h.work, func() { h.asked = true })
	}
	return nil
}

// end ends the trainer's work, as an executor does that cancels too late.
func (h *history) end() error {
	work := h.work
	h.work = nil
	var permit Permit
	train, trains := work.(Train)
	if trains {
		permit, _ = h.Record(train.Step, func() error {
			if h.chance.IntN(4) == 0 {
				return errors.New("the disk is full")
			}
			h.recorded[train.Step] = true
			return nil
		})
	}
	wanted := h.Done(h.id)
	if wanted && h.stale {
		return errStale
	}
	if !trains || !wanted {
		return nil
	}
	var broken error
	broke := func(err error) { broken = errors.Join(broken, err) }
	if err := h.Publish(permit, func() ([]byte, error) {
		if !h.recorded[train.Step] {
			broke(errNotRecorded)
		}
		if h.signed[train.Step] {
			broke(errTwice)
		}
		if h.chance.IntN(8) == 0 {
			return nil, errors.New("no room for the result")
		}
		h.signed[train.Step] = true
		return []byte{1}, nil
	}, func(signature []byte) error {
		if !h.signed[train.Step] || signature == nil {
			broke(errNotSigned)
		}
		return nil
	}); errors.Is(err, ErrSigned) && h.recorded[train.Step] && !h.signed[train.Step] && permit != (Permit{}) && !h.later(train.Step) {
		broke(fmt.Errorf("refuses the first signature of step %d", train.Step))
	}
	return broken
}

// later reports whether the member signed a result of a later step.
func (h *history) later(step uint32) bool {
	for other := range h.signed {
		if other > step {
			return true
		}
	}
	return false
}
