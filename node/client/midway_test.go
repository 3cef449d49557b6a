package client

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/node/clienttest"
	"github.com/psyche-go/psyche/node/env"
	"github.com/psyche-go/psyche/node/exchange"
	"github.com/psyche-go/psyche/record/event"
)

// everyThird makes members take an intermediate checkpoint after every third round.
const everyThird = `{"CommitEveryRounds": 3}`

// restart is a test case: one of three clients is killed in an epoch of 25 rounds and started
// again.
type restart struct {
	killed  uint32 // round in which the client is killed
	away    time.Duration
	lag     uint32
	disk    bool
	audits  bool
	filed   bool                            // the models of all members are on disks, not in memory
	damage  bool                            // its own copies are damaged while it is away
	slow    bool                            // rounds take a second
	signed  bool                            // it is killed after it has signed a result of the round, for which the others need longer
	network func(o *options)                // changes the network of its second life; may be nil
	others  func(i int, o *options)         // may be nil
	source  []string                        // permitted sources of its first model after the restart
	first   func(first, killed uint32) bool // whether the second life may apply this step first
}

// wrongReplica is a network whose client reports a wrong replica hash.
type wrongReplica struct{ env.Network }

func (n wrongReplica) Handle(protocol string, limit int, handle func(ctx context.Context, from identity.ID, request []byte) ([]byte, error)) {
	n.Network.Handle(protocol, limit, func(ctx context.Context, from identity.ID, request []byte) ([]byte, error) {
		answer, err := handle(ctx, from, request)
		if err == nil && protocol == exchange.ReplicaProtocol {
			answer = slices.Clone(answer)
			answer[0]++
		}
		return answer, err
	})
}

// falseReplicas makes the first clients report wrong replica hashes.
func falseReplicas(count int) func(i int, o *options) {
	return func(i int, o *options) {
		if i < count {
			o.Network = wrongReplica{o.Network}
		}
	}
}

// TestReturnFromAnIntermediateCheckpoint kills a client in the middle of an epoch with intermediate
// checkpoints and starts it again. It begins from the newest one and applies the results that
// counted after it, instead of the whole epoch. If that does not lead to the replica of a quorum,
// it begins from the epoch's first model. It trains in that epoch, and all models are equal.
func TestReturnFromAnIntermediateCheckpoint(t *testing.T) {
	ownCopy := []string{"disk", "results", "held"}
	fromIntermediate := func(first, killed uint32) bool { return first > killed-6 }
	fromStart := func(first, killed uint32) bool { return first%25 == 1 }
	for name, test := range map[string]restart{
		"its own":                      {killed: 35, lag: 1, disk: true, source: ownCopy, first: fromIntermediate},
		"its own, lag 2":               {killed: 35, lag: 2, disk: true, source: ownCopy, first: fromIntermediate},
		"its own, an older one":        {killed: 35, lag: 1, disk: true, away: 2 * time.Second, source: []string{"results"}, first: fromIntermediate},
		"its own, audited":             {killed: 35, lag: 1, disk: true, audits: true, source: ownCopy, first: fromIntermediate},
		"its own, audited, and signed": {killed: 35, lag: 1, disk: true, audits: true, signed: true, source: ownCopy, first: fromIntermediate},
		"a damaged one":                {killed: 35, lag: 1, disk: true, damage: true, source: []string{"results"}, first: fromStart},
		"a member's":                   {killed: 35, lag: 1, source: []string{"peers"}, first: fromIntermediate},
		"a member's, lag 2":            {killed: 35, lag: 2, away: time.Second, source: []string{"peers"}, first: fromIntermediate},
		"its own, from files":          {killed: 35, lag: 1, disk: true, filed: true, source: ownCopy, first: fromIntermediate},
		"audited, from files":          {killed: 35, lag: 1, disk: true, filed: true, audits: true, source: ownCopy, first: fromIntermediate},
		"an older one, from files":     {killed: 35, lag: 1, disk: true, filed: true, away: 2 * time.Second, source: []string{"results"}, first: fromIntermediate},
		"damaged, from files":          {killed: 35, lag: 1, disk: true, filed: true, damage: true, source: []string{"results"}, first: fromStart},
		"a member's, from its file":    {killed: 35, lag: 1, filed: true, source: []string{"peers"}, first: fromIntermediate},
		"in the first epoch":           {killed: 10, lag: 1, source: []string{"peers"}, first: fromIntermediate},
		"one is Byzantine":             {killed: 10, lag: 1, others: falseReplicas(1), source: []string{"peers"}, first: fromIntermediate},
		"all are Byzantine":            {killed: 5, lag: 1, slow: true, others: falseReplicas(2), source: []string{"initial"}, first: fromStart},
		"nobody hands it over": {killed: 5, lag: 1, slow: true, source: []string{"initial"}, first: fromStart,
			network: func(o *options) { o.Network = silentHolders{o.Network} }},
		"results have little room": {killed: 12, lag: 1, source: []string{"peers"}, first: fromIntermediate,
			others: func(_ int, o *options) { o.ResultMemory = 2500 }}, // bytes; enough for ten rounds
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { test.check(t) })
		})
	}
}

