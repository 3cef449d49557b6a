package client

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/node/clienttest"
)

// sharesConfig is the configuration of one epoch with shares by speed.
func sharesConfig(members uint16, rounds, batch uint32) coordinator.Config {
	config := clienttest.Config(members)
	config.SharesBySpeed, config.RoundsPerEpoch, config.TotalSteps = true, rounds, rounds
	config.GlobalBatchSizeStart, config.GlobalBatchSizeEnd = batch, batch
	config.MaxRoundTrainTime = 600_000
	return config
}

// sharesRound is the host's view of one round.
type sharesRound struct {
	opened  time.Time
	sizes   map[identity.ID]int // sequences of each member
	lost    map[identity.ID]bool
	excused map[identity.ID]bool
	late    map[identity.ID]bool
	gone    map[identity.ID]bool
}

// of returns the shares of members.
func (r *sharesRound) of(members []*member) (sizes []int) {
	for _, m := range members {
		sizes = append(sizes, r.sizes[m.id])
	}
	return sizes
}

// launchAll starts clients whose trainings take a time for each sequence.
func (w *world) launchAll(each func(i int) time.Duration, count int) (members []*member) {
	for i := range count {
		members = append(members, w.launch(i, func(o *options) {
			o.trainer.Duration, o.trainer.Each = 0, func() time.Duration { return each(i) }
		}))
	}
	return members
}

// watchRounds observes the rounds of a run until its end, and returns them by step. time.Now is the
// end of the last one.
func (w *world) watchRounds() (rounds []sharesRound, end time.Time) {
	w.until("the end", func(s *coordinator.State) bool {
		if round := s.CurrentRound(); round != nil && int(round.Step) > len(rounds) {
			this := sharesRound{
				opened: time.Now(), sizes: map[identity.ID]int{}, lost: map[identity.ID]bool{}, excused: map[identity.ID]bool{},
				late: map[identity.ID]bool{}, gone: map[identity.ID]bool{},
			}
			for _, a := range round.Assignments(s.Config) {
				this.sizes[identity.ID(round.Members[a.Member])] = int(a.Batch.Len())
			}
			rounds = append(rounds, this)
		}
		for i := range rounds {
			w.lookBack(s, uint32(i+1), &rounds[i])
		}
		if len(rounds) > 0 && end.IsZero() && s.RunState != coordinator.RoundTrain && s.RunState != coordinator.RoundWitness {
			end = time.Now()
		}
		return s.RunState == coordinator.Finished
	})
	return rounds, end
}

// lookBack records what became of a round.
func (w *world) lookBack(s *coordinator.State, step uint32, to *sharesRound) {
	round := s.RoundOfStep(step)
	if round == nil || step+1 != s.Progress.Step {
		return
	}
	for id := range to.sizes {
		to.lost[id] = round.Score(coordinator.ClientID(id)) < int(round.WitnessesNeeded)
		member, _ := round.MemberIndex(coordinator.ClientID(id))
		to.excused[id] = round.Excused.Has(member)
		if c, ok := s.Member(coordinator.ClientID(id)); ok && c.Lateness != coordinator.OnTime {
			to.late[id] = true
		} else if !ok || c.State != coordinator.Healthy {
			to.gone[id] = true
		}
	}
}

// utilisation returns the speed of the run between two times as a part of the sum of the members' speeds.
func utilisation(rounds []sharesRound, end time.Time, eachOf []time.Duration) float64 {
	counted, speed := 0, 0.0
	for _, r := range rounds {
		for id, size := range r.sizes {
			if !r.lost[id] {
				counted += size
			}
		}
	}
	for _, each := range eachOf {
		speed += 1 / each.Seconds()
	}
	return float64(counted) / end.Sub(rounds[0].opened).Seconds() / speed
}

// TestSharesFollowSpeeds checks that members with speeds of 1:4:16 get shares in this order from the
// second round on, and that the run loses results of the first round at most.
func TestSharesFollowSpeeds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, sharesConfig(3, 30, 252))
		each := []time.Duration{160 * time.Millisecond, 40 * time.Millisecond, 10 * time.Millisecond}
		members := w.launchAll(func(i int) time.Duration { return each[i] }, len(each))
		rounds, end := w.watchRounds()
		finishEqual(w, members...)
		for i, r := range rounds {
			sizes := r.of(members)
			t.Log(i+1, r.opened.Sub(rounds[0].opened), sizes)
			if i > 0 && (3*sizes[0] > sizes[1] || 3*sizes[1] > sizes[2]) {
				t.Errorf("round %d: shares %v", i+1, sizes)
			}
			for id, lost := range r.lost {
				if i > 0 && lost || r.gone[id] {
					t.Errorf("round %d: the result of %s is lost (%t), or the member has left", i+1, id.Short(), lost)
				}
			}
		}
		steady := utilisation(rounds[9:], end, each)
		t.Logf("utilisation %.3f, from the tenth round on %.3f", utilisation(rounds, end, each), steady)
		if steady < 0.85 {
			t.Errorf("utilisation %.3f from the tenth round on", steady)
		}
	})
}

// TestMemberSlowsDown checks a member that trains at an eighth of its speed for ten rounds: it loses at most two
// results, is never late, and has its share back ten rounds later.
func TestMemberSlowsDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const first, last = 10, 19 // rounds in which it is slow
		w := newWorld(t, sharesConfig(4, 40, 256))
		each := 100 * time.Millisecond
		var slow atomic.Bool
		members := w.launchAll(func(i int) time.Duration {
			if i == 0 && slow.Load() {
				return 8 * each
			}
			return each
		}, 4)
		w.tasks.Go(func() {
			w.until("the slow rounds", func(s *coordinator.State) bool { return s.Progress.Step >= first })
			slow.Store(true)
			w.until("their end", func(s *coordinator.State) bool { return s.Progress.Step > last })
			slow.Store(false)
		})
		rounds, _ := w.watchRounds()
		finishEqual(w, members...)
		lost, back := 0, 0
		for i, r := range rounds {
			t.Log(i+1, r.opened.Sub(rounds[0].opened), r.of(members), r.lost[members[0].id], r.excused[members[0].id])
			if len(r.late)+len(r.gone) > 0 {
				t.Errorf("round %d: late %v, gone %v", i+1, r.late, r.gone)
			}
			if r.lost[members[0].id] {
				lost++
			}
			if step := i + 1; step > last && back == 0 && r.of(members)[0] == 64 {
				back = step - last
			}
		}
		t.Logf("lost %d results; the share is back after %d rounds", lost, back)
		if lost > 2 || back == 0 || back > 10 {
			t.Error("want at most 2 results and 10 rounds")
		}
	})
}

// TestFirstAuditorsGetShares has six equal members. Two of them audit the first round and train nothing in it. They
// must get equal shares nevertheless: with the smallest share, a member may have no sequence and cannot measure
// its speed.
func TestFirstAuditorsGetShares(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		config := sharesConfig(6, 12, 96)
		config.VerificationPercent = 34
		w := newWorld(t, config)
		var members []*member
		for i := range 6 {
			members = append(members, w.launch(i, func(o *options) {
				audited(nil)(o)
				o.trainer.Duration, o.trainer.Each = 0, func() time.Duration { return 50 * time.Millisecond }
			}))
		}
		rounds, _ := w.watchRounds()
		finishEqual(w, members...)
		for i, r := range rounds {
			trainers := 0
			for _, size := range r.of(members) {
				if size >= 16 {
					trainers++
				}
			}
			if trainers != 4 {
				t.Errorf("round %d: shares %v, want four of about 24", i+1, r.of(members))
			}
		}
	})
}
