package coordinator

import (
	"crypto/sha256"
	"errors"
	"slices"
	"testing"
)

// drawChain returns n links of a hash chain, beginning with the commitment. Each link opens the
// link before it.
func drawChain(n int) [][32]byte {
	links := make([][32]byte, n)
	for i := n - 2; i >= 0; i-- {
		links[i] = sha256.Sum256(links[i+1][:])
	}
	return links
}

// testLinks contains the draws of random runs and the commitment to them. testOpening maps each
// link to the link that opens it.
var (
	testLinks   = drawChain(400)
	testOpening = func() map[[32]byte][32]byte {
		opening := make(map[[32]byte][32]byte, len(testLinks))
		for i, link := range testLinks[1:] {
			opening[testLinks[i]] = link
		}
		return opening
	}()
)

// testDraw returns a draw that is valid for the next round of the state.
func (s *State) testDraw(n uint64) [32]byte {
	if s.DrawCommitment == ([32]byte{}) {
		return testDraw(n)
	}
	return testOpening[s.DrawCommitment]
}

// TestRoundsBeginWithTheCommittedDraws plays an epoch of a run whose genesis commits to its draws.
func TestRoundsBeginWithTheCommittedDraws(t *testing.T) {
	links := drawChain(20)
	config := testConfig()
	config.RoundsPerEpoch = 3
	state, err := Genesis{RunID: "walk", Host: host, Config: config, Model: testModel(), Draws: links[0]}.State()
	if err != nil {
		t.Fatal(err)
	}
	r := &run{State: state, t: t, now: 1000 * second}
	r.join("a", "b", "c")
	r.until(Warmup) // no draw is necessary before a round begins
	for _, client := range r.Epoch.Clients {
		r.mustID(client.ID, Ready{Epoch: r.Progress.Epoch})
	}
	for begun := range 3 {
		r.now += second
		before := r.Hash()
		for _, wrong := range [][32]byte{{}, links[begun], links[begun+2], testDraw(7)} {
			if r.Tick(r.now, wrong) || r.Hash() != before {
				t.Fatalf("round %d: a wrong draw changed the state", begun)
			}
		}
		if !r.Tick(r.now, links[begun+1]) || r.RunState != RoundTrain || r.DrawCommitment != links[begun+1] {
			t.Fatalf("round %d: %s after the right draw, commitment %x", begun, r.RunState, r.DrawCommitment)
		}
		r.witnessAll()
		r.now += second
		if !r.Tick(r.now, testDraw(9)) || r.RunState != RoundWitness || r.DrawCommitment != links[begun+1] {
			t.Fatalf("round %d: %s, a tick that begins no round used a draw", begun, r.RunState)
		}
	}
	r.now += second
	if !r.Tick(r.now, [32]byte{}) || r.RunState != Cooldown || r.DrawCommitment != links[3] {
		t.Fatalf("%s, want the epoch's end without a draw", r.RunState)
	}
}

// TestDrawOfZerosOpensNothing checks that a draw cannot commit to zeros. A state without a
// commitment accepts every draw, so the host could choose all later draws freely.
func TestDrawOfZerosOpensNothing(t *testing.T) {
	state, err := Genesis{RunID: "walk", Host: host, Config: testConfig(), Model: testModel(), Draws: sha256.Sum256(make([]byte, 32))}.State()
	if err != nil {
		t.Fatal(err)
	}
	r := &run{State: state, t: t, now: 1000 * second}
	r.join("a", "b", "c")
	r.until(Warmup)
	for _, client := range r.Epoch.Clients {
		r.mustID(client.ID, Ready{Epoch: r.Progress.Epoch})
	}
	r.now += second
	if r.Tick(r.now, [32]byte{}) || r.RunState != Warmup || r.DrawCommitment == ([32]byte{}) {
		t.Errorf("%s with commitment %x: the next draw could be any", r.RunState, r.DrawCommitment)
	}
}

// committed begins a run of members a, b and c, up to its Warmup. The first n members have made
// commitments.
func committed(t *testing.T, n int) *run {
	t.Helper()
	state, err := New("walk", host, testConfig(), testModel())
	if err != nil {
		t.Fatal(err)
	}
	r := &run{State: state, t: t, now: 1000 * second}
	for i, name := range []string{"a", "b", "c"} {
		join := Join{Epoch: r.Progress.Epoch}
		if i < n {
			join.Commitment = commitmentTo(name)
		}
		r.must(name, join)
	}
	r.until(Warmup)
	return r
}

