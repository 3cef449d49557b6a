package main

import (
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/psyche-go/psyche/base/child"
	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/core/assign"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/proof/testbed"
	"github.com/psyche-go/psyche/record/event"
)

// trainedRun is a run of one step that two members trained, with their claims.
type trainedRun struct {
	p       *play
	r       *record
	a       *account
	sent    [2]event.ResultSent
	applied [2]event.Applied
	loss    float64 // of all steps after the first
}

func newTrainedRun(t *testing.T) *trainedRun {
	t.Helper()
	r, err := parseRow("backend=server")
	if err != nil {
		t.Fatal(err)
	}
	u := &trainedRun{
		p: &play{row: r, lost: map[string]int{}}, a: &account{
			announced: map[event.Batch]string{}, replicas: map[uint32]string{}, digests: map[string][]string{"": nil},
			losses: map[uint32][]float64{}, lost: map[event.Batch]bool{}, applied: map[uint32]bool{},
		},
		r:    &record{plans: map[uint32]*plan{}, steps: []uint32{1}, dropped: map[seen]bool{}, late: map[seen]bool{}, accused: map[seen]string{}},
		loss: 1,
	}
	one := &plan{round: coordinator.Round{Step: 1, BatchSize: 4, WitnessesNeeded: 1}, proofs: 1}
	for i, name := range []string{"client-1", "client-2"} {
		key := identity.FromSeed(sha256.Sum256([]byte(name)))
		u.p.members = append(u.p.members, &member{Node: &testbed.Node{Process: child.Process{Name: name}, Key: key}})
		one.round.Members = append(one.round.Members, coordinator.ClientID(key.ID()))
		batch := assign.BatchID{Start: uint64(2 * i), End: uint64(2*i + 2)}
		one.assignments = append(one.assignments, assign.Assignment{Member: i, Batch: batch})
		u.sent[i] = event.ResultSent{Step: 1, Batch: event.Batch{batch.Start, batch.End}}
		u.applied[i] = event.Applied{Step: 1, Counted: 2, Replica: "a"}
	}
	u.r.plans[1] = one
	u.r.final.RunState = coordinator.Finished
	u.r.final.Model.Checkpoint.Step = 160
	u.a.digests = map[string][]string{strings.Repeat("0", 64): {"client-1", "client-2"}}
	return u
}

func (u *trainedRun) id(i int) string { return u.p.members[i].Key.ID().String() }

// loses removes the second member's batch from the counted batches.
func (u *trainedRun) loses() {
	for i := range u.applied {
		u.applied[i].Counted = 1
		u.applied[i].Lost = []event.LostBatch{{Batch: u.sent[1].Batch, Owner: u.id(1)}}
	}
}

func (u *trainedRun) check() []finding {
	u.p.checkEnd(u.r)
	u.p.checkData(u.r)
	u.p.checkHonest(u.r)
	for i, m := range u.p.members {
		u.p.checkSent(u.r, u.a, m, u.sent[i])
		u.p.checkApplied(u.r, u.a, m, u.applied[i])
	}
	for step := uint32(1); step <= 160; step++ {
		u.a.losses[step] = []float64{u.loss}
	}
	u.a.losses[1] = []float64{3}
	u.p.checkDigests(u.r, u.a)
	u.p.checkLoss(u.a)
	return u.p.findings
}

