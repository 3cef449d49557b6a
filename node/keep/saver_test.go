package keep

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/psyche-go/psyche/base/golden"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/files/checkpoint"
	"github.com/psyche-go/psyche/node/clienttest"
	"github.com/psyche-go/psyche/node/env"
	"github.com/psyche-go/psyche/record/event"
)

// bench is a saver with recorded effects.
type bench struct {
	*Saver
	env.Runtime
	queue  []func()
	events []event.Checkpoint
	saved  []checkpoint.Facts
	log    bytes.Buffer
	now    time.Time
}

// Now implements env.Runtime.
func (b *bench) Now() time.Time { return b.now }

func newBench(dir string, keep int) *bench {
	b := &bench{}
	b.Saver = NewSaver(Options{
		Folder: Folder{Dir: dir, RunID: clienttest.RunID}, Keep: keep,
		Saved: func(_ string, f checkpoint.Facts) { b.saved = append(b.saved, f) },
		Tasks: &env.Tasks{Runtime: b, Work: context.Background()},
		Emit:  func(body event.Body) { b.events = append(b.events, body.(event.Checkpoint)) },
		Log:   slog.New(slog.NewTextHandler(&b.log, nil)),
	})
	return b
}

// Run implements env.Runtime. The task runs in the next call of work.
func (b *bench) Run(task func() func()) { b.queue = append(b.queue, func() { task()() }) }

// work runs all waiting tasks. Tasks that they start wait for the next call.
func (b *bench) work() {
	waiting := b.queue
	b.queue = nil
	for _, task := range waiting {
		task()
	}
}

// modelOf returns the model after a step.
func modelOf(step uint32) Model {
	s := clienttest.Model()
	s.Step = step
	return Model{Step: step, Digest: s.Manifest().Digest(), Snapshot: s}
}

// stateAfter returns the state of a run whose newest round was the given step, with a checkpoint.
func stateAfter(step uint32, c coordinator.Checkpoint) *coordinator.State {
	s := &coordinator.State{RunID: clienttest.RunID, RunState: coordinator.WaitingForMembers}
	s.Progress.Epoch, s.Progress.Step, s.Progress.DataIndex = 1, step+1, 36
	s.Model.Checkpoint = c
	return s
}

func recorded(m Model) coordinator.Checkpoint {
	return coordinator.Checkpoint{Kind: coordinator.CheckpointP2P, Step: m.Step, Digest: m.Digest}
}

// TestModelIsSavedWhenTheRunHasLeftCooldown checks that the model is saved once, with its facts,
// when the run leaves Cooldown. The saver is busy until then.
func TestModelIsSavedWhenTheRunHasLeftCooldown(t *testing.T) {
	b, m := newBench(t.TempDir(), 0), modelOf(3)
	s := stateAfter(3, recorded(m))
	b.SaveAgreed(s)
	if b.Busy() || b.Holds(recorded(m)) {
		t.Error("busy or holds a model before there is one")
	}
	b.Take(m)
	s.RunState = coordinator.Cooldown
	b.SaveAgreed(s)
	if !b.Busy() || len(b.queue) != 0 {
		t.Error("saved what the run may not agree on")
	}
	s.RunState = coordinator.WaitingForMembers
	for range 2 {
		b.SaveAgreed(s)
	}
	if !b.Busy() || len(b.queue) != 1 {
		t.Fatalf("%d are being saved", len(b.queue))
	}
	b.work()
	if b.Busy() || b.Err() != nil || len(b.events) != 1 {
		t.Fatalf("busy %v, error %v, events %+v", b.Busy(), b.Err(), b.events)
	}
	dir := b.Folder.Checkpoint(3)
	if e := b.events[0]; e.Dir != dir || e.Step != 3 || e.Epoch != 1 || e.Digest != hex.EncodeToString(m.Digest[:]) {
		t.Errorf("reported %+v", e)
	}
	facts, err := checkpoint.ReadFacts(dir)
	if err != nil || facts.DataIndex != 36 || facts.RunID != clienttest.RunID || len(b.saved) != 1 || b.saved[0] != facts {
		t.Errorf("facts %+v, notified %+v, %v", facts, b.saved, err)
	}
	fresh := newBench(b.Folder.Dir, 0) // lookups are cached
	if !fresh.Holds(recorded(m)) || !strings.Contains(fresh.Locations(s), dir) {
		t.Errorf("not found again: %s", fresh.Locations(s))
	}
}

