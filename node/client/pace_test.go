package client

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/psyche-go/psyche/core/assign"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/host/memory"
	"github.com/psyche-go/psyche/node/clienttest"
	"github.com/psyche-go/psyche/node/tally"
	"github.com/psyche-go/psyche/record/event"
)

// dawdler is a backend whose client never reports ready, and never reports a model.
type dawdler struct{ *memory.Client }

func (d dawdler) Submit(ctx context.Context, a coordinator.Action) error {
	switch a.(type) {
	case coordinator.Ready, coordinator.ReportCheckpoint:
		return errors.New("not now")
	}
	return d.Client.Submit(ctx, a)
}

// TestOneMemberDoesNotSetThePace checks a member, one of five, that delivers valid results just
// before the end of each round's time. In each epoch two rounds wait for it, for as long as
// witnesses wait.
func TestOneMemberDoesNotSetThePace(t *testing.T) {
	took := map[bool]time.Duration{}
	for _, slow := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			config := clienttest.Config(5)
			config.WarmupTime, config.CooldownTime = 1000, 1000 // it also delays Warmup and Cooldown
			w := newWorld(t, config)
			var members []*member
			begun := time.Now()
			for i := range 5 {
				members = append(members, w.launch(i, func(o *options) {
					o.trainer.Duration = time.Second
					if slow && i == 4 {
						o.trainer.Duration = 19 * time.Second
						o.Backend = dawdler{o.Backend.(*memory.Client)}
					}
				}))
			}
			w.until("the end", func(s *coordinator.State) bool { return s.RunState == coordinator.Finished })
			took[slow] = time.Since(begun)
			for _, m := range members {
				m.cancel()
				<-m.done
			}
		})
	}
	t.Logf("9 rounds in 3 epochs took %v, with one that dawdles %v", took[false], took[true])
	if most := took[false] + 3*(2*(leastWitnessWait+time.Second)+2*time.Second); took[true] > most {
		t.Errorf("with a slow member 9 rounds took %v, want at most %v", took[true], most)
	}
}

// TestMemberJustInTime checks a member whose results arrive just before the end of the witnesses'
// wait. It makes every round longer, and no health check names it.
func TestMemberJustInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const needs = time.Second + leastWitnessWait - 100*time.Millisecond
		config := clienttest.Config(5)
		config.WarmupTime, config.CooldownTime = 1000, 1000
		w := newWorld(t, config)
		var members []*member
		for i := range 5 {
			members = append(members, w.launch(i, func(o *options) {
				o.trainer.Duration = time.Second
				if i == 4 {
					o.trainer.Duration = needs
				}
			}))
		}
		for step := range uint32(9) {
			w.until("a round", func(s *coordinator.State) bool {
				return s.Progress.Step > step && s.RunState == coordinator.RoundTrain
			})
			begun := time.Now()
			w.until("the round's end", func(s *coordinator.State) bool {
				return s.Progress.Step > step+1 || s.RunState != coordinator.RoundTrain
			})
			if took := time.Since(begun); took < needs-50*time.Millisecond {
				t.Errorf("round %d took %v, want %v", step+1, took, needs)
			}
		}
		w.until("the end", func(s *coordinator.State) bool { return s.RunState == coordinator.Finished })
		for _, m := range members {
			if checks := all[event.HealthCheckSent](m); len(checks) != 0 {
				t.Errorf("a member reported late members: %+v", checks)
			}
			m.wait()
		}
	})
}

// TestWitnessWait checks when a witness has waited long enough.
func TestWitnessWait(t *testing.T) {
	for name, test := range map[string]struct {
		held   int           // of six
		needed time.Duration // until two thirds were held
		waited time.Duration // since then
		want   bool
	}{
		"everything is held":              {6, time.Second, 0, true},
		"two thirds are not":              {3, time.Second, time.Hour, false},
		"short rounds have the least":     {4, time.Second, leastWitnessWait, false},
		"it is over":                      {5, time.Second, leastWitnessWait + 1, true},
		"long rounds have a quarter more": {5, time.Minute, 15 * time.Second, false},
		"that is over as well":            {4, time.Minute, 15*time.Second + 1, true},
	} {
		t.Run(name, func(t *testing.T) {
			rs, begun := sixSlots(test.held), time.Unix(1, 0)
			rs.opened = begun
			everybody := func(coordinator.ClientID) bool { return true }
			most := begun.Add(test.needed)
			rs.complete(everybody, most)
			if got := rs.complete(everybody, most.Add(test.waited)); got != test.want {
				t.Errorf("complete: %v", got)
			}
		})
	}
}

