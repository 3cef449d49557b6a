package core

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
)

// machine is a member's Jobs and Signing, or a mutation of them.
type machine interface {
	Start(w Work, cancel func()) ID
	Spawn(w Work) ID
	Done(id ID) (wanted bool)
	End(s Scope)
	Drop(id ID)
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
	forgetsDrop    struct{ member }
	recordsLate    struct{ member }
	ignoresDisk    struct{ member }
	announcesFirst struct{ member }
	signsTwice     struct{ member }
	signsUnmarked  struct{ member }
)

func (m *appliesStale) Done(id ID) bool { m.member.Done(id); return true }
func (m *forgetsCancel) Cancel()        {}
func (m *forgetsEnd) End(Scope)         {}
func (m *forgetsDrop) Drop(ID)          {}

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
		{"a dropped result is applied", func() machine { return new(forgetsDrop) }, errStale},
		{"a result is signed before its record is written", func() machine { return new(recordsLate) }, errNotRecorded},
		{"a result is signed although its record was not written", func() machine { return new(ignoresDisk) }, errNotRecorded},
		{"a result is announced before it is signed", func() machine { return new(announcesFirst) }, errNotSigned},
		{"a step is signed twice", func() machine { return new(signsTwice) }, errTwice},
		{"a signature is not remembered", func() machine { return new(signsUnmarked) }, errTwice},
	} {
		t.Run(m.name, func(t *testing.T) {
			for seed := range uint64(200) {
				h := history{machine: m.make(), chance: rand.New(rand.NewPCG(seed, 0)), tasks: map[ID]*task{}, recorded: map[uint32]bool{}, signed: map[uint32]bool{}}
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
	errStale        = errors.New("a stale result is applied, or a wanted one is not")
	errNotCancelled = errors.New("cancelled work continues")
	errNotRecorded  = errors.New("signed without a durable record")
	errNotSigned    = errors.New("announced without a signature")
	errTwice        = errors.New("two signatures of one step")
)

// history is a random history of a member.
type history struct {
	machine
	chance   *rand.Rand
	round    uint32
	tasks    map[ID]*task // in progress
	trainer  ID           // 0: it is idle
	recorded map[uint32]bool
	signed   map[uint32]bool
}

// task is work in progress.
type task struct {
	Work
	asked bool // to stop
	stale bool
}

// step makes one event happen, and returns an error if the member breaks a rule.
func (h *history) step() error {
	switch h.chance.IntN(8) {
	case 0:
		h.round++
	case 1:
		s := Scope(h.chance.IntN(int(scopes)-1) + 1) // Process never ends
		h.End(s)
		for _, t := range h.tasks {
			t.stale = t.stale || t.scope() == s
		}
	case 2:
		h.Cancel()
		if t := h.tasks[h.trainer]; t != nil && !t.asked {
			return errNotCancelled
		}
	case 3:
		w := []Work{Hash{}, WriteIntermediate{}, Write{}, Read{}}[h.chance.IntN(4)]
		h.tasks[h.Spawn(w)] = &task{Work: w}
	case 4:
		if id, t := h.any(); t != nil {
			t.stale = true
			h.Drop(id)
		}
	default:
		if h.trainer == 0 {
			w := []Work{Train{Step: h.round + 1, Ahead: true}, Train{Step: h.round}, Apply{Step: h.round}, Replay{}, Load{}}[h.chance.IntN(5)]
			t := &task{Work: w}
			h.trainer = h.Start(w, func() { t.asked = true })
			h.tasks[h.trainer] = t
			return nil
		}
		return h.end(h.any())
	}
	return nil
}

// any returns work in progress, or nil.
func (h *history) any() (ID, *task) {
	ids := slices.Sorted(maps.Keys(h.tasks))
	if len(ids) == 0 {
		return 0, nil
	}
	id := ids[h.chance.IntN(len(ids))]
	return id, h.tasks[id]
}

// end ends work, as an executor does that cancels too late.
func (h *history) end(id ID, t *task) error {
	delete(h.tasks, id)
	if id == h.trainer {
		h.trainer = 0
	}
	var permit Permit
	train, trains := t.Work.(Train)
	if trains {
		permit, _ = h.Record(train.Step, func() error {
			if h.chance.IntN(4) == 0 {
				return errors.New("the disk is full")
			}
			h.recorded[train.Step] = true
			return nil
		})
	}
	wanted := h.Done(id)
	if wanted == t.stale {
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
