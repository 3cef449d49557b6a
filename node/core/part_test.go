package core

import (
	"testing"
	"time"

	"github.com/psyche-go/psyche/core/assign"
	"github.com/psyche-go/psyche/core/coordinator"
)

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
		"short rounds have the least":     {4, time.Second, LeastWitnessWait, false},
		"it is over":                      {5, time.Second, LeastWitnessWait + 1, true},
		"long rounds have a quarter more": {5, time.Minute, 15 * time.Second, false},
		"that is over as well":            {4, time.Minute, 15*time.Second + 1, true},
	} {
		t.Run(name, func(t *testing.T) {
			begun, results := time.Unix(1, 0), sixTrainers(test.held)
			p := NewPart(1, true, begun)
			most := begun.Add(test.needed)
			p.complete(results, most)
			if got := p.complete(results, most.Add(test.waited)); got != test.want {
				t.Errorf("complete: %v", got)
			}
		})
	}
}

// sixTrainers are the results of a round of six batches. The first ones are held.
type sixTrainers int

func (held sixTrainers) Arrived() []coordinator.ClientID { return trainerIDs(0, 1, 2, 3, 4, 5)[:held] }

func (held sixTrainers) Awaited() (arrived, all []coordinator.ClientID) {
	all = trainerIDs(0, 1, 2, 3, 4, 5)
	return all[:held], all
}

// trainerIDs returns the keys of trainers.
func trainerIDs(numbers ...int) (ids []coordinator.ClientID) {
	for _, n := range numbers {
		ids = append(ids, coordinator.ClientID{1, byte(n)})
	}
	return ids
}

// TestPaceAhead checks the measured needs of members that train ahead.
func TestPaceAhead(t *testing.T) {
	start := time.Unix(1000, 0)
	at := func(seconds int) time.Time { return start.Add(time.Duration(seconds) * time.Second) }
	id := func(i int) coordinator.ClientID { return trainerIDs(i)[0] }
	before := NewPart(1, true, at(0))
	for i, came := range []int{20, 15, 0, 12} { // the third delivered as soon as the round began
		before.pace.arrived(id(i), at(came))
	}
	before.pace.need[id(2)] = 11 * time.Second
	all := trainerIDs(0, 1, 2, 3, 4, 5)
	part := NewPart(2, true, at(22))
	part.Follow(&before, all[:5], all) // the sixth had nothing to train, and the fifth did not deliver
	p := &part.pace
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
	if got := p.typical(); got != 12*time.Second {
		t.Errorf("two thirds need %v", got)
	}
	part.Most = at(22)
	if got := part.deadline(all, 4); got != at(22+12+3) {
		t.Errorf("a witness waits until %v, want %v", got.Sub(start), at(37).Sub(start))
	}
}

// slowestRound plays twelve rounds in which trainings take 9 s, members train ahead, and results
// take a time to arrive. The first trainer of each round delivers just before witnesses stop
// waiting. It returns the longest round.
func slowestRound(arrival time.Duration, trainers func(round int) []int) (longest time.Duration) {
	const training = 9 * time.Second
	opened, free := time.Unix(1000, 0), make(map[int]time.Time)
	id := func(i int) coordinator.ClientID { return trainerIDs(i)[0] }
	var before *Part
	for r := range 12 {
		p, all := NewPart(uint32(r), true, opened), trainerIDs(trainers(r)...)
		begin := opened
		if before != nil {
			p.Follow(before, trainerIDs(trainers(r-1)...), all)
			begin = before.Opened
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
			p.pace.arrived(id(i), came)
			if came.After(p.Most) {
				p.Most = came
			}
		}
		end := p.deadline(all[1:], assign.Quorum(len(all)))
		p.pace.arrived(all[0], end)
		longest, opened, before = max(longest, end.Sub(opened)), end, &p
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
