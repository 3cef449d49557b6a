package auditor

import (
	"os"
	"path/filepath"
	"reflect"
	"testing"
	"time"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/record/evidence"
)

// opposite returns the negated gradient.
func opposite(gradient []float32) []float32 {
	for i := range gradient {
		gradient[i] = -gradient[i]
	}
	return gradient
}

// TestReview checks that a correct result is reported as passed once. A wrong result is recomputed
// twice, and its trainer is accused after the auditor has verified that its own results pass. It is
// not accused while the auditor is busy, or if the auditor's own results fail.
func TestReview(t *testing.T) {
	for name, c := range map[string]struct {
		distort func([]float32) []float32
		broken  bool
		busy    bool
		outcome string
		accuses bool
	}{
		"honest":                  {nil, false, false, "passed", false},
		"a cheat":                 {opposite, false, false, "faulty", true},
		"no time":                 {opposite, false, true, "", false},
		"another that is broken":  {opposite, true, false, "faulty", false},
		"only this one is broken": {nil, true, false, "faulty", false},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, c.distort)
			r.spare, r.engine.trainer.broken = !c.busy, c.broken
			r.run(5 * time.Second)
			accuse, accused := r.submitted["accuse"].(coordinator.Accuse)
			if accused != c.accuses || accused && (accuse.Client != r.other || accuse.Fault != coordinator.FaultResult) {
				t.Errorf("accused: %+v", r.submitted)
			}
			switch {
			case c.outcome == "":
				if len(r.reported) != 0 || r.engine.trainer.recomputations != 0 {
					t.Errorf("%d recomputations, notified %+v", r.engine.trainer.recomputations, r.reported)
				}
			case len(r.reported) == 0 || r.reported[0].Outcome != c.outcome || r.reported[0].Trainer != identity.ID(r.other).String():
				t.Errorf("notified %+v, want %s", r.reported, c.outcome)
			}
		})
	}
}

// TestEvidenceFileOfAnAccusation checks that an accuser keeps an evidence file with the accused's own bytes, which
// anyone can examine again.
func TestEvidenceFileOfAnAccusation(t *testing.T) {
	r := newRig(t, opposite)
	r.Dir, r.Run = t.TempDir(), "run"
	for i := range r.past.rounds {
		for j := range r.past.rounds[i].Results {
			r.past.rounds[i].Results[j].Announced = "signed"
		}
	}
	r.run(5 * time.Second)
	accuse := r.submitted["accuse"].(coordinator.Accuse)
	bytes, err := os.ReadFile(filepath.Join(r.Dir, "run", evidence.FileName(accuse.Step, identity.ID(accuse.Client))))
	if err != nil {
		t.Fatal(err)
	}
	kept, err := evidence.Decode(bytes)
	if err != nil {
		t.Fatal(err)
	}
	result, found := r.past.find(accuse.Step, accuse.Client)
	payload, _ := r.payloads.Get(result.Commitment)
	root, _ := r.past.previous(&result)
	want := evidence.File{Announcement: []byte("signed"), Result: payload, Previous: root, Opening: kept.Opening}
	if !found || !reflect.DeepEqual(kept, want) || len(kept.Opening) == 0 {
		t.Errorf("kept %+v\nwant %+v", kept, want)
	}
}

// TestOnlyNewestEvidenceFilesAreKept checks that only the newest evidence files are kept.
func TestOnlyNewestEvidenceFilesAreKept(t *testing.T) {
	dir := t.TempDir()
	for i := range uint32(keptEvidence + 3) {
		path := filepath.Join(dir, evidence.FileName(i, identity.ID{1}))
		if err := writeEvidence(path, evidence.File{}); err != nil {
			t.Fatal(err)
		}
		at := time.Unix(int64(i), 0)
		if err := os.Chtimes(path, at, at); err != nil {
			t.Fatal(err)
		}
	}
	left, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil || len(left) > keptEvidence {
		t.Errorf("%d are left, %v: %q", len(left), err, left)
	}
	if _, err := os.Stat(filepath.Join(dir, evidence.FileName(keptEvidence+2, identity.ID{1}))); err != nil {
		t.Errorf("the newest: %v", err)
	}
}

// TestReviewOfASilentTrainer checks that a trainer is accused of silence only after at least six
// rounds and a minute of requests. A trainer whose results do not arrive either is not accused,
// because it is unreachable.
func TestReviewOfASilentTrainer(t *testing.T) {
	for name, away := range map[string]bool{"there": false, "cannot be reached": true} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, nil)
			r.silent, r.away = true, away
			for range 3 {
				r.run(25 * time.Second)
				r.round()
			}
			if len(r.submitted) > 0 {
				t.Fatalf("after three rounds: %+v", r.submitted)
			}
			for range 4 {
				r.round()
			}
			r.run(10 * time.Second)
			if a, accused := r.submitted["accuse"].(coordinator.Accuse); accused == away || accused && (a.Fault != coordinator.FaultSilent || a.Client != r.other) {
				t.Errorf("after seven rounds: %+v, notified %+v", r.submitted, r.reported)
			}
		})
	}
}