// sixSlots returns a round of six batches with the given number of held results.
func sixSlots(held int) *roundState {
	votes := &tally.Tally{Began: true}
	for i := range 6 {
		s := tally.Slot{Owner: coordinator.ClientID(clienttest.Key(i).ID())}
		if i < held {
			s.Candidates = []*tally.Candidate{{State: tally.Held, InTime: true}}
		}
		votes.Slots = append(votes.Slots, s)
	}
	return &roundState{Tally: votes, pace: newPace(time.Unix(1, 0)), opened: time.Unix(1, 0)}
}

// TestPaceAhead checks the measured needs of members that train ahead.
func TestPaceAhead(t *testing.T) {
	start := time.Unix(1000, 0)
	at := func(seconds int) time.Time { return start.Add(time.Duration(seconds) * time.Second) }
	id := func(i int) coordinator.ClientID { return coordinator.ClientID(clienttest.Key(i).ID()) }
	before := sixSlots(0)
	before.pace = newPace(at(0))
	for i, came := range []int{20, 15, 0, 12} { // the third delivered as soon as the round began
		before.pace.arrived(id(i), at(came))
	}
	before.pace.need[id(2)] = 11 * time.Second
	before.Slots = before.Slots[:5] // the sixth had nothing to train, and the fifth did not deliver
	p := newPace(at(22))
	p.follow(&before.pace, before.Slots, sixSlots(0).Slots)
	for i, test := range []struct {
		came int // second of the arrival
		need time.Duration
	}{
		{32, 12 * time.Second}, // from 20 to 32
		{22, 7 * time.Second},  // at most from 15 to 22, and 15 in the round before
		{22, 11 * time.Second}, // it may have waited since 11
		{30, 18 * time.Second}, // from 12 to 30: not ready when the round began
		{34, 12 * time.Second}, // from 22 to 34: it starts with the round
		{30, 12 * time.Second}, // at most from 0 to 30; the typical need
	} {
		p.arrived(id(i), at(test.came))
		if got := p.need[id(i)]; got != test.need {
			t.Errorf("member %d needs %v, want %v", i, got, test.need)
		}
	}
	all := []coordinator.ClientID{id(0), id(1), id(2), id(3), id(4), id(5)}
	if got := p.typical(); got != 12*time.Second {
		t.Errorf("two thirds need %v", got)
	}
	rs := &roundState{opened: at(22), most: at(22), pace: p}
	if got := rs.deadline(all, 4); got != at(22+12+3) {
		t.Errorf("a witness waits until %v, want %v", got.Sub(start), at(37).Sub(start))
	}
}

// slowestRound plays twelve rounds in which trainings take 9 s, members train ahead, and results
// take a time to arrive. The first trainer of each round delivers just before witnesses stop
// waiting. It returns the longest round.
func slowestRound(arrival time.Duration, trainers func(round int) []int) (longest time.Duration) {
	const training = 9 * time.Second
	opened, free := time.Unix(1000, 0), make(map[int]time.Time)
	id := func(i int) coordinator.ClientID { return coordinator.ClientID(clienttest.Key(i).ID()) }
	var before *roundState
	for r := range 12 {
		rs := &roundState{Tally: &tally.Tally{}, opened: opened, pace: newPace(opened)}
		var all []coordinator.ClientID
		for _, i := range trainers(r) {
			rs.Slots, all = append(rs.Slots, tally.Slot{Owner: id(i)}), append(all, id(i))
		}
		begin := opened
		if before != nil {
			rs.pace.follow(&before.pace, before.Slots, rs.Slots)
			begin = before.opened
		}
		for _, i := range trainers(r)[1:] {
			begun := begin
			if free[i].After(begun) {
				begun = free[i]
			}
			free[i] = begun.Add(training)
			if free[i].Before(opened) {
				free[i] = opened
			}
			came := free[i].Add(arrival)
			rs.pace.arrived(id(i), came)
			if came.After(rs.most) {
				rs.most = came
			}
		}
		end := rs.deadline(all[1:], assign.Quorum(len(all)))
		rs.pace.arrived(all[0], end)
		longest, opened, before = max(longest, end.Sub(opened)), end, rs
	}
	return longest
}

// TestSlowMemberDoesNotSlowOthers checks a member that delivers as late as possible in each round.
// Rounds take a quarter longer than trainings, and do not grow.
func TestSlowMemberDoesNotSlowOthers(t *testing.T) {
	always := func(int) []int { return []int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11} }
	others := func(r int) []int { return []int{0, 3*r + 1, 3*r + 2, 3*r + 3} }
	for name, test := range map[string]struct {
		arrival  time.Duration
		trainers func(round int) []int
	}{
		"results arrive at once":       {0, always},
		"results take a second":        {1100 * time.Millisecond, always},
		"new trainers in every round":  {0, others},
		"new trainers on slower links": {1100 * time.Millisecond, others},
	} {
		if got, most := slowestRound(test.arrival, test.trainers), (9*time.Second+test.arrival)*5/4+2*time.Second; got > most {
			t.Errorf("%s: a round lasts %v, want at most %v", name, got, most)
		}
	}
}
