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

func (sixTrainers) Members() []coordinator.ClientID { return trainerIDs(0, 1, 2, 3, 4, 5) }

// trainerIDs returns the keys of trainers.
func trainerIDs(numbers ...int) (ids []coordinator.ClientID) {
	for _, n := range numbers {
		ids = append(ids, coordinator.ClientID{1, byte(n)})
	}
	return ids
}

// TestWitnessWaitsForPromises checks that a witness waits for members that are as fast as their levels, though two
// thirds of the results came much earlier.
func TestWitnessWaitsForPromises(t *testing.T) {
	const level, tokens = 80, 1 << 10 // 2^(80/8) tokens per second
	for name, test := range map[string]struct {
		levels  []uint8
		seconds int // of each training
		waited  time.Duration
		want    bool
	}{
		"without levels nobody promised anything":    {[]uint8{0, 0, 0, 0, 0, 0}, 20, 3 * time.Second, true},
		"the others may need a quarter more":         {[]uint8{level, level, level, level, level, level}, 20, 15 * time.Second, false},
		"and no longer":                              {[]uint8{level, level, level, level, level, level}, 20, 15*time.Second + 1, true},
		"the few lowest levels promise nothing":      {[]uint8{level, level, level, level, 1, level}, 20, 15*time.Second + 1, true},
		"at most four times as long as two thirds":   {[]uint8{level, level, level, level, level, level}, 100, 40*time.Second + 1, true},
		"nobody waits less because of high promises": {[]uint8{level, level, level, level, level, level}, 1, 2500 * time.Millisecond, false},
	} {
		t.Run(name, func(t *testing.T) {
			begun, results := time.Unix(1, 0), sixTrainers(5)
			p := NewPart(1, true, begun)
			var round coordinator.Round
			var trainers []assign.Assignment
			for i, level := range test.levels {
				round.Levels[i] = level
				trainers = append(trainers, assign.Assignment{Member: i, Batch: assign.BatchID{End: uint64(test.seconds)}})
			}
			p.Promised(&round, trainers, tokens)
			most := begun.Add(10 * time.Second)
			p.complete(results, most)
			if got := p.complete(results, most.Add(test.waited)); got != test.want {
				t.Errorf("complete: %v", got)
			}
		})
	}
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
	before.pace.need[id(2)] = need{time: 11 * time.Second}
	before.pace.came[id(6)] = at(8) // without a known need
	part := NewPart(2, true, at(22))
	part.Follow(&before)
	part.Ahead(&before, trainerIDs(0, 1, 2, 3, 4, 6), trainerIDs(0, 1, 2, 3, 4, 5, 6)) // the sixth had nothing to train, and the fifth did not deliver
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
		{30, 0},                // at most from 0 to 30, more than the typical need: unknown
		{22, 0},                // at most from 8 to 22, more than the typical need: unknown
	} {
		p.arrived(id(i), at(test.came))
		if got := p.need[id(i)].time; got != test.need {
			t.Errorf("member %d needs %v, want %v", i, got, test.need)
		}
	}
	if got := p.typical(); got != 12*time.Second {
		t.Errorf("two thirds need %v", got)
	}
	if len(p.most) != 1 || p.most[id(6)].time != 14*time.Second {
		t.Errorf("the longest needs are %v, want 14 s for member 6", p.most)
	}
	part.Most = at(22)
	if got := part.deadline(p.typical()); got != at(22+12+3) {
		t.Errorf("a witness waits until %v, want %v", got.Sub(start), at(37).Sub(start))
	}
}

