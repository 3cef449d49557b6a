package auditor

import (
	"slices"
	"testing"
	"time"

	"github.com/psyche-go/psyche/record/event"
)

// review makes the auditor review the other member's result of a step, and no results that it draws.
func (r *rig) review(step uint32) resultID {
	r.thrown = newest + 100
	key := resultID{Trainer: r.other, Step: step}
	r.reviews[key] = &review{auditCase: auditCase{resultID: key}}
	return key
}

// takes makes each recomputation, and each piece of an interrupted one, take some time.
func (r *rig) takes(d time.Duration) {
	r.engine.trainer.computing = func() { r.clock.now = r.clock.now.Add(d) }
}

// runPieces runs until the trainer has begun a number of recomputations or pieces.
func (r *rig) runPieces(t *testing.T, count int) {
	t.Helper()
	for range 100 {
		if r.engine.trainer.recomputations >= count {
			return
		}
		r.run(100 * time.Millisecond)
	}
	t.Fatalf("%d recomputations, want %d", r.engine.trainer.recomputations, count)
}

// TestInterruptedRecomputationsGoOnFirst checks that an interrupted recomputation precedes newer results, and that
// its time is the time of all its pieces.
func TestInterruptedRecomputationsGoOnFirst(t *testing.T) {
	r := newRig(t, nil)
	r.engine.interrupts = 3
	r.takes(time.Second)
	r.review(3)
	r.runPieces(t, 2)
	r.review(5)
	r.run(20 * time.Second)
	if want := []uint32{3, 3, 3, 3, 5}; !slices.Equal(r.engine.trainer.recomputed, want) {
		t.Errorf("recomputed %v, want %v", r.engine.trainer.recomputed, want)
	}
	if len(r.reported) != 2 || r.reported[0].Step != 3 || r.reported[0].Seconds != 4 || r.reported[1].Seconds != 1 || len(r.submitted) > 0 {
		t.Errorf("%+v, submitted %v", r.reported, r.submitted)
	}
}

// TestSecondRecomputationsWait checks that no other review begins in the short pause after an interruption, because
// the trainer keeps the progress of one recomputation. A trial begins, and the review continues after the trial.
func TestSecondRecomputationsWait(t *testing.T) {
	for _, trial := range []bool{false, true} {
		r := newRig(t, nil)
		r.spare = false
		r.review(3)
		r.review(5)
		r.run(5 * time.Second) // only the recomputations remain
		r.spare, r.engine.interrupts = true, 3
		r.runPieces(t, 1)
		if trial {
			r.engine.interrupts = 60 // so that the juror gets the opening meanwhile
			r.onTrial(4)
		}
		r.run(20 * time.Second)
		got := slices.Compact(slices.Clone(r.engine.trainer.recomputed))
		want := []uint32{5, 3}
		if trial {
			want = []uint32{5, 4, 5, 3}
		}
		if !slices.Equal(got, want) {
			t.Errorf("recomputed %v, want the order %v", r.engine.trainer.recomputed, want)
		}
		if r.unfinished != nil || len(r.reported) < 2 || len(r.engine.trainer.abandoned) > 0 {
			t.Errorf("unfinished: %v; %+v; abandoned %v", r.unfinished != nil, r.reported, r.engine.trainer.abandoned)
		}
	}
}

// TestOnlyJurorsKeepProgress checks that the trainer drops the progress of a trial that this member does not judge.
func TestOnlyJurorsKeepProgress(t *testing.T) {
	r := newRig(t, nil)
	r.thrown, r.engine.interrupts = newest+100, 1000
	s := r.onTrial(4)
	r.runPieces(t, 2)
	s.Epoch.Clients[0].Juror = 0
	r.run(time.Second)
	if want := []uint32{4}; !slices.Equal(r.engine.trainer.abandoned, want) || r.unfinished != nil {
		t.Errorf("abandoned %v, want %v", r.engine.trainer.abandoned, want)
	}
}

// TestUnfinishedRecomputationsAreAbandoned checks that the trainer drops the progress of an interrupted
// recomputation after the auditor forgot the result, or after the trial ended.
func TestUnfinishedRecomputationsAreAbandoned(t *testing.T) {
	r := newRig(t, nil)
	r.engine.interrupts = 1000
	key := r.review(3)
	r.runPieces(t, 2)
	if r.unfinished == nil || len(r.engine.trainer.abandoned) > 0 {
		t.Fatalf("abandoned %v too early", r.engine.trainer.abandoned)
	}
	r.forget(r.reviews[key])
	r.run(time.Second)
	before := r.state
	r.state = r.onTrial(4)
	r.Observe()
	r.runPieces(t, r.engine.trainer.recomputations+2)
	r.state = before
	r.Observe()
	r.run(time.Second)
	if want := []uint32{3, 4}; !slices.Equal(r.engine.trainer.abandoned, want) {
		t.Errorf("abandoned %v, want %v", r.engine.trainer.abandoned, want)
	}
}

// TestSlowAuditorsAccuseNobody checks that an auditor whose recomputation takes many rounds does not count this time
// as silence of the trainer. The auditor judges by most parts, needs ten rounds and a minute and a half for that, and
// then asks for the last part again for the full time.
func TestSlowAuditorsAccuseNobody(t *testing.T) {
	r := newRig(t, nil)
	r.withheld, r.engine.interrupts = 1, 10
	r.takes(9 * time.Second)
	key := r.review(5)
	for range 4 {
		r.run(11 * time.Second)
		r.round()
	}
	for r.engine.interrupts > 0 {
		r.run(200 * time.Millisecond)
		r.round()
	}
	r.run(9 * time.Second) // it passes
	r.takes(0)
	for range 5 {
		r.run(11 * time.Second)
		r.round()
	}
	if len(r.submitted) > 0 || len(r.reported) > 0 || r.reviews[key] == nil || !r.reviews[key].judgedEarly {
		t.Fatalf("%v, %+v, recomputed %v", r.submitted, r.reported, r.engine.trainer.recomputed)
	}
	r.withheld = 0
	r.run(2 * time.Second)
	if i := slices.IndexFunc(r.reported, func(a event.Audit) bool { return a.Step == key.Step }); i < 0 || r.reported[i].Outcome != string(passed) || len(r.submitted) > 0 {
		t.Errorf("%v, %+v", r.submitted, r.reported)
	}
}
