package auditor

import (
	"testing"
	"time"

	"github.com/psyche-go/psyche/core/assign"
	"github.com/psyche-go/psyche/core/codec"
	"github.com/psyche-go/psyche/core/coordinator"
)

// held returns an attested result that continues from the result of an earlier step.
func held(owner byte, step, previous uint32) attestedResult {
	return attestedResult{
		Owner: coordinator.ClientID{owner}, Commitment: [32]byte{owner, byte(step)}, Counted: true, Vote: assign.FullVote,
		Header: codec.Header{Step: step, Previous: previous, Momentum: [32]byte{owner, byte(step), 1}},
		Since:  1,
	}
}

// pastOf returns the rounds from first to last, which began one second apart. Trainer 1 has a
// result in each round, and trainer 2 in every third.
func pastOf(first, last uint32) *past {
	p := &past{}
	for step := first; step <= last; step++ {
		r := appliedRound{Step: step, EpochStart: 1, At: time.Unix(int64(step), 0), Results: []attestedResult{held(1, step, step-1)}}
		if step%3 == 0 {
			r.Results = append(r.Results, held(2, step, step-3))
		}
		p.Add(r, last+100, leastKept)
	}
	return p
}

// TestStepsFromWhichAResultMayContinue checks the steps from which a result may continue: the
// newest attested result of its trainer, or zeros if the run knows that its optimizer began later.
// If this client does not know the rounds, the result is not refused.
func TestStepsFromWhichAResultMayContinue(t *testing.T) {
	for name, c := range map[string]struct {
		past           *past
		trainer        byte
		step, previous uint32
		since          uint32
		want           lineage
	}{
		"the newest":                          {pastOf(1, 20), 2, 20, 18, 1, lineageAllowed},
		"an older one":                        {pastOf(1, 20), 2, 20, 15, 1, lineageBroken},
		"a step in which it has no result":    {pastOf(1, 20), 2, 20, 19, 1, lineageBroken},
		"zeros, for no reason":                {pastOf(1, 20), 2, 20, 0, 1, lineageBroken},
		"zeros, after a return":               {pastOf(1, 20), 2, 20, 0, 19, lineageAllowed},
		"zeros, after a return in that round": {pastOf(1, 20), 2, 20, 0, 18, lineageAllowed},
		"the newest, although it returned":    {pastOf(1, 20), 2, 20, 18, 20, lineageAllowed},
		"a newcomer from zeros":               {pastOf(1, 20), 3, 20, 0, 15, lineageAllowed},
		"a newcomer from an unknown result":   {pastOf(1, 20), 3, 20, 14, 15, lineageBroken},
		"a step before this client joined":    {pastOf(10, 20), 3, 20, 5, 1, lineageUnknown},
		"zeros, of an unknown trainer":        {pastOf(10, 20), 3, 20, 0, 1, lineageUnknown},
		"zeros, began after this client":      {pastOf(10, 20), 3, 20, 0, 12, lineageAllowed},
		"an unknown result since then":        {pastOf(10, 20), 3, 20, 12, 1, lineageBroken},
		"zeros, the run forgot its start":     {pastOf(1, 20), 2, 20, 0, 0, lineageUnknown},
		"zeros, and it restarted later":       {pastOf(1, 20), 2, 20, 0, 21, lineageUnknown},
	} {
		t.Run(name, func(t *testing.T) {
			r := held(c.trainer, c.step, c.previous)
			r.Since = c.since
			root, got := c.past.previous(&r)
			if got != c.want {
				t.Errorf("got %v, want %v", got, c.want)
			}
			if want := (held(c.trainer, c.previous, 0)).Header.Momentum; c.want == lineageAllowed && c.previous != 0 && root != want {
				t.Errorf("root %x, want %x", root[:3], want[:3])
			}
		})
	}
}

// TestNewestResultStaysKnown checks that the newest result stays known for a trainer that was
// away for longer than rounds are kept, and for rounds before a gap. A result that may continue
// from a round in the gap is not refused.
func TestNewestResultStaysKnown(t *testing.T) {
	p := pastOf(1, 20)
	for step := uint32(21); step < 200; step++ {
		p.Add(appliedRound{Step: step, EpochStart: 1, At: time.Unix(int64(step), 0)}, 1000, leastKept)
	}
	r := held(2, 200, 18)
	if _, got := p.previous(&r); got != lineageAllowed {
		t.Errorf("from its newest result, long ago: %v", got)
	}
	r = held(2, 200, 15)
	if _, got := p.previous(&r); got != lineageBroken {
		t.Errorf("from an older one: %v", got)
	}
	p.Add(appliedRound{Step: 300, EpochStart: 300, At: time.Unix(300, 0)}, 1000, leastKept)
	for previous, want := range map[uint32]lineage{18: lineageAllowed, 15: lineageBroken, 250: lineageUnknown, 300: lineageBroken, 0: lineageBroken} {
		r = held(2, 301, previous)
		if _, got := p.previous(&r); got != want {
			t.Errorf("after a gap, from step %d: %v, want %v", previous, got, want)
		}
	}
	r = held(2, 301, 0)
	r.Since = 100
	if _, got := p.previous(&r); got != lineageUnknown {
		t.Errorf("from zeros, since a step in the gap: %v", got)
	}
}

