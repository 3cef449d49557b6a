package client

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/node/clienttest"
	"github.com/psyche-go/psyche/node/env"
	"github.com/psyche-go/psyche/node/modelsync"
	"github.com/psyche-go/psyche/record/event"
)

// everyRound makes members take an intermediate checkpoint after every round.
const everyRound = `{"CommitEveryRounds": 1}`

// needed is a test case: two members are killed at the start of a round, as soon as the model after the
// previous round is an intermediate checkpoint, and are started again. Without them the round has no
// quorum. The checkpoint from which they begin is newer than the newest replica that a quorum signed.
type needed struct {
	lag, round uint32
	members    int
	audits     bool
	others     func(i int, o *options) // may be nil
	killed     func(s *coordinator.State) (first, second int)
}

// run returns the members, including the second lives of the killed members, when the round is
// over. It also returns the time since the kill.
func (n needed) run(t *testing.T) (w *world, members []*member, took time.Duration) {
	config := clienttest.Config(uint16(n.members))
	config.RoundsPerEpoch, config.TotalSteps = 10, 30
	if n.audits {
		config.VerificationPercent, config.EjectionEpochs = 34, 1
	}
	w = newWorld(t, config, []byte(everyRound)...)
	change := func(i int) func(o *options) {
		return func(o *options) {
			large(o)
			o.trainer.Lag, o.trainer.Duration = n.lag, time.Second
			if n.audits {
				audited(nil)(o)
			}
			if n.others != nil {
				n.others(i, o)
			}
			o.CheckpointDir = filepath.Join(w.dir, fmt.Sprint("saved ", i))
		}
	}
	for i := range n.members {
		members = append(members, w.launch(i, change(i)))
	}
	w.reach(n.round, coordinator.RoundTrain)
	w.until("its intermediate checkpoint", func(s *coordinator.State) bool {
		return s.Epoch.Commit.Step >= n.round-n.lag || s.Progress.Step > n.round
	})
	s := w.host.State()
	if s.Progress.Step != n.round {
		t.Fatalf("the intermediate checkpoint of step %d came in round %d", s.Epoch.Commit.Step, s.Progress.Step)
	}
	first, second := n.killed(&s)
	for _, i := range []int{first, second} { // the host waits for clients that lost their connections
		members[i].net.Close()
		members[i].backend.Cut()
	}
	members[first].wait()
	members[second].wait()
	begun := time.Now()
	members[first] = w.launch(first, change(first))
	time.Sleep(time.Second)
	members[second] = w.launch(second, change(second))
	w.until("the round is over", func(s *coordinator.State) bool { return s.Progress.Step > n.round })
	return w, members, time.Since(begun)
}

// counts checks that the round soon counts results, and that all members end with the same model.
func (n needed) counts(t *testing.T) {
	w, members, took := n.run(t)
	if took > 10*time.Second {
		t.Errorf("the round took %v after the kill", took)
	}
	finishEqual(w, members...)
	for _, m := range members {
		for _, e := range all[event.Applied](m) {
			if e.Step == n.round && e.Counted == 0 {
				t.Errorf("nothing of round %d counts", e.Step)
			}
		}
		if lost := all[event.Desynchronised](m); len(lost) > 0 {
			t.Errorf("desynchronised: %+v", lost)
		}
	}
}

// TestReturnIntoARoundThatNeedsThem checks that the returning members witness the round that has no
// quorum without them, and that its results count.
func TestReturnIntoARoundThatNeedsThem(t *testing.T) {
	lastTwo := func(*coordinator.State) (first, second int) { return 1, 2 }
	for name, test := range map[string]needed{
		"lag 1":                          {lag: 1, round: 15},
		"lag 1, an epoch's second round": {lag: 1, round: 12},
		"lag 1, the first epoch's":       {lag: 1, round: 2},
		"lag 1, the last round":          {lag: 1, round: 20},
		"lag 2":                          {lag: 2, round: 15},
		"lag 2, an epoch's third round":  {lag: 2, round: 13},
		"lag 2, the first epoch's":       {lag: 2, round: 3},
		"lag 2, the last round":          {lag: 2, round: 20},
		"one is Byzantine":               {lag: 1, round: 15, members: 5, others: falseReplicas(1)},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				test.members, test.killed = max(test.members, 3), lastTwo
				test.counts(t)
			})
		})
	}
}