// onTrial puts results of r.other on trial, with this client as the only juror.
func (r *rig) onTrial(steps ...uint32) *coordinator.State {
	s := r.state.Clone()
	for i, step := range steps {
		s.Trials = append(s.Trials, coordinator.Trial{Slot: uint8(i), Accused: r.other, Step: step, Fault: coordinator.FaultResult, Since: newest, Jurors: 1})
		s.Epoch.Clients[0].Juror |= 1 << i
	}
	r.state = &s
	r.Observe()
	return r.state
}

// TestTrial checks that a juror votes according to its audit, and that its training waits for the
// audit once half of the trial's time is over.
func TestTrial(t *testing.T) {
	for name, c := range map[string]struct {
		distort func([]float32) []float32
		guilty  bool
	}{"honest": {nil, false}, "a cheat": {opposite, true}} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, c.distort)
			r.spare, r.engine.busy = false, true
			s := r.onTrial(newest - 1)
			r.run(5 * time.Second)
			r.engine.busy = false
			if r.Preempt(time.Second); r.engine.urgent > 0 || len(r.submitted) > 0 {
				t.Fatalf("the recomputation is urgent too early: %+v", r.submitted)
			}
			s.Progress.Step += coordinator.TrialRounds
			s.StateStart += coordinator.TrialTime
			if r.Preempt(time.Second); r.engine.urgent != 1 {
				t.Error("the training does not wait")
			}
			r.run(5 * time.Second)
			if v, voted := r.submitted["vote on "+identity.ID(r.other).String()].(coordinator.Vote); !voted || v.Guilty != c.guilty {
				t.Errorf("got %+v; want voted and v.Guilty == c.guilty", r.submitted)
			}
		})
	}
}

// TestTrainingWaitsForLittle checks that training waits for at most one recomputation per round,
// and once for each trial, even if the recomputation fails. It does not wait if its result would be
// late, or if the member was late before.
func TestTrainingWaitsForLittle(t *testing.T) {
	const enough = 2 * time.Second
	for name, c := range map[string]struct {
		prepare func(r *rig)
		leeway  time.Duration
		want    []int // total number of urgent recomputations after each round
	}{
		"two trials":      {func(*rig) {}, enough, []int{1, 2, 2}},
		"it fails":        {func(r *rig) { r.engine.trainer.fails = true }, enough, []int{1, 2, 2}},
		"it takes long":   {func(r *rig) { r.took = enough }, enough, []int{0, 0, 0}},
		"no time":         {func(*rig) {}, 0, []int{0, 0, 0}},
		"shares by speed": {func(r *rig) { r.state.Config.SharesBySpeed = true }, enough, []int{0, 0, 0}},
		"late before":     {func(r *rig) { r.state.Epoch.Clients[0].Lateness = coordinator.Late }, enough, []int{0, 0, 0}},
		"voted":           {func(r *rig) { r.state.Epoch.Clients[0].Voted = 3 }, enough, []int{0, 0, 0}},
		"trainer is busy": {func(r *rig) { r.engine.busy = true }, enough, []int{0, 0, 0}},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, opposite)
			r.spare, r.engine.busy = false, true
			s := r.onTrial(newest-1, newest-2)
			r.run(5 * time.Second)
			r.engine.busy = false
			s.Progress.Step += coordinator.TrialRounds
			s.StateStart += coordinator.TrialTime
			c.prepare(r)
			for i, want := range c.want {
				for range 3 {
					r.Preempt(c.leeway)
					r.clock.finish()
				}
				if r.engine.urgent != want {
					t.Errorf("round %d: %d urgent recomputations, want %d", i, r.engine.urgent, want)
				}
				s.Progress.Step++
			}
		})
	}
}

// TestOwnResultsGoOn checks that the next result is made once the outcome of the newest result is
// known. If it can no longer become known, the momentum is reset, and the run learns of the reset.
func TestOwnResultsGoOn(t *testing.T) {
	r := newRig(t, nil)
	payload, err := r.payloads.Get(r.past.rounds[newest-2].Results[0].Commitment)
	if err == nil {
		err = r.Chain().Made(payload, nil)
	}
	if err != nil {
		t.Fatal(err)
	}
	if !r.MayTrain(newest - 1) {
		t.Error("the same step cannot be trained again")
	}
	r.round()
	r.tallies[newest-1] = r.tallies[newest]
	if r.MayTrain(newest) || len(r.submitted) > 0 {
		t.Error("the trainer continues from a result of an unfinished round")
	}
	delete(r.tallies, newest-1)
	if r.MayTrain(newest+1) || r.engine.resets != 1 {
		t.Errorf("the trainer continues from an unknown result; %d resets", r.engine.resets)
	}
	if r.MayTrain(newest+1) || r.submitted["withdraw"] == nil {
		t.Errorf("the run does not know of the reset of the momentum: %+v", r.submitted)
	}
	s := r.state.Clone()
	s.Epoch.Clients[0].OptimizerSince = newest + 1
	r.state = &s
	if !r.MayTrain(newest + 1) {
		t.Error("no training after the reset")
	}
}

