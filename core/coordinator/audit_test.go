package coordinator

import (
	"crypto/sha256"
	"slices"
	"testing"
)

// chainOf returns the values that a client reveals, in order. Each value is the SHA-256 of the next
// value.
func chainOf(name string) [][32]byte {
	values := make([][32]byte, 10)
	values[9] = clientID(name)
	for i := 8; i >= 0; i-- {
		values[i] = sha256.Sum256(values[i+1][:])
	}
	return values
}

// chainedRun returns a run in its first round whose members a, b and c have committed to chains.
// Ready revealed the values with index 1, and the values with index 2 are next.
func chainedRun(t *testing.T) *run {
	t.Helper()
	state, err := New("walk", host, longConfig(), testModel())
	if err != nil {
		t.Fatal(err)
	}
	r := &run{State: state, t: t, now: 1000 * second}
	for _, name := range []string{"a", "b", "c"} {
		r.must(name, Join{Commitment: chainOf(name)[0]})
	}
	r.until(Warmup)
	for _, name := range []string{"a", "b", "c"} {
		r.must(name, Ready{Reveal: chainOf(name)[1], Next: chainOf(name)[1]})
	}
	r.until(RoundTrain)
	return r
}

func TestWitnessesReveal(t *testing.T) {
	for _, test := range []struct {
		name   string
		reveal [32]byte
		want   Code // 0 if accepted
		next   [32]byte
	}{
		{"nothing", [32]byte{}, 0, chainOf("a")[1]},
		{"the committed value", chainOf("a")[2], 0, chainOf("a")[2]},
		{"an already revealed value", chainOf("a")[1], ErrInvalidAction, [32]byte{}},
		{"a value that comes later", chainOf("a")[3], ErrInvalidAction, [32]byte{}},
		{"the committed value of another member", chainOf("b")[2], ErrInvalidAction, [32]byte{}},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := chainedRun(t)
			reveals, proof := r.Reveals, r.witnessOf()
			proof.Reveal = test.reveal
			if test.want != 0 {
				r.refusedTo(test.want, clientID("a"), proof)
				return
			}
			r.must("a", proof)
			client, _ := r.Member(clientID("a"))
			want := [32]byte{}
			if test.reveal != want {
				want = revealOf("a", test.reveal)
			}
			if client.Commitment != test.next || r.CurrentRound().Challenge != want || r.Reveals != reveals {
				t.Errorf("committed to %x, challenge %x, want %x", client.Commitment, r.CurrentRound().Challenge, want)
			}
			if _, ok := r.AuditSeed(r.Progress.Step); ok {
				t.Error("the running round has an audit seed")
			}
		})
	}
	t.Run("without a commitment", func(t *testing.T) {
		r := chainedRun(t)
		client, _ := r.Member(clientID("a"))
		client.Commitment = [32]byte{}
		proof := r.witnessOf()
		proof.Reveal[3] = 1
		r.refusedTo(ErrInvalidAction, client.ID, proof)
		proof.Reveal = [32]byte{}
		r.mustID(client.ID, proof)
	})
	t.Run("in a proof that claims too much", func(t *testing.T) {
		r := chainedRun(t)
		proof := r.witnessOf()
		proof.Participants[0], proof.Participants[1], proof.Reveal[0] = 1<<64-1, 1<<64-1, 1
		r.refusedTo(ErrInvalidWitness, clientID("a"), proof)
	})
}

func revealOf(name string, value [32]byte) [32]byte {
	id := clientID(name)
	return sha256.Sum256(slices.Concat([]byte("psyche/reveal/v1"), id[:], value[:]))
}

// TestAuditSeed checks that the audit seed depends on the revealed values and on the seed chain
// after the next round's draw, or on the present seed chain if no round follows. Every proof
// changes the seed, but their order does not.
func TestAuditSeed(t *testing.T) {
	seed := func(last bool, names ...string) [32]byte {
		r := chainedRun(t)
		if last {
			r.Config.RoundsPerEpoch = 1
		}
		var revealed [32]byte
		for _, name := range names {
			proof := r.witnessOf()
			proof.Reveal = chainOf(name)[2]
			r.must(name, proof)
			for i, b := range revealOf(name, proof.Reveal) {
				revealed[i] ^= b
			}
		}
		for r.Progress.Step == 1 {
			if _, ok := r.AuditSeed(1); ok {
				t.Fatal("an audit seed exists before the round is over")
			}
			r.now += second
			r.Tick(r.now, testDraw(5))
		}
		want := sha256.Sum256(slices.Concat([]byte("psyche/audit/seed/v1"), r.SeedChain[:], revealed[:]))
		got, ok := r.AuditSeed(1)
		if !ok || got != want || (r.RunState == Cooldown) != last {
			t.Errorf("%s: seed %x, %t, want %x", r.RunState, got, ok, want)
		}
		if _, ok := r.AuditSeed(2); ok {
			t.Error("an audit seed exists for the running or the next round")
		}
		if _, ok := r.AuditSeed(0); ok {
			t.Error("an audit seed exists for a round that does not exist")
		}
		return got
	}
	all := seed(false, "a", "b", "c")
	for name, other := range map[string][32]byte{
		"in another order": seed(false, "c", "a", "b"),
		"without c":        seed(false, "a", "b"),
		"without a":        seed(false, "b", "c"),
		"at the end":       seed(true, "a", "b", "c"),
	} {
		if (other == all) != (name == "in another order") {
			t.Errorf("%s: %x, and %x in order", name, other, all)
		}
	}
}

// TestAuditSeedsAreKept checks that audit seeds are kept as long as their rounds, and do not
// change.
func TestAuditSeedsAreKept(t *testing.T) {
	r := chainedRun(t)
	known := map[uint32][32]byte{}
	for r.Progress.Step < 8 {
		r.round()
		for step := range r.Progress.Step {
			seed, ok := r.AuditSeed(step)
			if stored := step > 0 && step+StoredRounds > r.Progress.Step; ok != stored {
				t.Fatalf("step %d of %d: %t", step, r.Progress.Step, ok)
			}
			if before, seen := known[step]; ok && seen && before != seed {
				t.Fatalf("the seed of step %d has changed", step)
			}
			known[step] = seed
		}
	}
	step := r.Progress.Step - 1
	r.Config.RoundsPerEpoch = 9
	r.finishEpoch("x")
	for _, old := range []uint32{step, step + 1, step + 2} {
		if seed, ok := r.AuditSeed(old); !ok || seed == ([32]byte{}) {
			t.Errorf("%s: no seed of step %d", r.RunState, old)
		}
	}
}

// TestRevealsContinueInTheNextEpoch checks that a client's hash chain of revealed values continues
// in the next epoch, after the last value that it revealed as a witness.
func TestRevealsContinueInTheNextEpoch(t *testing.T) {
	r := chainedRun(t)
	r.Config.RoundsPerEpoch = 1
	for _, name := range []string{"a", "b", "c"} {
		proof := r.witnessOf()
		proof.Reveal = chainOf(name)[2]
		r.must(name, proof)
	}
	r.until(Cooldown)
	for _, name := range []string{"a", "b", "c"} {
		r.must(name, ReportCheckpoint{Step: r.Progress.Step})
	}
	r.until(Warmup)
	r.refusedTo(ErrInvalidAction, clientID("a"), Ready{Epoch: 1, Reveal: chainOf("a")[2]})
	r.must("a", Ready{Epoch: 1, Reveal: chainOf("a")[3]})
}