// TestUnknownResultsOfATrainer checks a result that continues from a result that this client never
// received. It is not refused if witnesses hold the earlier result, and refused if no witness holds
// it.
func TestUnknownResultsOfATrainer(t *testing.T) {
	p := pastOf(1, 20)
	p.Add(appliedRound{Step: 21, EpochStart: 1, At: time.Unix(21, 0), Unknown: []coordinator.ClientID{held(2, 1, 0).Owner}}, 1000, leastKept)
	p.Add(appliedRound{Step: 22, EpochStart: 1, At: time.Unix(22, 0)}, 1000, leastKept)
	r, other := held(2, 23, 21), held(3, 23, 21)
	if _, got := p.previous(&r); got != lineageUnknown {
		t.Errorf("from a result that other members hold: %v", got)
	}
	if _, got := p.previous(&other); got != lineageBroken {
		t.Errorf("from a result that no member holds: %v", got)
	}
}

// TestRoundsAreKeptAsLongAsTheyAreNeeded checks that the newest rounds, the rounds of the last
// minute, and the rounds on trial are kept.
func TestRoundsAreKeptAsLongAsTheyAreNeeded(t *testing.T) {
	for name, c := range map[string]struct {
		pause  time.Duration
		needed uint32
		want   int
	}{
		"long rounds":  {time.Minute, 1000, leastKept},
		"short rounds": {2 * time.Second, 1000, 76},
		"a trial":      {time.Minute, 50, 100 - 50 + 1 + behind},
	} {
		p, dropped := &past{}, 0
		for step := uint32(1); step <= 100; step++ {
			at := time.Unix(0, 0).Add(time.Duration(step) * c.pause)
			dropped += len(p.Add(appliedRound{Step: step, EpochStart: 1, At: at, Results: []attestedResult{held(1, step, step-1)}}, c.needed, leastKept))
		}
		if got := len(p.Rounds(1000)); got != c.want || dropped != 100-c.want {
			t.Errorf("%s: %d rounds are kept and %d dropped, want %d", name, got, dropped, c.want)
		}
	}
}

// TestTrialsKeepOnlyUsefulRounds has a false accuser accuse the other member of a result that this client no longer
// keeps, or that it judged. The trials last for many rounds. They must not make this client keep the results and
// openings of these rounds, or wait with its training.
func TestTrialsKeepOnlyUsefulRounds(t *testing.T) {
	for name, c := range map[string]struct {
		step    uint32
		prepare func(r *rig, s *coordinator.State)
		want    uint32
		judges  bool
	}{
		"a step that is not kept":     {1, func(*rig, *coordinator.State) {}, newest, false},
		"a step that is kept":         {4, func(r *rig, _ *coordinator.State) { r.engine.busy = true }, 4, true},
		"the jury is not drawn":       {4, func(r *rig, s *coordinator.State) { s.Trials[0].Jurors, r.engine.busy = 0, true }, 4, true},
		"the client votes":            {4, func(*rig, *coordinator.State) {}, newest, false},
		"the client is no juror":      {4, func(_ *rig, s *coordinator.State) { s.Epoch.Clients[0].Juror = 0 }, newest, false},
		"the accused opens no result": {4, func(r *rig, _ *coordinator.State) { r.silent = true }, 4, false},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, nil)
			r.thrown = newest + 100
			r.past.cut(2)
			c.prepare(r, r.onTrial(c.step))
			r.Observe()
			r.run(5 * time.Second)
			if got := r.needed(newest); got != c.want {
				t.Errorf("rounds from step %d are needed, want %d", got, c.want)
			}
			if got := r.Judges(); got != c.judges {
				t.Errorf("the training waits: %v, want %v", got, c.judges)
			}
		})
	}
}

// TestOpeningsOnTrialAreKept checks that a client whose result is on trial keeps the opening of this result for as long as
// the trial lasts, but no other old opening, even if it learns of the trial late.
func TestOpeningsOnTrialAreKept(t *testing.T) {
	r := newRig(t, nil)
	r.clock.now = r.clock.now.Add(2 * openTime)
	s := r.state.Clone()
	s.Progress.Step = newest + 2*openRounds
	s.Trials = []coordinator.Trial{{Accused: r.me, Accuser: r.other, Step: 2, Fault: coordinator.FaultSilent, Since: newest, Jurors: 1}}
	r.state = &s
	r.Observe()
	for step := uint32(1); step < newest; step++ {
		if got := r.openings.parts(resultID{r.me, step}) != nil; got != (step == 2) {
			t.Errorf("the opening of step %d is kept: %v", step, got)
		}
	}
}