// commitmentTo returns the commitment to the value with a name.
func commitmentTo(name string) [32]byte {
	value := clientID(name)
	return sha256.Sum256(value[:])
}

func TestReadyRevealsTheCommittedValue(t *testing.T) {
	r := committed(t, 2)
	before := r.Hash()
	for name, wrong := range map[string][32]byte{"a": clientID("b"), "b": {}, "c": clientID("c")} {
		r.nonce++
		err := r.Apply(clientID(name), r.nonce, Ready{Epoch: r.Progress.Epoch, Reveal: wrong})
		if !errors.Is(err, ErrInvalidAction) || r.Hash() != before {
			t.Errorf("%s reveals a wrong value: %v", name, err)
		}
	}
	r.must("c", Ready{Epoch: r.Progress.Epoch, Next: commitmentTo("c2")})
	if r.Reveals != ([32]byte{}) {
		t.Error("a member without a commitment changed the combined reveals")
	}
	r.must("a", Ready{Epoch: r.Progress.Epoch, Reveal: clientID("a"), Next: commitmentTo("a2")})
	of := func(name string) []byte {
		id := clientID(name)
		sum := sha256.Sum256(slices.Concat([]byte("psyche/reveal/v1"), id[:], id[:]))
		return sum[:]
	}
	if want := of("a"); !slices.Equal(r.Reveals[:], want) {
		t.Errorf("reveals %x, want %x", r.Reveals, want)
	}
	r.must("b", Ready{Epoch: r.Progress.Epoch, Reveal: clientID("b")})
	want := of("a")
	for i, x := range of("b") {
		want[i] ^= x
	}
	if !slices.Equal(r.Reveals[:], want) {
		t.Errorf("reveals %x, want %x", r.Reveals, want)
	}
	for name, next := range map[string][32]byte{"a": commitmentTo("a2"), "b": {}, "c": commitmentTo("c2")} {
		if client, _ := r.Member(clientID(name)); client.Commitment != next {
			t.Errorf("%s is committed to %x, want %x", name, client.Commitment, next)
		}
	}
}

// TestRevealsMakeTheSeed checks that the reveal of one member changes the witnesses from the first
// round on and the assignment of batches from the second round on. The order of the reveals and
// later departures have no effect.
func TestRevealsMakeTheSeed(t *testing.T) {
	type seeds struct{ witness, batch, next uint64 }
	begin := func(leaver string, order ...string) seeds {
		r := committed(t, 3)
		for _, name := range order {
			r.must(name, Ready{Epoch: r.Progress.Epoch, Reveal: clientID(name)})
		}
		if leaver != "" {
			r.must(leaver, Withdraw{Client: clientID(leaver)})
		}
		for r.RunState == Warmup {
			r.now += second
			r.Tick(r.now, testDraw(1))
		}
		round := r.CurrentRound()
		return seeds{round.Seed, round.BatchSeed, le.Uint64(r.SeedChain[8:])}
	}
	all := begin("", "a", "b", "c")
	if other := begin("", "c", "a", "b"); other != all {
		t.Errorf("in a different order: %v, want %v", other, all)
	}
	if other := begin("c", "a", "b", "c"); other != all {
		t.Errorf("after c left: %v, want %v", other, all)
	}
	fewer := begin("", "a", "b")
	if fewer.witness == all.witness || fewer.next == all.next {
		t.Error("the reveal of c has no effect")
	}
	if fewer.batch != all.batch {
		t.Error("the first batch seed, which was known before, depends on reveals")
	}
}

// TestPendingClientReplacesItsCommitment checks that a client that lost its secret can commit to a
// new secret without losing its place.
func TestPendingClientReplacesItsCommitment(t *testing.T) {
	state, err := New("walk", host, testConfig(), testModel())
	if err != nil {
		t.Fatal(err)
	}
	r := &run{State: state, t: t}
	r.must("a", Join{Commitment: commitmentTo("a")})
	r.must("b", Join{Commitment: commitmentTo("b")})
	r.refused("a", Join{Commitment: commitmentTo("a")}, ErrDuplicate)
	r.must("a", Join{Commitment: commitmentTo("a2")})
	if first := r.Pending[0]; first.ID != clientID("a") || first.Commitment != commitmentTo("a2") {
		t.Errorf("the first place has %s, committed to %x", nameOf(first.ID), first.Commitment)
	}
	r.must("a", Join{})
	if r.Pending[0].Commitment != ([32]byte{}) {
		t.Error("a commitment to nothing was refused")
	}
}