// TestNeededWitnessStays checks a returning member whose results are audited. It leaves for a
// moment, because its momentum was reset. Before that it witnesses a round that would have no
// quorum without it. Two of four trainers were killed: the first leaves, because the other results
// are too few, and then the second is needed.
func TestNeededWitnessStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		test := needed{lag: 1, round: 15, members: 5, audits: true}
		test.killed = func(s *coordinator.State) (first, second int) {
			round := s.CurrentRound()
			trains := make(map[coordinator.ClientID]bool)
			for _, a := range round.Assignments(s.Config) {
				trains[round.Members[a.Member]] = true
			}
			for i := range test.members {
				if trains[coordinator.ClientID(clienttest.Key(i).ID())] {
					first, second = second, i
				}
			}
			return first, second
		}
		test.counts(t)
	})
}

// TestFalseReplicaHashIsNotAccepted checks that a wrong replica hash is not accepted if all members
// that could know it are Byzantine. The round then counts nothing, as without an answer, and the
// returning members continue with the others afterwards.
func TestFalseReplicaHashIsNotAccepted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		test := needed{lag: 1, round: 15, members: 3, others: falseReplicas(1)}
		test.killed = func(*coordinator.State) (first, second int) { return 1, 2 }
		w, members, _ := test.run(t)
		finishEqual(w, members...)
		for _, m := range members[1:] {
			for _, e := range all[event.WitnessSent](m) {
				if e.Step == test.round {
					t.Errorf("%s witnessed round %d", m.id.Short(), e.Step)
				}
			}
		}
	})
}

// slowParts is a network on which each part of a model takes a time.
type slowParts struct {
	env.Network
	takes time.Duration
}

func (n slowParts) Fetch(ctx context.Context, hash [32]byte, size uint64, holders []identity.ID) ([]byte, error) {
	if size == 8 { // a tensor of the test model
		time.Sleep(n.takes)
	}
	return n.Network.Fetch(ctx, hash, size, holders)
}

// TestSupersededIntermediateCheckpointStays checks a member on a slow link that fetches an
// intermediate checkpoint while other members take newer checkpoints. The checkpoint that is being
// fetched stays available, even if a different member requests a newer one.
func TestSupersededIntermediateCheckpointStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		config := clienttest.Config(5)
		config.RoundsPerEpoch, config.TotalSteps = 40, 40
		w := newWorld(t, config, []byte(everyRound)...)
		change := func(o *options) { large(o); o.trainer.Duration = time.Second }
		var members []*member
		for i := range 5 {
			members = append(members, w.launch(i, change))
		}
		w.reach(5, coordinator.RoundTrain)
		members[3].crash() // one after the other, so that each round has a quorum
		w.reach(7, coordinator.RoundTrain)
		members[4].crash()
		w.reach(9, coordinator.RoundTrain)
		var log journal
		members[4] = w.launch(4, func(o *options) {
			change(o)
			log.keeps(o)
			o.Network = slowParts{o.Network, 6 * time.Second}
		})
		w.reach(12, coordinator.RoundTrain)
		members[3] = w.launch(3, change)
		finishEqual(w, members...)
		failed := slices.DeleteFunc(log.lines("level=INFO", "again=", "err="), func(line string) bool {
			return strings.Contains(line, modelsync.ErrNoHolder.Error())
		})
		if len(failed) > 0 {
			t.Errorf("reported %q", failed)
		}
		if ready := all[event.Ready](members[4]); len(ready) == 0 || ready[0].Source != "peers" || ready[0].Step < 6 || ready[0].Step > 11 {
			t.Errorf("ready: %+v", ready)
		}
	})
}