// TestLowSupportChunks checks the low-support chunks: a result sends them, but fewer than a third of
// the results of the round before do.
func TestLowSupportChunks(t *testing.T) {
	counts := map[[32]byte][]uint16{{1}: {1, 0, 0, 1}, {2}: {1, 0, 0, 1}, {3}: {1, 1, 0, 0}, {4}: {1, 0, 0, 0}}
	s := &senderCounts{
		counted: [][32]byte{{1}, {2}, {3}, {4}}, read: func(hash [32]byte) ([]byte, error) { return hash[:1], nil },
		decode: func(payload []byte) (codec.Header, []codec.TensorResult, error) {
			all := counts[[32]byte{payload[0]}]
			return codec.Header{}, []codec.TensorResult{{Counts: all[:1]}, {Counts: all[1:]}}, nil
		},
	}
	lowSupport, err := s.lowSupport([]codec.TensorResult{{Counts: []uint16{1}}, {Counts: []uint16{1, 1, 1}}})
	if err != nil || len(lowSupport) != 2 || lowSupport[0] != 1 || lowSupport[1] != 2 {
		t.Errorf("got %v, %v; want nil error and len(lowSupport) == 2 and lowSupport[0] == 1 and lowSupport[1] == 2", lowSupport, err)
	}
	if lowSupport, _ = s.lowSupport([]codec.TensorResult{{Counts: []uint16{1}}, {Counts: []uint16{0, 0, 1}}}); len(lowSupport) != 0 {
		t.Errorf("got %v; want len(lowSupport) == 0", lowSupport)
	}
	if lowSupport, err = new(senderCounts).lowSupport([]codec.TensorResult{{Counts: []uint16{1}}}); err != nil || len(lowSupport) != 0 {
		t.Errorf("without results: %v, %v", lowSupport, err)
	}
}

// TestAuditTargetsArePrivate checks that the draws of two members are independent, and that half of
// the draws consider only the newest rounds.
func TestAuditTargetsArePrivate(t *testing.T) {
	p := pastOf(1, 12)
	rounds := p.Rounds(drawnRounds)
	one, again, two := newPrivateRandom([]byte("a"), [32]byte{1}), newPrivateRandom([]byte("a"), [32]byte{1}), newPrivateRandom([]byte("b"), [32]byte{1})
	same, fresh := 0, 0
	const throws = 4000
	all := func(*attestedResult) bool { return true }
	for step := uint32(1); step <= throws; step++ {
		a, found := one.choose(step, rounds, all)
		if b, _ := again.choose(step, rounds, all); !found || a != b {
			t.Fatal("the same random source draws differently")
		}
		if b, _ := two.choose(step, rounds, all); a == b {
			same++
		}
		if a.Header.Step > 10 {
			fresh++
		}
	}
	// Of 16 results, three are from the newest two rounds.
	if share := float64(fresh) / throws; share < 0.55 || share > 0.64 {
		t.Errorf("%.2f of the draws select the newest two rounds", share)
	}
	if share := float64(same) / throws; share > 0.2 {
		t.Errorf("%.2f of the draws of two members are the same", share)
	}
	if _, found := one.choose(1, rounds, func(*attestedResult) bool { return false }); found {
		t.Error("a result was drawn although none is eligible")
	}
}

// TestAuditTargetsByVote checks that a result with a fourth of another's vote is drawn a fourth as often.
func TestAuditTargetsByVote(t *testing.T) {
	p := &past{}
	fast, slow := held(1, 1, 0), held(2, 1, 0)
	slow.Vote = assign.FullVote / 4
	p.Add(appliedRound{Step: 1, Results: []attestedResult{fast, slow}}, 1, leastKept)
	random, drawn := newPrivateRandom([]byte("a"), [32]byte{1}), map[byte]int{}
	const throws = 4000
	for step := uint32(1); step <= throws; step++ {
		r, _ := random.choose(step, p.Rounds(drawnRounds), func(*attestedResult) bool { return true })
		drawn[r.Owner[0]]++
	}
	if share := float64(drawn[1]) / throws; share < 0.77 || share > 0.83 || drawn[1]+drawn[2] != throws {
		t.Errorf("%v results were drawn", drawn)
	}
}

// TestKeptRounds checks that slow auditors have more rounds in a run with shares by speed.
func TestKeptRounds(t *testing.T) {
	for _, c := range []struct {
		shares  bool
		percent uint8
		want    int
	}{{false, 10, 24}, {true, 0, 24}, {true, 1, 48}, {true, 10, 48}, {true, 20, 28}, {true, 25, 24}, {true, 100, 24}} {
		if got := keptRounds(coordinator.Config{SharesBySpeed: c.shares, VerificationPercent: c.percent}); got != c.want {
			t.Errorf("%+v: %d rounds", c, got)
		}
	}
}
