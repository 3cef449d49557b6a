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
	"github.com/psyche-go/psyche/node/handover"
	"github.com/psyche-go/psyche/record/event"
)

// everyRound has members take a commit point after every round.
const everyRound = `{"CommitEveryRounds": 1}`

// needed is a run in which two members are killed as a round begins, when the model after the round before is a commit
// point, and started again: without them the round has no quorum, and what they begin from is newer than what any quorum
// has said so far.
type needed struct {
	lag, round uint32
	members    int
	audits     bool
	others     func(i int, o *options) // may be nil
	killed     func(s *coordinator.State) (first, second int)
}

// run returns the members, those that were killed in their second lives, when the round is over, and how long it lasted since.
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
	w.until("its commit point", func(s *coordinator.State) bool {
		return s.Epoch.Commit.Step >= n.round-n.lag || s.Progress.Step > n.round
	})
	s := w.host.State()
	if s.Progress.Step != n.round {
		t.Fatalf("the commit point of step %d came in round %d", s.Epoch.Commit.Step, s.Progress.Step)
	}
	first, second := n.killed(&s)
	for _, i := range []int{first, second} { // the host waits for who lost its connection
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

// counts wants the round to count results soon, and all members to end with the same model.
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

// TestReturnIntoARoundThatNeedsThem: they witness that round, and its results count.
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
		"one lies":                       {lag: 1, round: 15, members: 5, others: lies(1)},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				test.members, test.killed = max(test.members, 3), lastTwo
				test.counts(t)
			})
		})
	}
}

// TestNeededWitnessStays: a member whose results are audited leaves for a moment when it is back, since its momentum
// begins anew. It witnesses a round before that has no quorum otherwise. Two of four trainers were killed: the first
// leaves, as the results of the others are too few, and the second is needed then.
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

// TestLiarsNameNoReplica: where all that could tell the replica hash tell a wrong one, nobody takes it: the round counts
// nothing, as if nobody had been asked, and those that are back go on with the others afterwards.
func TestLiarsNameNoReplica(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		test := needed{lag: 1, round: 15, members: 3, others: lies(1)}
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

// slowParts is a network over which each part of a model takes a while.
type slowParts struct {
	env.Network
	takes time.Duration
}

func (n slowParts) Fetch(ctx context.Context, hash [32]byte, size uint64, holders []identity.ID) ([]byte, error) {
	if size == 8 { // a tensor of the tests' model
		time.Sleep(n.takes)
	}
	return n.Network.Fetch(ctx, hash, size, holders)
}

// TestSupersededCommitPointStays: a member on a slow line fetches a commit point that others supersede meanwhile, and that
// another member asks for a later one does not take it away.
func TestSupersededCommitPointStays(t *testing.T) {
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
		members[3].crash() // one after the other: each round keeps its quorum
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
			return strings.Contains(line, handover.ErrNoHolder.Error())
		})
		if len(failed) > 0 {
			t.Errorf("reported %q", failed)
		}
		if ready := all[event.Ready](members[4]); len(ready) == 0 || ready[0].Source != "peers" || ready[0].Step < 6 || ready[0].Step > 11 {
			t.Errorf("ready: %+v", ready)
		}
	})
}