// TestModelThatIsNotTheRunsIsNotSaved checks that a model is not saved if the run recorded a
// different one, or if there is no folder.
func TestModelThatIsNotTheRunsIsNotSaved(t *testing.T) {
	b, m := newBench(t.TempDir(), 0), modelOf(3)
	other := recorded(m)
	other.Digest[0] ^= 1
	b.Take(m)
	b.SaveAgreed(stateAfter(3, other))
	if b.Busy() || len(b.queue)+len(b.events) != 0 || !strings.Contains(b.log.String(), "level=WARN") {
		t.Errorf("busy %v, %d tasks, events %+v, log %s", b.Busy(), len(b.queue), b.events, &b.log)
	}
	b = newBench("", 0)
	b.Take(m)
	b.SaveAgreed(stateAfter(3, recorded(m)))
	if b.Busy() || len(b.queue) != 0 || len(b.events) != 1 || b.events[0].Dir != "" || b.Holds(recorded(m)) {
		t.Errorf("busy %v, %d tasks, events %+v", b.Busy(), len(b.queue), b.events)
	}
}

// TestOnlyTheNewestStay checks that only the newest checkpoints are kept, and that facts are
// written only if the state still contains them.
func TestOnlyTheNewestStay(t *testing.T) {
	b := newBench(t.TempDir(), 2)
	for _, step := range []uint32{3, 6, 9} {
		m := modelOf(step)
		b.Take(m)
		b.SaveAgreed(stateAfter(step, recorded(m)))
		b.work()
	}
	if _, err := os.Stat(b.Folder.Checkpoint(3)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the oldest stays: %v", err)
	}
	for _, step := range []uint32{6, 9} {
		if !newBench(b.Folder.Dir, 0).Holds(recorded(modelOf(step))) {
			t.Errorf("step %d is missing", step)
		}
	}
	m := modelOf(12)
	s := stateAfter(14, recorded(m)) // two rounds later
	b.Take(m)
	b.SaveAgreed(s)
	b.work()
	if len(b.saved) != 3 || b.Err() != nil {
		t.Errorf("notified of %+v, %v; want three, since the state no longer has the facts of the last model", b.saved, b.Err())
	}
	s.Epoch.Rounds = []coordinator.Round{{Step: 13, DataIndex: 24}, {Step: 14, DataIndex: 36}}
	if f, known := factsOf(&m, s); !known || f.DataIndex != 24 {
		t.Errorf("facts %+v, %v", f, known)
	}
}

