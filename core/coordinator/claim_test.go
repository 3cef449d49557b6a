package coordinator

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// claimed returns a finished round whose witnesses claim the given losses.
func claimed(losses ...uint16) *Round {
	r := &Round{WitnessesNeeded: 1}
	for i, loss := range losses {
		r.Members = append(r.Members, ClientID{byte(i)})
		r.Witnesses = append(r.Witnesses, Witness{Member: uint16(i), Claim: Claim{Loss: loss, Speed: uint32(loss) * 2}})
	}
	return r
}

// TestFalseClaimMovesNoMedian checks that arbitrary claims of a minority keep the median within the
// honest claims, and that they do not change it at all if the honest claims agree.
func TestFalseClaimMovesNoMedian(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for _, of := range []struct{ witnesses, byzantine int }{{4, 1}, {7, 2}, {16, 1}, {16, 5}, {32, 10}} {
		for range 200 {
			honest := make([]uint16, of.witnesses-of.byzantine)
			for i := range honest {
				honest[i] = 2300 + uint16(random.IntN(100))
			}
			least, most := uint32(slices.Min(honest)), uint32(slices.Max(honest))
			for _, claim := range []uint16{1, 2000, 60_000, 1<<16 - 1} {
				all := append(slices.Repeat([]uint16{claim}, of.byzantine), honest...)
				got := claimed(all...).Losses()
				if got.Median < least || got.Median > most || got.Spread > most-least {
					t.Fatalf("%d of %d claim %d, the others %v: %+v", of.byzantine, of.witnesses, claim, honest, got)
				}
				agreed := append(slices.Repeat([]uint16{claim}, of.byzantine), slices.Repeat([]uint16{2345}, len(honest))...)
				far := of.byzantine
				if claim == 2000 {
					far = 0 // honest claims may differ by as much
				}
				if got := claimed(agreed...).Losses(); got.Median != 2345 || got.Spread != 0 || len(got.Far) != far {
					t.Fatalf("%d of %d claim %d where all others agree: %+v", of.byzantine, of.witnesses, claim, got)
				}
			}
		}
	}
}

func TestClaims(t *testing.T) {
	tests := []struct {
		name   string
		losses []uint16
		want   Claims
	}{
		{"none", []uint16{0, 0}, Claims{}},
		{"one", []uint16{0, 5}, Claims{Count: 1, Median: 5}},
		{"two: nobody is far", []uint16{1, 60_000}, Claims{Count: 2, Median: 1, Spread: 59_999}},
		{"members without a claim do not count", []uint16{0, 20, 30, 0, 10}, Claims{Count: 3, Median: 20, Spread: 10}},
		{"far, below and above", []uint16{2300, 2310, 100, 2305, 9000}, Claims{Count: 5, Median: 2305, Spread: 5, Far: []ClientID{{2}, {4}}}},
		{"a third away is not far, however narrow the others are", []uint16{3000, 3000, 3000, 4000}, Claims{Count: 4, Median: 3000}},
		{"more than a third away is far", []uint16{3000, 3000, 3000, 4001}, Claims{Count: 4, Median: 3000, Far: []ClientID{{3}}}},
		{"five spreads away is not far", []uint16{100, 200, 300, 700}, Claims{Count: 4, Median: 200, Spread: 100}},
		{"more than five spreads away is far", []uint16{100, 200, 300, 701}, Claims{Count: 4, Median: 200, Spread: 100, Far: []ClientID{{3}}}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			r := claimed(test.losses...)
			got := r.Losses()
			if got.Count != test.want.Count || got.Median != test.want.Median || got.Spread != test.want.Spread || !slices.Equal(got.Far, test.want.Far) {
				t.Errorf("got %+v, want %+v", got, test.want)
			}
			if speeds := r.Speeds(); speeds.Count != got.Count || speeds.Median != 2*got.Median || speeds.Far != nil {
				t.Errorf("of the speed: %+v", speeds)
			}
		})
	}
	most := &Round{Members: make([]ClientID, 3), Witnesses: []Witness{{Claim: Claim{Speed: 1<<32 - 1}}, {Claim: Claim{Speed: 1<<32 - 1}}, {Claim: Claim{Speed: 1}}}}
	if got := most.Speeds(); got.Median != 1<<32-1 || got.Spread != 0 {
		t.Errorf("of the largest numbers: %+v", got)
	}
}

