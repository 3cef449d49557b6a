package client

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/node/clienttest"
	"github.com/psyche-go/psyche/node/env"
)

// epochs returns the configuration of a run with long epochs, so that the loss of an epoch is the
// loss of many rounds.
func epochs(clients uint16) coordinator.Config {
	c := clienttest.Config(clients)
	c.RoundsPerEpoch, c.TotalSteps = 12, 24
	return c
}

// reach waits for a phase of a step, or a later phase.
func (w *world) reach(step uint32, phase coordinator.RunState) {
	w.t.Helper()
	w.until(fmt.Sprintf("%v of step %d", phase, step), func(s *coordinator.State) bool {
		return s.Progress.Step > step || s.Progress.Step == step && (s.RunState == phase || s.RunState > phase)
	})
}

// moment is a time in a run.
type moment struct {
	step  uint32
	phase coordinator.RunState
	after time.Duration
}

// leaves lists the moments at which clients leave.
var leaves = map[string]moment{
	"training":            {5, coordinator.RoundTrain, 0},
	"training, a while":   {5, coordinator.RoundTrain, 450 * time.Millisecond},
	"witnessing":          {5, coordinator.RoundWitness, 0},
	"the first round":     {1, coordinator.RoundTrain, 100 * time.Millisecond},
	"the last round":      {12, coordinator.RoundTrain, 300 * time.Millisecond},
	"cooldown":            {13, coordinator.Cooldown, 0},
	"before the next one": {13, coordinator.Warmup, 0},
}

// hesitant is a backend whose client takes a second to report an epoch's last model, so that a
// client can leave in Cooldown.
type hesitant struct{ env.Backend }

func (h hesitant) Submit(ctx context.Context, a coordinator.Action) error {
	if report, ok := a.(coordinator.ReportCheckpoint); ok && report.Step == 13 {
		time.Sleep(time.Second)
	}
	return h.Backend.Submit(ctx, a)
}

// promise contains the interval of intermediate checkpoints, and whether results are audited.
type promise struct {
	every  uint32
	audits bool
}

var promises = map[string]promise{
	"each round": {1, false}, "every third": {3, false}, "every third, audited": {3, true},
}

// world returns a run of long epochs.
func (p promise) world(t *testing.T, config coordinator.Config) *world {
	if p.audits {
		config.VerificationPercent, config.EjectionEpochs = 34, 1
	}
	return newWorld(t, config, fmt.Appendf(nil, `{"CommitEveryRounds": %d}`, p.every)...)
}

// change makes the client's trainer audited if results are audited.
func (p promise) change(o *options) {
	if p.audits {
		o.audited = clienttest.Audit(o.trainer)
	}
	o.Backend = hesitant{o.Backend}
}

// lost returns the number of finished steps that are missing in the model. The last step does not
// count if its round had no quorum, because nothing of it counted.
func lost(s *coordinator.State) uint32 {
	model, last := s.Model.Checkpoint.Step, s.Progress.Step-1
	if r := s.RoundOfStep(last); r != nil && !r.HasQuorum() {
		last--
	}
	if model >= last {
		return 0
	}
	return last - model
}

// TestOneOfTwoLeaves checks that one of two members can leave gracefully at any moment. No counted
// result is lost, and the run continues from there when a further client joins.
func TestOneOfTwoLeaves(t *testing.T) {
	for name, leave := range leaves {
		for often, p := range promises {
			for _, lag := range []uint32{1, 2} {
				if p.audits && lag == 2 {
					continue
				}
				t.Run(fmt.Sprintf("%s, %s, lag %d", name, often, lag), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) { oneOfTwoLeaves(t, leave, p, lag) })
				})
			}
		}
	}
}

func oneOfTwoLeaves(t *testing.T, leave moment, p promise, lag uint32) {
	config := epochs(2)
	config.MinClients = 2
	w := p.world(t, config)
	lagging := func(o *options) { o.trainer.Lag = lag; p.change(o) }
	a, b := w.launch(0, lagging), w.launch(1, lagging)
	w.reach(leave.step, leave.phase)
	time.Sleep(leave.after)
	left := time.Now()
	a.cancel()
	a.wait()
	if took := time.Since(left); !errors.Is(a.err, context.Canceled) || took > defaultLeaveTimeout+defaultWithdrawTimeout {
		t.Errorf("left after %v with %v", took, a.err)
	}
	w.until("the epoch is over", func(s *coordinator.State) bool { return s.RunState == coordinator.WaitingForMembers })
	s := w.host.State()
	t.Logf("%d rounds lost: the model is of step %d, the next one is %d", lost(&s), s.Model.Checkpoint.Step, s.Progress.Step)
	if n := lost(&s); n != 0 {
		t.Errorf("%d rounds are lost: the model is of step %d, the next one is %d", n, s.Model.Checkpoint.Step, s.Progress.Step)
	}
	c := w.launch(2, lagging)
	finishEqual(w, b, c)
	checkNobodyAccused(t, w, []*member{a, b, c})
	if s := w.host.State(); len(s.RollbackGaps) > 0 && s.RollbackGaps[0].Last-s.RollbackGaps[0].First > 0 {
		t.Errorf("rollback gaps: %v", s.RollbackGaps)
	}
}