func (test restart) check(t *testing.T) {
	config := clienttest.Config(3)
	config.RoundsPerEpoch, config.TotalSteps = 25, 50
	if test.audits {
		config.VerificationPercent, config.EjectionEpochs = 34, 1
	}
	w := newWorld(t, config, []byte(everyThird)...)
	saved := filepath.Join(w.dir, "saved")
	change := func(i int) func(o *options) {
		return func(o *options) {
			large(o)
			o.trainer.Lag, o.trainer.Duration = test.lag, 300*time.Millisecond
			if test.slow {
				o.trainer.Duration = time.Second
			}
			if test.signed && i < 2 {
				o.trainer.Duration = 2 * time.Second
			}
			if test.audits {
				audited(nil)(o)
			}
			if test.others != nil {
				test.others(i, o)
			}
			if test.filed {
				filed(o)
				if i < 2 {
					o.CheckpointDir = filepath.Join(w.dir, fmt.Sprint("disk", i))
				}
			}
			if i == 2 && test.disk {
				o.CheckpointDir = saved
			}
		}
	}
	a, b, c := w.launch(0, change(0)), w.launch(1, change(1)), w.launch(2, change(2))
	w.reach(test.killed, coordinator.RoundTrain)
	time.Sleep(200 * time.Millisecond)
	if test.signed {
		time.Sleep(500 * time.Millisecond)
	}
	c.crash()
	time.Sleep(test.away)
	if test.damage {
		damage(t, saved)
	}
	var trace traced
	back := w.launch(2, func(o *options) {
		change(2)(o)
		trace.record(o)
		if test.network != nil {
			test.network(o)
		}
	})
	epoch := w.host.State().Progress.Epoch
	finishEqual(w, a, b, back)
	checkNobodyAccused(t, w, []*member{a, b, back})
	ready := all[event.Ready](back)
	if len(ready) == 0 || !slices.Contains(test.source, ready[0].Source) {
		t.Fatalf("ready: %+v, want from %v", ready, test.source)
	}
	if !test.first(slices.Min(trace.steps), test.killed) {
		t.Errorf("killed in round %d, its second life applies %v", test.killed, trace.steps)
	}
	if rejoined := all[event.Rejoined](back); len(rejoined) != 1 || rejoined[0].Epoch != epoch {
		t.Errorf("rejoined: %+v", rejoined)
	}
	own := 0
	for _, e := range all[event.Applied](back) {
		if e.OwnCounted && e.Step <= (test.killed/25+1)*25 {
			own++
		}
	}
	t.Logf("killed in round %d; began with step %d from %s, applied step %d first; %d own results counted in that epoch", test.killed, ready[0].Step, ready[0].Source, slices.Min(trace.steps), own)
	if own < 2 {
		t.Errorf("%d of its results counted in the epoch to which it returned", own)
	}
}

// damage changes the last byte of each intermediate checkpoint in a folder.
func damage(t *testing.T, dir string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*-commit*", "*.safetensors"))
	if err != nil || len(files) == 0 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		content[len(content)-1]++
		if err := os.WriteFile(file, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// lastRound kills one of three clients in the second-to-last round of an epoch, and starts it again
// in the last round. The client begins from the intermediate checkpoint of the step before the round
// in which it was killed.
func lastRound(t *testing.T, lag uint32, others func(i int, o *options)) (w *world, left []*member, back *member) {
	config := clienttest.Config(3)
	config.RoundsPerEpoch, config.TotalSteps = 11, 22
	w = newWorld(t, config, []byte(everyThird)...)
	slow := func(o *options) { o.trainer.Duration, o.trainer.Lag = 3*time.Second, lag }
	for i := range 2 {
		left = append(left, w.launch(i, func(o *options) {
			if slow(o); others != nil {
				others(i, o)
			}
		}))
	}
	c := w.launch(2, slow)
	w.reach(10, coordinator.RoundTrain)
	c.net.Close()
	c.backend.Cut() // the host waits for a client that lost its connection
	<-c.done
	w.reach(11, coordinator.RoundTrain)
	w.until("the intermediate checkpoint", func(s *coordinator.State) bool { return s.Epoch.Commit.Step == 9 || s.Progress.Step > 11 })
	return w, left, w.launch(2, slow)
}

// TestReturnInTheLastRound checks that a client can continue from an intermediate checkpoint in the last
// round. It gets the replica hash after the checkpoint, or an earlier hash that leads to it. It then has
// the replica of the running round, and the epoch's model.
func TestReturnInTheLastRound(t *testing.T) {
	for lag, first := range map[uint32]uint32{1: 10, 2: 9} {
		synctest.Test(t, func(t *testing.T) {
			w, others, back := lastRound(t, lag, nil)
			finishEqual(w, append(others, back)...)
			if applied := all[event.Applied](back); len(applied) == 0 || applied[0].Step != first {
				t.Errorf("lag %d: applied %+v", lag, applied)
			}
		})
	}
}

// TestReturnTooLate checks a client that cannot get the replica hash after its intermediate checkpoint,
// because the other members are Byzantine. The client cannot get the epoch's model, and the Cooldown does not
// wait for it.
func TestReturnTooLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, others, back := lastRound(t, 2, falseReplicas(2))
		w.reach(12, coordinator.Cooldown)
		begun := time.Now()
		w.until("the next epoch", func(s *coordinator.State) bool { return s.Progress.Epoch == 1 })
		if took := time.Since(begun); took > 2*time.Second {
			t.Errorf("the Cooldown took %v", took)
		}
		finishEqual(w, append(others, back)...)
	})
}
