package coordinator

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/psyche-go/psyche/core/assign"
)

// newRetryRun returns a run that trains lost sequences again. A round has 64 sequences, 16 for each of four members.
func newRetryRun(t *testing.T, change func(*Config)) *run {
	t.Helper()
	config := longConfig()
	config.RetryLost = true
	if change != nil {
		change(&config)
	}
	return newRun(t, config, "a", "b", "c", "d")
}

// batchOf returns a member's batch of the running round.
func (r *run) batchOf(name string) assign.BatchID {
	r.t.Helper()
	round := r.CurrentRound()
	for _, a := range round.Assignments(r.Config) {
		if round.Members[a.Member] == clientID(name) {
			return a.Batch
		}
	}
	r.t.Fatalf("%s has no batch", name)
	return assign.BatchID{}
}

func (r *run) wantLost(want ...Stretch) {
	r.t.Helper()
	if !slices.Equal(r.Lost, want) {
		r.t.Fatalf("lost %v, want %v\n%s", r.Lost, want, r.String())
	}
}

// TestLostSequencesAreTrainedAgain checks that the sequences of a lost batch are the first ones of the
// second round after it, which was predicted, and that positions continue.
func TestLostSequencesAreTrainedAgain(t *testing.T) {
	s := newRetryRun(t, nil)
	lost := s.batchOf("c")
	s.without(nil, "c")
	want := Stretch{lost.Start, lost.End, 1}
	s.wantLost(want)
	if got := s.CurrentRound(); len(got.Retries) != 0 || got.DataIndex != 64 || got.Position != 64 {
		t.Fatalf("the next round is %+v", got)
	}
	next, _ := s.NextRound()
	s.without(nil)
	s.wantLost()
	round := s.CurrentRound()
	if !slices.Equal(round.Retries, []Stretch{want}) || !slices.Equal(next.Retries, round.Retries) || round.DataIndex != 128 || round.Position != 128 || s.Progress.DataIndex != 128+48 {
		t.Fatalf("data index %d after the round %+v, predicted %+v", s.Progress.DataIndex, round, next)
	}
	first := round.Assignments(s.Config)[0].Batch
	if got := round.Sequences(first); !slices.Equal(got, []assign.BatchID{lost}) {
		t.Fatalf("the first batch %v has the sequences %v, want %v", first, got, lost)
	}
	s.without(nil)
	if s.CurrentRound().Position != 192 || s.CurrentRound().DataIndex != 176 {
		t.Fatalf("the round after it is %+v", s.CurrentRound())
	}
}

// TestRetriesAreAtMostHalf checks a round without a quorum, which loses all its sequences and ends the epoch.
func TestRetriesAreAtMostHalf(t *testing.T) {
	s := newRetryRun(t, nil)
	s.until(Cooldown)
	s.wantLost(Stretch{0, 64, 1})
	s.finishEpoch("x")
	s.startTraining()
	s.wantLost(Stretch{32, 64, 1})
	if got := s.CurrentRound().Retries; !slices.Equal(got, []Stretch{{0, 32, 1}}) {
		t.Fatalf("retries %v", got)
	}
}

// TestPositionsOfAPredictedRound predicts a round that does not begin, because the running round has no quorum. Another
// round then has the same step and positions, but other sequences. So a data server's receipts name sequences.
func TestPositionsOfAPredictedRound(t *testing.T) {
	s := newRetryRun(t, nil)
	predicted, ok := s.NextRound()
	s.until(Cooldown)
	s.finishEpoch("x")
	s.startTraining()
	got := s.CurrentRound()
	if !ok || got.Step != predicted.Step || got.Position != predicted.Position {
		t.Fatalf("step %d at position %d, predicted %d at %d", got.Step, got.Position, predicted.Step, predicted.Position)
	}
	whole := assign.BatchID{Start: got.Position, End: got.NextPosition()}
	if a, b := got.Sequences(whole), predicted.Sequences(whole); slices.Equal(a, b) {
		t.Fatalf("both rounds have the sequences %v", a)
	}
}

// TestNeighboursAreMerged checks that adjacent lost batches are one stretch.
func TestNeighboursAreMerged(t *testing.T) {
	s := newRetryRun(t, func(c *Config) { c.WitnessNodes = 1 })
	assignments := s.CurrentRound().Assignments(s.Config)
	name := func(i int) string { return nameOf(s.CurrentRound().Members[assignments[i].Member]) }
	s.without(nil, name(1), name(2))
	s.wantLost(Stretch{16, 48, 1})
}

// TestStretchIsGivenUp loses a stretch in MaxTries rounds.
func TestStretchIsGivenUp(t *testing.T) {
	s := newRetryRun(t, nil)
	s.lose(Stretch{0, 4, MaxTries - 1})
	s.wantLost(Stretch{0, 4, MaxTries - 1})
	s.Progress.DataIndex, s.Position = 64, 64
	round := s.roundOf(2)
	s.take(&round)
	s.Epoch.Rounds = append(s.Epoch.Rounds, round)
	s.requeue() // without a quorum
	s.wantLost(Stretch{64, 124, 1})
}