// TestClaimsChangeNoRule compares two runs that differ only in claims. Everything else is equal,
// and Claimed returns the newest finished round.
func TestClaimsChangeNoRule(t *testing.T) {
	config := testConfig()
	config.RoundsPerEpoch = 9
	silent, loud := newRun(t, config, "a", "b", "c", "d"), newRun(t, config, "a", "b", "c", "d")
	if r, ok := loud.Claimed(); ok {
		t.Fatalf("before any round: %+v", r)
	}
	for i, claim := range []Claim{{}, {Loss: 1<<16 - 1, Speed: 1<<32 - 1}} {
		r := []*run{silent, loud}[i]
		for range 2 {
			r.claim = claim
			r.witnessAll()
			r.until(RoundWitness)
			r.until(RoundTrain)
		}
	}
	if r, ok := silent.Claimed(); ok {
		t.Errorf("without claims: %+v", r)
	}
	if r, ok := loud.Claimed(); !ok || r.Step != loud.Progress.Step-1 || r.Losses().Median != 1<<16-1 {
		t.Errorf("got %+v, %t; want ok and r.Step == loud.Progress.Step - 1 and r.Losses().Median == 1<<16 - 1", r, ok)
	}
	for i := range loud.Epoch.Rounds {
		for j := range loud.Epoch.Rounds[i].Witnesses {
			loud.Epoch.Rounds[i].Witnesses[j].Claim = Claim{}
		}
	}
	if silent.Hash() != loud.Hash() {
		t.Error("a claim changed more than the displayed values")
	}
}

// TestHeldOutClaims checks that the claims about a checkpoint stay in the state until the next checkpoint
// replaces it, and that a false claim does not move their median.
func TestHeldOutClaims(t *testing.T) {
	a, b, c, d := clientID("a"), clientID("b"), clientID("c"), clientID("d")
	r := newRun(t, testConfig(), "a", "b", "c", "d")
	r.heldOut = map[ClientID]uint16{a: 2300, b: 2310, c: 2305, d: 1<<16 - 1}
	want := func(when string, want Claims) {
		t.Helper()
		if got := r.HeldOut(); got.Count != want.Count || got.Median != want.Median || got.Spread != want.Spread || !slices.Equal(got.Far, want.Far) {
			t.Errorf("%s: %+v, want %+v", when, got, want)
		}
	}
	want("before the first checkpoint", Claims{})
	r.finishEpoch("x")
	claims := Claims{Count: 4, Median: 2305, Spread: 5, Far: []ClientID{d}}
	want("after the epoch", claims)
	r.until(Warmup)
	want("in the next Warmup", claims)
	r.startTraining()
	r.must("a", Withdraw{Client: a})
	want("after a member left", claims)
	r.heldOut = map[ClientID]uint16{c: 2000}
	r.finishEpoch("y")
	want("after the next epoch", Claims{Count: 1, Median: 2000})
	r.heldOut = nil
	r.startTraining()
	r.finishEpoch("z")
	want("without claims", Claims{})
}

// TestHeldOutClaimsOfOtherModels checks that a claim about a model that the run did not record does not
// count, also not after the member got the recorded model.
func TestHeldOutClaimsOfOtherModels(t *testing.T) {
	r := newRun(t, testConfig(), "a", "b", "c", "d")
	for r.RunState != Cooldown {
		r.witnessAll()
		r.until(RoundWitness)
		for step := r.Progress.Step; r.Progress.Step == step; {
			r.now += second
			r.Tick(r.now, r.testDraw(r.now))
		}
	}
	for name, digest := range map[string]string{"a": "x", "b": "x", "c": "x", "d": "other"} {
		r.must(name, ReportCheckpoint{Step: r.Progress.Step, Digest: clientID(digest), HeldOut: 2300})
	}
	r.until(WaitingForMembers)
	if got := r.HeldOut(); got.Count != 3 {
		t.Errorf("after the epoch: %+v, want 3 claims", got)
	}
	r.startTraining()
	if got := r.HeldOut(); got.Count != 3 {
		t.Errorf("in the next epoch: %+v, want 3 claims", got)
	}
}

// TestHeldOutClaimsChangeNoRule compares two runs that differ only in these claims.
func TestHeldOutClaimsChangeNoRule(t *testing.T) {
	silent, loud := newRun(t, testConfig(), "a", "b", "c", "d"), newRun(t, testConfig(), "a", "b", "c", "d")
	for i, r := range []*run{silent, loud} {
		r.heldOut = map[ClientID]uint16{clientID("a"): uint16(i), clientID("b"): uint16(i) * 60_000}
		r.finishEpoch("x")
		r.startTraining()
		r.witnessAll()
	}
	for i := range loud.Epoch.Clients {
		loud.Epoch.Clients[i].HeldOut = 0
	}
	if silent.Hash() != loud.Hash() {
		t.Error("a claim changed more than the displayed values")
	}
}