// slowRounds plays 30 rounds in which trainings take 9 s, members train ahead, and results take a time
// to arrive. The first trainer of each round delivers just before witnesses stop waiting. It returns the
// longest round, and the number of rounds that were longer than a limit.
func slowRounds(arrival, limit time.Duration, members int, trainers func(round int) []int) (longest time.Duration, longer int) {
	const training = 9 * time.Second
	opened, free := time.Unix(1000, 0), make(map[int]time.Time)
	id := func(i int) coordinator.ClientID { return trainerIDs(i)[0] }
	var all []coordinator.ClientID
	for i := range members {
		all = append(all, id(i))
	}
	var before *Part
	for r := range 30 {
		p, begin := NewPart(uint32(r), true, opened), opened
		if before != nil {
			p.Follow(before)
			p.Ahead(before, trainerIDs(trainers(r-1)...), trainerIDs(trainers(r)...))
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
		end := p.Most
		for !p.late(all, end) {
			end = end.Add(50 * time.Millisecond)
		}
		p.pace.arrived(id(trainers(r)[0]), end)
		if end.Sub(opened) > limit {
			longer++
		}
		longest, opened, before = max(longest, end.Sub(opened)), end, &p
	}
	return longest, longer
}

// TestSlowMemberDoesNotSlowOthers checks a member that delivers as late as possible in each round.
// Rounds take a quarter longer than trainings, and do not grow. If few members have shown their need,
// some rounds take twice the time of a training.
func TestSlowMemberDoesNotSlowOthers(t *testing.T) {
	always := func(int) []int { return []int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11} }
	others := func(r int) []int { return []int{0, 3*r + 1, 3*r + 2, 3*r + 3} }
	for name, test := range map[string]struct {
		arrival  time.Duration
		members  int
		trainers func(round int) []int
		longer   int
	}{
		"results arrive at once":       {0, 12, always, 0},
		"results take a second":        {1100 * time.Millisecond, 12, always, 0},
		"new trainers in every round":  {0, 91, others, maxGuesses},
		"new trainers on slower links": {1100 * time.Millisecond, 91, others, maxGuesses},
	} {
		usual := (9*time.Second+test.arrival)*5/4 + 2*time.Second
		longest, longer := slowRounds(test.arrival, usual, test.members, test.trainers)
		if longer > test.longer || longest > usual*8/5 {
			t.Errorf("%s: %d rounds last longer than %v, want at most %d; the longest lasts %v", name, longer, usual, test.longer, longest)
		}
	}
}

// TestWaitForUnknownNeeds checks how long a witness waits for a missing result if it knows the needs of
// few members. The fast members need 10 s.
func TestWaitForUnknownNeeds(t *testing.T) {
	const fast = 10 * time.Second
	members := trainerIDs(0, 1, 2, 3, 4, 5, 6, 7)
	alone := NewPart(1, true, time.Unix(1000, 0))
	alone.Most = alone.Opened.Add(fast)
	if alone.late(nil, alone.Most) || !alone.late(nil, alone.Opened.Add(time.Minute)) {
		t.Error("without members, the witness does not wait for the usual time")
	}
	for name, test := range map[string]struct {
		fast    int             // members that have shown their needs
		slower  []time.Duration // needs of further members
		guesses int             // rounds of the epoch that have already waited longer
		want    time.Duration
		guess   bool
	}{
		"most needs are unknown":            {4, nil, 0, 2 * fast, true},
		"too many rounds waited":            {4, nil, maxGuesses, fast * 5 / 4, false},
		"two thirds are fast":               {6, nil, 0, fast * 5 / 4, false},
		"two thirds are not fast":           {5, []time.Duration{14 * time.Second}, 0, 17500 * time.Millisecond, false},
		"all needs are known":               {5, []time.Duration{14 * time.Second, 15 * time.Second, 16 * time.Second}, maxGuesses, 17500 * time.Millisecond, false},
		"a member makes its need look long": {5, []time.Duration{time.Minute}, 0, 2 * fast, false},
	} {
		t.Run(name, func(t *testing.T) {
			part := NewPart(1, true, time.Unix(1000, 0))
			part.pace.guesses = test.guesses
			for i, id := range members[:test.fast+len(test.slower)] {
				if part.pace.need[id] = (need{time: fast}); i >= test.fast {
					part.pace.need[id] = need{time: test.slower[i-test.fast]}
				}
			}
			part.Most = part.Opened.Add(fast)
			end := part.Opened.Add(test.want)
			if part.late(members, end) || !part.late(members, end.Add(1)) {
				t.Errorf("the witness does not wait for exactly %v", test.want)
			}
			next := NewPart(2, true, end)
			next.Follow(&part)
			if got := next.pace.guesses > test.guesses; got != test.guess {
				t.Errorf("the round waited because of a guess: %v", got)
			}
		})
	}
}

// TestJoinedWitnessWaits checks that a witness that did not see the previous round neither measures needs
// nor proves because of the time.
func TestJoinedWitnessWaits(t *testing.T) {
	part := NewPart(3, true, time.Unix(1000, 0))
	part.Join()
	if part.complete(sixTrainers(5), part.Opened.Add(time.Hour)) {
		t.Error("the witness does not wait for the sixth result")
	}
	if len(part.pace.need) != 0 || len(part.pace.came) != 5 {
		t.Errorf("the witness has %d needs and %d arrivals, want 0 and 5", len(part.pace.need), len(part.pace.came))
	}
	if !part.complete(sixTrainers(6), part.Opened.Add(time.Hour)) {
		t.Error("the witness waits although it holds everything")
	}
	round := coordinator.Round{WitnessesElected: 6, WitnessesNeeded: 4, Witnesses: make([]coordinator.Witness, 2)}
	if oneIsHonest(&round) {
		t.Error("two of six witnesses may be dishonest")
	}
	round.Witnesses = make([]coordinator.Witness, 3)
	if !oneIsHonest(&round) {
		t.Error("one of three of six witnesses is honest")
	}
}