func TestFullListDropsTheNewest(t *testing.T) {
	s := newRetryRun(t, nil)
	for i := range uint64(MaxLost + 1) {
		s.lose(Stretch{2 * i, 2*i + 1, 1})
	}
	if n := len(s.Lost); n != MaxLost || s.Lost[n-1].Start != 2*(MaxLost-1) {
		t.Fatalf("%d stretches", n)
	}
	s.lose(Stretch{2*MaxLost - 1, 2 * MaxLost, 1})
	if s.Lost[MaxLost-1].End != 2*MaxLost {
		t.Error("a full list refuses the continuation of a stretch")
	}
	if got := s.retries(64); len(got) != MaxRetries {
		t.Errorf("a round takes %d stretches, want %d", len(got), MaxRetries)
	}
}

// TestWarmingBatchesAreLast checks that the sequences of warming trainers form one stretch.
func TestWarmingBatchesAreLast(t *testing.T) {
	s := newRetryRun(t, nil)
	round := s.CurrentRound()
	before := round.Assignments(s.Config)
	first, third := before[0].Member, before[2].Member
	round.Warming.add(first)
	round.Warming.add(third)
	var order []int
	for _, a := range round.Assignments(s.Config) {
		order = append(order, a.Member)
	}
	if want := []int{before[1].Member, before[3].Member, first, third}; !slices.Equal(order, want) {
		t.Fatalf("order %v, want %v", order, want)
	}
	s.without(nil)
	s.wantLost(Stretch{32, 64, 1})
}

// TestRollbackTrainsAgain lets a run lose the models after an intermediate checkpoint, and then all models.
func TestRollbackTrainsAgain(t *testing.T) {
	s := newRetryRun(t, func(c *Config) { c.RoundsPerEpoch = 4 })
	s.without(nil)
	s.without(nil)
	for _, name := range []string{"a", "b", "c", "d"} {
		s.must(name, ReportCheckpoint{Step: 2, Digest: clientID("x")})
	}
	s.without(nil, "a")
	s.until(Cooldown)
	s.until(Warmup)
	if len(s.RollbackGaps) != 1 || s.RollbackGaps[0].First != 2 {
		t.Fatalf("gaps %v", s.RollbackGaps)
	}
	s.wantLost(Stretch{64, 256, 0})
	for _, c := range s.Epoch.Clients {
		s.mustID(c.ID, Withdraw{Client: c.ID})
	}
	s.until(WaitingForMembers)
	s.join("e", "f", "g")
	s.now += 24 * 3600 * second
	s.until(WaitingForMembers)
	s.rollBack(0)
	s.wantLost(Stretch{0, 256, 0})
	if err := s.Check(); err != nil {
		t.Error(err)
	}
}

// TestLostSequencesSurviveOff checks that a run that turns the option off keeps the waiting stretches, and adds none.
func TestLostSequencesSurviveOff(t *testing.T) {
	s := newRetryRun(t, nil)
	s.without(nil, "a")
	waits := slices.Clone(s.Lost)
	s.Config.RetryLost = false
	s.without(nil, "b")
	s.without(nil)
	s.wantLost(waits...)
	if n := len(s.CurrentRound().Retries); n != 0 {
		t.Errorf("%d retries", n)
	}
}

// TestSequencesOfPositions checks that the batches of a round have all its sequences, each once and in order.
func TestSequencesOfPositions(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		round := Round{Members: make([]ClientID, rapid.IntRange(1, 9).Draw(t, "members")), Position: rapid.Uint64Range(500, 1000).Draw(t, "position"), DataIndex: 500}
		next := uint64(0)
		var all []assign.BatchID
		for range rapid.IntRange(0, MaxRetries).Draw(t, "retries") {
			start := next + rapid.Uint64Range(0, 3).Draw(t, "gap")
			next = start + rapid.Uint64Range(1, 9).Draw(t, "length")
			round.Retries = append(round.Retries, Stretch{start, next, 1})
			all = append(all, assign.BatchID{Start: start, End: next})
			round.BatchSize += uint32(next - start)
		}
		round.BatchSize = 2*round.BatchSize + rapid.Uint32Range(1, 20).Draw(t, "more")
		all = append(all, assign.BatchID{Start: 500, End: round.NextData()})
		var want, got []uint64
		for _, part := range all {
			for i := part.Start; i < part.End; i++ {
				want = append(want, i)
			}
		}
		for _, a := range round.Assignments(Config{RetryLost: true}) {
			parts, n := round.Sequences(a.Batch), uint64(0)
			for _, part := range parts {
				n += part.Len()
				for i := part.Start; i < part.End; i++ {
					got = append(got, i)
				}
			}
			if n != a.Batch.Len() || len(parts) > MaxRetries+1 {
				t.Fatalf("batch %v has %d sequences in %d intervals", a.Batch, n, len(parts))
			}
		}
		if !slices.Equal(got, want) {
			t.Fatalf("sequences %v, want %v", got, want)
		}
	})
}
