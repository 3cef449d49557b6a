package models

import (
	"errors"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/files/checkpoint"
	"github.com/psyche-go/psyche/node/core"
)

// machine is a client's Copies, or a mutation of them.
type machine interface {
	Take(now time.Time, s *coordinator.State, step uint32, lends bool) *Write
	Hash(s *coordinator.State, step uint32, taken checkpoint.Snapshot) *Hash
	Hashed(now time.Time, h *Hash, ok bool) *Write
	Written(now time.Time, w *Write, err error, wanted bool)
	Overdue(now time.Time, wanted func(core.ID) bool) *Write
	Next(now time.Time, s *coordinator.State) *Write
	Trim(now time.Time, s *coordinator.State, shared bool) *Kept
	Unreported(s *coordinator.State, me *coordinator.Client) (coordinator.Recorded, bool)
	Abandon(s *coordinator.State)
	all() *Copies
}

func (c *Copies) all() *Copies { return c }

// The mutations change one rule each.
type (
	keepsStale    struct{ *Copies }
	keepsUnwanted struct{ *Copies }
	believesDisk  struct{ *Copies }
	keepsLent     struct{ *Copies }
	removesInUse  struct{ *Copies }
	dropsCommit   struct{ *Copies }
	forgetsHung   struct{ *Copies }
	writesTwice   struct{ *Copies }
	reportsFuture struct{ *Copies }
	keepsWrong    struct{ *Copies }
	removesLate   struct{ *Copies }
)

func (m keepsStale) Hashed(now time.Time, h *Hash, _ bool) *Write {
	return m.Copies.Hashed(now, h, true)
}
func (m keepsUnwanted) Written(now time.Time, w *Write, err error, _ bool) {
	m.Copies.Written(now, w, err, true)
}
func (m believesDisk) Written(now time.Time, w *Write, err error, wanted bool) {
	if !w.Lent {
		err = nil
	}
	m.Copies.Written(now, w, err, wanted)
}
func (m keepsLent) Written(now time.Time, w *Write, err error, wanted bool) {
	if w.Lent {
		err = nil
	}
	m.Copies.Written(now, w, err, wanted)
}
func (m removesInUse) Next(now time.Time, s *coordinator.State) *Write {
	w := m.Copies.Next(now, s)
	if w != nil {
		w.steps = nil
	}
	return w
}
func (m removesLate) Hashed(now time.Time, h *Hash, ok bool) *Write {
	w := m.Copies.Hashed(now, h, ok)
	if w != nil {
		w.all = now.Add(24 * time.Hour)
	}
	return w
}
func (m dropsCommit) Trim(now time.Time, s *coordinator.State, shared bool) *Kept {
	k := m.Copies.Trim(now, s, shared)
	m.copies = slices.DeleteFunc(m.copies, func(p Copy) bool { return p.Recorded == s.Epoch.Commit })
	return k
}
func (m forgetsHung) Overdue(now time.Time, wanted func(core.ID) bool) *Write {
	w := m.Copies.Overdue(now, wanted)
	m.hung = nil
	return w
}
func (m writesTwice) Next(now time.Time, s *coordinator.State) *Write {
	defer func(w *Write) { m.write = w }(m.write)
	m.write = nil
	return m.Copies.Next(now, s)
}
func (m reportsFuture) Unreported(s *coordinator.State, me *coordinator.Client) (coordinator.Recorded, bool) {
	later := *s
	later.Progress.Step = ^uint32(0)
	return m.Copies.Unreported(&later, me)
}
func (m keepsWrong) Abandon(*coordinator.State) {}

// Rules of a client's copies.
var (
	errStale    = errors.New("a stale or unwanted copy is kept")
	errNoCopy   = errors.New("a copy is neither in memory nor on the disk")
	errFolder   = errors.New("the folder of a copy in use is removed")
	errLost     = errors.New("the run's checkpoint is dropped")
	errWrites   = errors.New("too many writes at a time")
	errReported = errors.New("a model is reported that the client does not have, or too early")
	errWrong    = errors.New("an unrecorded copy is kept after the weights proved wrong")
)