// TestNewMomentumAfterASignedResult checks a client that reset its momentum in a round in which an
// earlier process may have signed a result. It leaves the run for a moment, even if its optimizer
// counts from that round.
func TestNewMomentumAfterASignedResult(t *testing.T) {
	for name, c := range map[string]struct {
		signed, since uint32
		may           bool
	}{
		"nothing signed":            {newest - 1, newest, true},
		"signed in the round":       {newest, newest, false},
		"signed, and took its seat": {newest, newest + 1, true},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, nil)
			r.engine.signed = c.signed
			r.ForgetMomentum(newest)
			r.state.Progress.Step++
			r.Observe()
			r.state.Epoch.Clients[0].OptimizerSince = c.since
			_, left := r.submitted["withdraw"]
			if may := r.MayTrain(newest + 1); left || may != c.may {
				t.Errorf("may train: %t", may)
			}
			if _, left := r.submitted["withdraw"]; left == c.may {
				t.Errorf("leaves: %t", left)
			}
		})
	}
}

// silenceTrial puts the newest result of r.other on trial for silence, with this client as the only
// juror.
func (r *rig) silenceTrial() {
	s := r.state.Clone()
	s.Trials = append(s.Trials, coordinator.Trial{Accused: r.other, Step: newest - 1, Fault: coordinator.FaultSilent, Since: newest, Jurors: 1})
	s.Epoch.Clients[0].Juror = 1
	s.Epoch.Rounds = []coordinator.Round{{Step: newest + 1, Seed: 12345}}
	r.state = &s
	r.Observe()
}

// TestJuryAsksForFewParts checks that a juror of a trial for silence requests a few parts, which
// the round's seed draws, and votes by them. It finds the accused silent if no member sends a part
// for half a minute and four rounds.
func TestJuryAsksForFewParts(t *testing.T) {
	for name, c := range map[string]struct {
		distort func([]float32) []float32
		silent  bool
		want    []bool // the votes; none if the juror cannot know
	}{
		"honest":         {nil, false, []bool{false}},
		"a cheat":        {opposite, false, []bool{true}},
		"opens nothing":  {nil, true, []bool{true}},
		"a silent cheat": {opposite, true, []bool{true}},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, c.distort)
			r.spare, r.silent = false, c.silent
			r.silenceTrial()
			vote := func() (guilty, voted bool) {
				v, voted := r.submitted["vote on "+identity.ID(r.other).String()].(coordinator.Vote)
				return v.Guilty, voted
			}
			r.run(25 * time.Second)
			if _, voted := vote(); voted == c.silent {
				t.Fatalf("after 25 s: voted %v", voted)
			}
			if !c.silent && r.asked > 2*mostChallenged {
				t.Errorf("%d requests for %d parts", r.asked, mostChallenged)
			}
			for range 5 {
				r.round()
			}
			r.run(15 * time.Second)
			if guilty, voted := vote(); !voted || guilty != c.want[0] {
				t.Errorf("voted %v, guilty %v; want %v", voted, guilty, c.want)
			}
		})
	}
}

// TestPartsAreKept checks that an auditor that has most parts of an opening requests only the other
// parts. It accuses the trainer of silence only if no further part arrives.
func TestPartsAreKept(t *testing.T) {
	r := newRig(t, nil)
	r.withheld = 1<<5 | 1<<9
	r.run(5 * time.Second)
	var key resultID
	for key = range r.reviews {
	}
	q := r.reviews[key]
	if q == nil || q.gathered.missing() != r.withheld {
		t.Fatalf("missing parts: %+v", q)
	}
	if parts := r.openings.parts(key); parts[4] == nil || parts[5] != nil {
		t.Error("the parts that arrived are not served")
	}
	for range 7 {
		r.round()
		r.run(7 * time.Second)
	}
	if len(r.submitted) > 0 {
		t.Fatalf("accused after %v", 54*time.Second)
	}
	r.withheld = 0
	r.run(3 * time.Second)
	if len(r.reported) == 0 || r.reported[0].Outcome != "passed" {
		t.Errorf("notified %+v", r.reported)
	}
}

// TestOnlyAskingCounts checks that time in which the auditor does not send requests, because its
// trainer or its machine is busy, does not count as silence of the trainer.
func TestOnlyAskingCounts(t *testing.T) {
	for name, pass := range map[string]func(r *rig){
		"another phase": func(r *rig) { // the auditor examines the parts that it has, and waits for its trainer
			r.spare = false
			r.run(3 * time.Minute)
			r.spare = true
		},
		"a machine that stands still": func(r *rig) {
			r.run(30 * time.Second)
			r.clock.now = r.clock.now.Add(3 * time.Minute)
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, nil)
			r.withheld = 1 << 5
			r.run(5 * time.Second)
			pass(r)
			for range 8 {
				r.round()
			}
			r.run(20 * time.Second)
			if len(r.submitted) > 0 {
				t.Fatalf("accused: %+v", r.submitted)
			}
			r.withheld = 0
			r.run(5 * time.Second)
			if len(r.reported) == 0 || r.reported[0].Outcome != "passed" {
				t.Errorf("notified %+v", r.reported)
			}
		})
	}
}