// TestChecks breaks one required condition at a time, and checks that this is found, and that an
// excused failure is not.
func TestChecks(t *testing.T) {
	cases := []struct {
		name   string
		breaks func(u *trainedRun)
		kind   string // of the finding; empty: no finding
		says   string
	}{
		{"nothing is wrong", func(*trainedRun) {}, "", ""},
		{"a batch is trained by another", func(u *trainedRun) { u.sent[1].Batch = u.sent[0].Batch }, "data", "which is"},
		{"a batch is trained twice", func(u *trainedRun) {
			u.a.announced[u.sent[0].Batch] = "client-1"
		}, "data", "announced by both"},
		{"a batch is neither counted nor lost", func(u *trainedRun) { u.applied[0].Counted = 1 }, "data", "1 batches counted and 0 lost, want 2 in total"},
		{"a batch is lost for no reason", func(u *trainedRun) { u.loses() }, "data", "had no incident"},
		{"a batch of a killed member is lost", func(u *trainedRun) {
			u.loses()
			u.p.members[1].note(1, absent, "it was killed")
		}, "", ""},
		{"a batch is late", func(u *trainedRun) {
			u.loses()
			u.r.late[seen{u.id(1), 2}] = true
		}, "", ""},
		{"no quorum without a reason", func(u *trainedRun) {
			u.loses()
			u.r.plans[1].proofs, u.r.plans[1].elected = 0, []string{u.id(0)}
		}, "data", "no quorum of witnesses, although none"},
		{"a witness was killed", func(u *trainedRun) {
			u.loses()
			u.r.plans[1].proofs, u.r.plans[1].elected = 0, []string{u.id(0)}
			u.p.members[0].note(1, absent, "it was killed")
		}, "", ""},
		{"replicas differ", func(u *trainedRun) { u.applied[1].Replica = "b" }, "digest", "replica"},
		{"two models", func(u *trainedRun) { u.a.digests["other"] = []string{"client-2"} }, "digest", "the run recorded 00000000"},
		{"no model", func(u *trainedRun) { u.a.digests[""] = []string{"client-2"} }, "digest", "without the final model"},
		{"an honest member is dropped", func(u *trainedRun) { u.r.dropped[seen{u.id(1), 1}] = true }, "dropped", "client-2"},
		{"a late joiner is dropped", func(u *trainedRun) {
			u.r.dropped[seen{u.id(1), 1}] = true
			u.p.members[1].note(1, present, "it joined late")
		}, "dropped", "client-2"},
		{"a killed member is dropped", func(u *trainedRun) {
			u.r.dropped[seen{u.id(1), 1}] = true
			u.p.members[1].note(1, absent, "it was killed")
		}, "", ""},
		{"an honest member is accused", func(u *trainedRun) { u.r.accused[seen{u.id(0), 1}] = "z" }, "accused", "client-1"},
		{"a member is ejected", func(u *trainedRun) {
			u.r.final.Authority.Ejections = make([]coordinator.Ejection, 1)
		}, "ejected", "1 members"},
		{"steps are lost", func(u *trainedRun) {
			u.r.final.RollbackGaps = []coordinator.RollbackGap{{First: 1, Last: 1}}
			u.p.members[1].note(1, absent, "it left")
		}, "lost", "client-2: it left in step 1"},
		{"a round without a quorum is in a rollback gap", func(u *trainedRun) {
			u.r.final.RollbackGaps = []coordinator.RollbackGap{{First: 1, Last: 1}}
			u.r.plans[1].proofs, u.r.plans[1].elected = 0, []string{u.id(1)}
			u.p.members[1].note(1, absent, "it left")
		}, "", ""},
		{"the end is not recorded", func(u *trainedRun) { u.r.final.Model.Checkpoint.Step = 120 }, "lost", "checkpoint has step 120"},
		{"the run continues", func(u *trainedRun) { u.r.final.RunState = coordinator.Paused }, "unfinished", "Paused"},
		{"a step is skipped", func(u *trainedRun) { u.r.steps = []uint32{2} }, "data", "has step 2"},
		{"a lost sequence does not return", func(u *trainedRun) { u.p.row = row{levels: map[string]string{"returns": "on"}} }, "data", "of 4 sequences count or wait"},
		{"data is skipped", func(u *trainedRun) {
			u.r.plans[1].round.DataIndex = 4
		}, "data", "begin at 4"},
		{"the loss grows", func(u *trainedRun) { u.loss = 5 }, "loss", "5.0000 at the end"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			u := newTrainedRun(t)
			c.breaks(u)
			found := u.check()
			if c.kind == "" {
				if len(found) > 0 {
					t.Fatalf("found %v", found)
				}
				return
			}
			for _, f := range found {
				if f.kind == c.kind && strings.Contains(f.text, c.says) {
					return
				}
			}
			t.Errorf("found %v, want %s with %q", found, c.kind, c.says)
		})
	}
}

// TestLongestPhase leaves out the time between two starts, and the time of waiting for members.
func TestLongestPhase(t *testing.T) {
	state := func(second int, name string, step int) string {
		return fmt.Sprintf(`{"time":"2026-01-01T00:00:%02dZ","kind":"state","run_state":%q,"step":%d}`+"\n", second, name, step)
	}
	started := `{"time":"2026-01-01T00:00:20Z","kind":"started","role":"client"}` + "\n"
	path := filepath.Join(t.TempDir(), "events.jsonl")
	log := state(0, "WaitingForMembers", 1) + state(9, "Warmup", 1) + state(10, "RoundTrain", 1) + state(12, "RoundTrain", 1) +
		state(14, "Cooldown", 2) + started + state(21, "Warmup", 2) + state(24, "RoundTrain", 2)
	if err := os.WriteFile(path, []byte(log), 0o644); err != nil {
		t.Fatal(err)
	}
	longest, err := longestPhase(path)
	if want := (phase{"RoundTrain", 1, 4 * time.Second}); err != nil || longest != want {
		t.Errorf("%+v, %v, want %+v", longest, err, want)
	}
}