// TestLeaverIsAnswered checks a member, one of four, that leaves between two intermediate
// checkpoints. The other members are killed two rounds later. In between they have reported the
// same model as the leaving member, so no work of the four is lost.
func TestLeaverIsAnswered(t *testing.T) {
	for _, lag := range []uint32{1, 2} {
		t.Run(fmt.Sprint("lag ", lag), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := promise{every: 6}
				w := p.world(t, epochs(4))
				saving := func(i int) func(o *options) {
					return func(o *options) {
						o.trainer.Lag = lag
						o.CheckpointDir = filepath.Join(w.dir, fmt.Sprint("disk", i))
						p.change(o)
					}
				}
				var members []*member
				for i := range 4 {
					members = append(members, w.launch(i, saving(i)))
				}
				w.reach(9, coordinator.RoundTrain)
				members[0].cancel()
				members[0].wait()
				s := w.host.State()
				left := slices.Concat(s.Epoch.Clients, s.Epoch.Exited)
				said := left[slices.IndexFunc(left, func(c coordinator.Client) bool { return c.ID == coordinator.ClientID(members[0].id) })].Report
				if said.Step <= 6 {
					t.Fatalf("the leaving client reported %+v", said)
				}
				w.reach(s.Progress.Step+2, coordinator.RoundTrain)
				for _, m := range members[1:] {
					m.crash()
				}
				w.until("the epoch is over", func(s *coordinator.State) bool { return s.RunState == coordinator.WaitingForMembers })
				s = w.host.State()
				t.Logf("left after step %d; %d rounds lost: the model is of step %d, the next one is %d", said.Step, lost(&s), s.Model.Checkpoint.Step, s.Progress.Step)
				if s.Model.Checkpoint.Step < said.Step {
					t.Errorf("the model has step %d, the leaving client reported step %d", s.Model.Checkpoint.Step, said.Step)
				}
				for i := range members {
					members[i] = w.launch(i, saving(i))
				}
				finishEqual(w, members...)
			})
		})
	}
}

// TestAllLeave checks that all clients can leave at the same moment, as with Ctrl-C in a testnet,
// and come back with their disks. No counted result is lost.
func TestAllLeave(t *testing.T) {
	for name, leave := range leaves {
		for often, p := range promises {
			if p.audits {
				continue
			}
			t.Run(name+", "+often, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { allLeave(t, leave, p) })
			})
		}
	}
}

func allLeave(t *testing.T, leave moment, p promise) {
	w := p.world(t, epochs(4))
	saving := func(i int) func(o *options) {
		return func(o *options) {
			o.CheckpointDir = filepath.Join(w.dir, fmt.Sprint("disk", i))
			p.change(o)
		}
	}
	var members []*member
	for i := range 4 {
		members = append(members, w.launch(i, saving(i)))
	}
	w.reach(leave.step, leave.phase)
	time.Sleep(leave.after)
	for _, m := range members {
		m.cancel()
	}
	for _, m := range members {
		m.wait()
	}
	w.until("nobody is left", func(s *coordinator.State) bool { return s.RunState == coordinator.WaitingForMembers })
	s := w.host.State()
	t.Logf("%d rounds lost: the model is of step %d, the next one is %d", lost(&s), s.Model.Checkpoint.Step, s.Progress.Step)
	if n := lost(&s); n != 0 {
		t.Errorf("%d rounds are lost: the model is of step %d, the next one is %d", n, s.Model.Checkpoint.Step, s.Progress.Step)
	}
	recorded := s.Model.Checkpoint.Step
	for i := range members {
		members[i] = w.launch(i, saving(i))
	}
	w.until("the next epoch", func(s *coordinator.State) bool { return s.RunState == coordinator.RoundTrain })
	if got := w.host.State(); got.Model.Checkpoint.Step != recorded {
		t.Errorf("the run continued from the model of step %d, recorded was %d", got.Model.Checkpoint.Step, recorded)
	}
	finishEqual(w, members...)
	checkNobodyAccused(t, w, members)
}

// TestLeaverWithALargeModel checks a leaving client whose model takes longer to copy than leaving
// usually takes. It reports the delay and the model that it holds. A client that is not done within
// a minute leaves anyway.
func TestLeaverWithALargeModel(t *testing.T) {
	for copying, says := range map[time.Duration]bool{8 * time.Second: true, 2 * time.Minute: false} {
		synctest.Test(t, func(t *testing.T) {
			config := epochs(3)
			config.MaxRoundTrainTime = 300_000
			w := newWorld(t, config, []byte(`{"CommitEveryRounds": 50}`)...)
			var log journal
			slowly := func(o *options) { o.trainer.Duration = 30 * time.Second } // large models train slowly
			leaver := w.launch(0, func(o *options) {
				slowly(o)
				o.trainer.Copying = copying
				log.keeps(o)
			})
			w.launch(1, slowly)
			w.launch(2, slowly)
			w.reach(5, coordinator.RoundTrain)
			left := time.Now()
			leaver.cancel()
			w.until("it has left", func(s *coordinator.State) bool {
				m, ok := s.Member(coordinator.ClientID(leaver.id))
				return !ok || m.State == coordinator.Withdrawn
			})
			took := time.Since(left)
			s := w.host.State()
			known := slices.Concat(s.Epoch.Clients, s.Epoch.Exited)
			said := known[slices.IndexFunc(known, func(c coordinator.Client) bool { return c.ID == coordinator.ClientID(leaver.id) })].Report
			if said.Step < 4 == says || took > time.Minute+2*time.Second {
				t.Errorf("copies take %v: it left after %v, and reported step %d", copying, took, said.Step)
			}
			if len(log.lines("level=INFO", "bytes=", "for=")) == 0 {
				t.Error("the client does not report that it needs more time")
			}
			leaver.wait()
			time.Sleep(copying) // until the copy that the client did not wait for ends
		})
	}
}