// TestCheckpointThatCannotBeSaved checks that a failed checkpoint is an error until a later one is
// saved.
func TestCheckpointThatCannotBeSaved(t *testing.T) {
	b := newBench(t.TempDir(), 0)
	if err := os.MkdirAll(b.Folder.Checkpoint(3), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(b.Folder.Checkpoint(3), "notes.txt"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	var errs []error
	for _, step := range []uint32{3, 6} {
		m := modelOf(step)
		b.Take(m)
		b.SaveAgreed(stateAfter(step, recorded(m)))
		b.work()
		errs = append(errs, b.Err())
	}
	if !errors.Is(errs[0], errOtherCheckpoint) || errs[1] != nil {
		t.Errorf("errors %v", errs)
	}
	if len(b.events) != 2 || b.events[0].Dir != "" || b.events[1].Dir == "" || len(b.saved) != 1 {
		t.Errorf("events %+v, notified of %+v", b.events, b.saved)
	}
}

// TestUploadsAreReportedWhenTheRunCanTakeThem checks that an upload is reported when the run can
// accept it, and is forgotten when the run never will.
func TestUploadsAreReportedWhenTheRunCanTakeThem(t *testing.T) {
	me, m := coordinator.ClientID{7}, modelOf(3)
	facts := func(run string, m Model) checkpoint.Facts {
		return checkpoint.Facts{RunID: run, Step: m.Step, Digest: hex.EncodeToString(m.Digest[:])}
	}
	place := coordinator.Location{Kind: coordinator.CheckpointGcs, Repo: "bucket"}
	member := func(s *coordinator.State) { s.Pending = []coordinator.Client{{ID: me, HoldsModel: true}} }
	for name, test := range map[string]struct {
		facts          checkpoint.Facts
		change         func(s *coordinator.State)
		reported, kept bool
	}{
		"recorded":         {facts(clienttest.RunID, m), member, true, true},
		"no member yet":    {facts(clienttest.RunID, m), func(*coordinator.State) {}, false, true},
		"of another run":   {facts("other", m), member, false, false},
		"without a digest": {checkpoint.Facts{RunID: clienttest.RunID, Step: 3, Digest: "xyz"}, member, false, false},
		"not recorded yet": {facts(clienttest.RunID, modelOf(6)), member, false, true},
		"will not be":      {facts(clienttest.RunID, modelOf(2)), member, false, false},
		"an earlier one": {facts(clienttest.RunID, modelOf(2)), func(s *coordinator.State) {
			member(s)
			s.Earlier = []coordinator.Recorded{{Step: 2, Digest: modelOf(2).Digest}}
		}, true, true},
		"known already": {facts(clienttest.RunID, m), func(s *coordinator.State) {
			member(s)
			s.Uploads = []coordinator.Upload{{Reporter: me, Step: 3, Digest: m.Digest, Place: place}}
		}, false, false},
		"no room for it": {facts(clienttest.RunID, m), func(s *coordinator.State) {
			member(s)
			for n := range byte(coordinator.MaxUploads) {
				s.Uploads = append(s.Uploads, coordinator.Upload{Reporter: coordinator.ClientID{n, 1}, Step: 3, Digest: m.Digest, Place: place})
			}
		}, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			var u Uploads
			u.Add(clienttest.RunID, test.facts, place)
			s := stateAfter(3, recorded(m))
			test.change(s)
			report, reported := u.Next(s, me, slog.New(slog.DiscardHandler))
			if reported != test.reported || reported && (report.Place != place || report.Step != test.facts.Step) {
				t.Errorf("notified %v of %+v", reported, report)
			}
			if (u.newest != nil) != test.kept {
				t.Errorf("kept: %+v", u.newest)
			}
		})
	}
	if _, reported := new(Uploads).Next(stateAfter(3, recorded(m)), me, slog.New(slog.DiscardHandler)); reported {
		t.Error("notified of no upload")
	}
}

// TestLocationsOfTheModelInMessages checks the places that messages name if the model is not here.
func TestLocationsOfTheModelInMessages(t *testing.T) {
	m := modelOf(3)
	s := stateAfter(3, recorded(m))
	b := newBench(t.TempDir(), 0)
	if said := b.Locations(s); !strings.Contains(said, "--checkpoint-dir") {
		t.Error(said)
	}
	s.Uploads = []coordinator.Upload{{Step: 3, Digest: m.Digest, Place: coordinator.Location{Kind: coordinator.CheckpointGcs, Repo: "a-bucket"}}}
	if said := b.Locations(s); !strings.Contains(said, "a-bucket") {
		t.Error(said)
	}
	s.Model.Checkpoint = coordinator.Checkpoint{Kind: coordinator.CheckpointDummy}
	golden.Message(t, "the initial model", errors.New(b.Locations(s)))
	if b.Holds(s.Model.Checkpoint) {
		t.Error("the saver holds a dummy checkpoint")
	}
}