// TestMutations checks that random histories of a client's copies break no rule, and that they detect each
// mutation of the code.
func TestMutations(t *testing.T) {
	for _, m := range []struct {
		name string
		make func(c *Copies) machine
		want error // nil: it breaks no rule
	}{
		{"none", func(c *Copies) machine { return c }, nil},
		{"a stale hash is kept", func(c *Copies) machine { return keepsStale{c} }, errStale},
		{"an unwanted write is kept", func(c *Copies) machine { return keepsUnwanted{c} }, errStale},
		{"a failed write counts", func(c *Copies) machine { return believesDisk{c} }, errNoCopy},
		{"a lent model counts that was not written", func(c *Copies) machine { return keepsLent{c} }, errNoCopy},
		{"a folder in use is removed", func(c *Copies) machine { return removesInUse{c} }, errFolder},
		{"a late removal removes newer folders", func(c *Copies) machine { return removesLate{c} }, errFolder},
		{"the run's checkpoint is dropped", func(c *Copies) machine { return dropsCommit{c} }, errLost},
		{"hanging writes are forgotten", func(c *Copies) machine { return forgetsHung{c} }, errors.Join(errWrites, errFolder)},
		{"two writes run at a time", func(c *Copies) machine { return writesTwice{c} }, errWrites},
		{"a model of a forgotten step is reported", func(c *Copies) machine { return reportsFuture{c} }, errReported},
		{"wrong copies are kept", func(c *Copies) machine { return keepsWrong{c} }, errWrong},
	} {
		t.Run(m.name, func(t *testing.T) {
			for seed := range uint64(400) {
				c := &Copies{Folder: seed%4 > 0, Model: seed % 2}
				h := &history{machine: m.make(c), chance: rand.New(rand.NewPCG(seed, 0)), disk: map[uint32]bool{}, now: time.Unix(1, 0)}
				h.state.Config.RoundsPerEpoch, h.state.RunState = 40, coordinator.RoundTrain
				h.state.Epoch.StartStep, h.state.Progress.Step = 1, 1
				for range 1000 {
					if err := h.step(); err != nil {
						if !errors.Is(m.want, err) {
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

// history is a random history of a client's copies, and of its disk.
type history struct {
	machine
	chance  *rand.Rand
	now     time.Time
	state   coordinator.State
	disk    map[uint32]bool // steps with a folder
	hash    *Hash
	stale   bool // hash belongs to a copy that is not wanted any more
	writes  []*write
	removes []*Kept // not yet executed
	tasks   core.ID
}

// write is a write in progress.
type write struct {
	*Write
	stale   bool
	hangs   bool
	stuck   bool // it does not end until it hangs
	removes bool // it has not removed old folders yet
}

// begin starts a write. The disk may be slow to remove old folders.
func (h *history) begin(w *Write) error {
	if w == nil {
		return nil
	}
	h.tasks++
	w.Task = h.tasks
	running, hung := 0, 0
	for _, other := range h.writes {
		if other.hangs {
			hung++
		} else {
			running++
		}
	}
	if running > 0 || hung > maxHung {
		return errWrites
	}
	started := &write{Write: w, stuck: h.chance.IntN(3) == 0, removes: h.chance.IntN(2) == 0}
	h.writes = append(h.writes, started)
	if started.removes {
		return nil
	}
	return h.remove(&w.Kept)
}

// remove removes the folders that need not stay.
func (h *history) remove(k *Kept) error {
	for step := range h.disk {
		if k.Keeps(h.now, step) {
			continue
		}
		if slices.ContainsFunc(h.all().copies, func(p Copy) bool { return p.Memory == nil && p.Step == step && h.needs(p) }) {
			return errFolder
		}
		delete(h.disk, step)
	}
	return nil
}

// needs reports whether the client needs a copy. A hanging write may add an old copy, which the next
// Trim drops.
func (h *history) needs(p Copy) bool { return p.Step >= h.state.Epoch.Commit.Step }

func (h *history) end(i int) error {
	w := h.writes[i]
	h.writes = slices.Delete(h.writes, i, i+1)
	had := h.all().Has(w.Step)
	if w.removes {
		if err := h.remove(&w.Kept); err != nil {
			return err
		}
	}
	var err error
	if h.chance.IntN(4) == 0 {
		err = errors.New("the disk is full")
	} else {
		h.disk[w.Step] = true
		if w.Lent {
			w.Digest, w.Facts = digestOf(w.Step), checkpoint.Facts{Step: w.Step}
		}
	}
	first := w.First
	h.Written(h.now, w.Write, err, !w.stale)
	if w.stale && (first || w.Lent) && !had && h.all().Has(w.Step) {
		return errStale
	}
	return nil
}

func digestOf(step uint32) [32]byte { return [32]byte{byte(step), byte(step >> 8), 1} }

// step makes one event happen, and returns an error if the client breaks a rule.
func (h *history) step() error {
	s, step := &h.state, h.state.Progress.Step
	switch h.chance.IntN(11) {
	case 0, 1: // a round is applied
		s.Progress.Step++
		if !h.all().Busy() && h.chance.IntN(3) == 0 {
			return h.take(step)
		}
	case 2:
		return h.hashed()
	case 3, 4:
		if len(h.writes) == 0 {
			break
		}
		if i := h.chance.IntN(len(h.writes)); !h.writes[i].stuck || h.writes[i].hangs && h.chance.IntN(8) == 0 {
			return h.end(i)
		}
	case 5:
		h.now = h.now.Add(time.Duration(h.chance.IntN(40)) * time.Second)
	case 6: // the run records a model
		if c := h.all().copies; len(c) > 0 && c[len(c)-1].Step > s.Epoch.Commit.Step {
			s.Epoch.Commit = c[len(c)-1].Recorded
		}
	case 7: // the weights prove wrong
		if h.chance.IntN(8) > 0 {
			break
		}
		h.Abandon(s)
		h.stale = true
		for _, w := range h.writes {
			w.stale = true
		}
		if slices.ContainsFunc(h.all().copies, func(p Copy) bool { return !isRecorded(s, p.Recorded) }) {
			return errWrong
		}
	case 8: // the host loses some steps
		if h.chance.IntN(4) == 0 && step > s.Epoch.Commit.Step+3 {
			s.Progress.Step -= 2
		}
	case 9:
		if len(h.removes) > 0 {
			k := h.removes[0]
			h.removes = h.removes[1:]
			return h.remove(k)
		}
	default:
		return h.tend()
	}
	return h.check()
}

// take takes the model after a step.
func (h *history) take(step uint32) error {
	if w := h.Take(h.now, &h.state, step, true); w != nil {
		return h.begin(w)
	}
	if hash := h.Hash(&h.state, step, checkpoint.Snapshot{Step: step}); hash != nil {
		hash.Digest, hash.Facts = digestOf(step), checkpoint.Facts{Step: step}
		h.hash, h.stale = hash, false
	}
	return nil
}

// hashed ends the hashing of a copy.
func (h *history) hashed() error {
	if h.hash == nil {
		return nil
	}
	hash, ok := h.hash, !h.stale && h.chance.IntN(4) > 0
	h.hash = nil
	had := h.all().Has(hash.Step)
	w := h.Hashed(h.now, hash, ok)
	if !ok && (w != nil || !had && h.all().Has(hash.Step)) {
		return errStale
	}
	return h.begin(w)
}

// tend trims, writes and reports copies, as after each event.
func (h *history) tend() error {
	s := &h.state
	held := h.all().Holds(s.Epoch.Commit.Digest) && s.Epoch.Commit.Step < s.Progress.Step
	kept := h.Trim(h.now, s, false)
	if held && !h.all().Holds(s.Epoch.Commit.Digest) {
		return errLost
	}
	if kept != nil {
		h.removes = append(h.removes, kept)
	}
	w := h.Overdue(h.now, func(task core.ID) bool {
		return slices.ContainsFunc(h.writes, func(w *write) bool { return w.Task == task && !w.stale })
	})
	for _, other := range h.writes {
		other.hangs = other.hangs || other.Write == w
	}
	if r, ok := h.Unreported(s, &coordinator.Client{}); ok && (!h.all().Holds(r.Digest) || r.Step >= s.Progress.Step) {
		return errReported
	}
	if err := h.begin(h.Next(h.now, s)); err != nil {
		return err
	}
	return h.check()
}

// check checks that each copy is in memory or on the disk.
func (h *history) check() error {
	for _, p := range h.all().copies {
		if p.Memory == nil && !h.disk[p.Step] && h.needs(p) {
			return errNoCopy
		}
	}
	return nil
}
