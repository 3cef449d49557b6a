package coordinator

import (
	"bytes"
	"errors"
	"slices"
	"strconv"
	"testing"

	"pgregory.net/rapid"

	"github.com/psyche-go/psyche/core/merkle"
)

// run plays a state through its usual phases.
type run struct {
	State
	t     testing.TB
	now   uint64
	nonce uint64

	silent ClientID // client that sends no proofs in rounds
	claim  Claim    // claim in every witness's proof

	heldOut map[ClientID]uint16 // claims about the model at the end of an epoch
}

// testDraw returns the draw for a number.
func testDraw(n uint64) (draw [32]byte) {
	le.PutUint64(draw[:], n)
	return draw
}

func newRun(t testing.TB, config Config, names ...string) *run {
	t.Helper()
	return newRunOf(t, Genesis{RunID: "walk", Host: host, Config: config, Model: testModel()}, names...)
}

func newRunOf(t testing.TB, genesis Genesis, names ...string) *run {
	t.Helper()
	state, err := genesis.State()
	if err != nil {
		t.Fatal(err)
	}
	r := &run{State: state, t: t, now: 1000 * second}
	if genesis.Permissioned {
		for _, name := range names {
			r.mustID(r.Authority.Join, Authorize{Grantee: clientID(name), Allowed: true})
		}
	}
	r.join(names...)
	r.startTraining()
	return r
}

func (r *run) must(name string, a Action) {
	r.t.Helper()
	r.mustID(clientID(name), a)
}

func (r *run) mustID(id ClientID, a Action) {
	r.t.Helper()
	r.nonce++
	if err := r.Apply(id, r.nonce, a); err != nil {
		r.t.Fatalf("%s: %T: %v", nameOf(id), a, err)
	}
}

func (r *run) join(names ...string) {
	r.t.Helper()
	for _, name := range names {
		r.must(name, Join{Epoch: r.Progress.Epoch})
	}
}

// until ticks once a second until the run is in the given state.
func (r *run) until(state RunState) {
	r.t.Helper()
	for range 1000 {
		if r.RunState == state {
			return
		}
		r.now += second
		r.Tick(r.now, r.testDraw(r.now))
	}
	r.t.Fatalf("still %s, want %s", r.RunState, state)
}

func (r *run) startTraining() {
	r.t.Helper()
	r.until(Warmup)
	for _, client := range r.Epoch.Clients {
		r.mustID(client.ID, Ready{Epoch: r.Progress.Epoch})
	}
	r.until(RoundTrain)
}

// witnessAll makes all elected healthy witnesses prove all awaited results.
func (r *run) witnessAll() {
	r.t.Helper()
	round := r.CurrentRound()
	a := WitnessRound{Step: round.Step, Claim: r.claim}
	var leaves [][32]byte
	for _, assigned := range round.Assignments(r.Config) {
		id := round.Members[assigned.Member]
		c := commitment(id, round.Step)
		a.Participants.Add(round.Seed, id[:])
		a.Commitments.Add(round.Seed, c[:])
		leaves = append(leaves, c)
	}
	a.CommitmentsRoot = merkle.Root(leaves)
	a.Replica = [32]byte{byte(round.Step)}
	for _, i := range round.ElectedWitnesses(r.Config) {
		if id := round.Members[i]; r.isHealthy(id) {
			r.mustID(id, a)
		}
	}
}

// finishEpoch plays from RoundTrain to WaitingForMembers or Finished.
func (r *run) finishEpoch(digest string) {
	r.t.Helper()
	for r.RunState != Cooldown {
		r.until(RoundTrain)
		r.witnessAll()
		r.until(RoundWitness)
		step := r.Progress.Step
		for r.Progress.Step == step {
			r.now += second
			r.Tick(r.now, r.testDraw(r.now))
		}
	}
	for _, client := range r.Epoch.Clients {
		if client.State != Healthy {
			continue
		}
		r.mustID(client.ID, ReportCheckpoint{Step: r.Progress.Step, Digest: clientID(digest), HeldOut: r.heldOut[client.ID]})
	}
	r.now += second
	r.Tick(r.now, r.testDraw(r.now))
}

// largestState returns a state in which every list is full.
func largestState(t testing.TB) State {
	t.Helper()
	config := testConfig()
	config.RoundsPerEpoch, config.GlobalBatchSizeStart, config.GlobalBatchSizeEnd = 9, 512, 512
	names := make([]string, MaxClients)
	for i := range names {
		names[i] = "member " + strconv.Itoa(i)
	}
	r := newRun(t, config, names...)
	r.Model.Definition = make([]byte, MaxDefinitionSize)
	for range StoredRounds {
		r.until(RoundTrain)
		r.witnessAll()
		r.until(RoundWitness)
	}
	return r.State
}

func TestSeedsOfRoundsDiffer(t *testing.T) {
	config := testConfig()
	config.RoundsPerEpoch = 50
	s := newRun(t, config, "a", "b", "c")
	seen := map[uint64]bool{}
	for range 20 {
		s.until(RoundTrain)
		seed := s.CurrentRound().Seed
		if seen[seed] {
			t.Fatal("two rounds have the same seed")
		}
		seen[seed] = true
		s.witnessAll()
		s.until(RoundWitness)
		s.StateStart -= 10 * second
		s.Tick(s.now, testDraw(7))
	}
}

// TestNothingIsTrainedTwice plays many epochs in which members join and leave, and checks that no
// data belongs to two rounds.
func TestNothingIsTrainedTwice(t *testing.T) {
	config := testConfig()
	config.TotalSteps, config.GlobalBatchSizeWarmupTokens, config.GlobalBatchSizeEnd = 40, 10000, 40
	s := newRun(t, config, "a", "b", "c")
	next, step := uint64(0), uint32(1)
	for epoch := 0; ; epoch++ {
		for s.RunState != Cooldown {
			s.until(RoundTrain)
			round := s.CurrentRound()
			if round.DataIndex != next || round.Step != step {
				t.Fatalf("round of step %d at %d, want step %d at %d", round.Step, round.DataIndex, step, next)
			}
			next += uint64(round.BatchSize)
			step++
			s.witnessAll()
			s.until(RoundWitness)
			for s.Progress.Step != step {
				s.now += second
				s.Tick(s.now, testDraw(s.now))
			}
		}
		if s.Progress.DataIndex != next {
			t.Fatalf("data index %d after the epoch, want %d", s.Progress.DataIndex, next)
		}
		s.finishEpoch("d" + strconv.Itoa(epoch))
		if s.RunState == Finished {
			break
		}
		if epoch%3 == 1 {
			s.must("c", Withdraw{Client: clientID("c")})
			s.join("c")
		}
		s.startTraining()
	}
	if step != 41 || s.Progress.Step != 41 || s.Model.Checkpoint.Step != 40 {
		t.Errorf("finished at step %d, checkpoint of step %d", s.Progress.Step, s.Model.Checkpoint.Step)
	}
}

func TestRingHoldsTheNewestRounds(t *testing.T) {
	config := testConfig()
	config.RoundsPerEpoch = 10
	s := newRun(t, config, "a", "b", "c")
	if s.roundFromEnd(1) != nil {
		t.Error("the first round has a previous round")
	}
	for range 6 {
		s.until(RoundTrain)
		s.witnessAll()
		s.until(RoundWitness)
	}
	s.until(RoundTrain)
	if got := s.CurrentRound().Step; got != 7 {
		t.Fatalf("current step %d", got)
	}
	if got := s.roundFromEnd(1).Step; got != 6 {
		t.Errorf("previous step %d", got)
	}
	for step := uint32(0); step < 10; step++ {
		round, want := s.RoundOfStep(step), step >= 4 && step <= 7
		if (round != nil) != want {
			t.Errorf("round of step %d stored: %t, want %t", step, round != nil, want)
		}
	}
}

func TestCountedDoesNotDependOnOrder(t *testing.T) {
	s := newRun(t, testConfig(), "a", "b", "c", "d")
	round := s.CurrentRound()
	low, high, unseen := [32]byte{1}, [32]byte{2}, [32]byte{3}
	for i, id := range round.Members {
		w := WitnessRound{Step: round.Step, CommitmentsRoot: [32]byte{9}, Replica: [32]byte{byte(i / 3)}}
		w.Commitments.Add(round.Seed, low[:])
		if i < 3 {
			w.Commitments.Add(round.Seed, high[:])
		}
		s.mustID(id, w)
		if i == 1 {
			if _, ok := round.counted([][32]byte{low}); ok {
				t.Error("two of four votes are counted")
			}
		}
	}
	candidates := [][32]byte{unseen, high, low}
	for range len(candidates) {
		candidates = append(candidates[1:], candidates[0])
		got, ok := round.counted(candidates)
		if !ok || got != low {
			t.Errorf("counted %x, %t, want the commitment with most votes", got[:1], ok)
		}
	}
	if _, ok := round.counted([][32]byte{unseen}); ok {
		t.Error("a result without witnesses counts")
	}
	if _, ok := round.counted(nil); ok {
		t.Error("no commitment is counted")
	}
	if root, ok := round.QuorumRoot(); !ok || root != [32]byte{9} {
		t.Error("no quorum for the shared root")
	}
	round.Witnesses[0].CommitmentsRoot, round.Witnesses[1].CommitmentsRoot = [32]byte{8}, [32]byte{8}
	if _, ok := round.QuorumRoot(); ok {
		t.Error("two of four are a quorum")
	}
}

// TestTieGoesToTheLowestCommitment checks two commitments of one trainer with equal votes.
func TestTieGoesToTheLowestCommitment(t *testing.T) {
	s := newRun(t, testConfig(), "a", "b", "c")
	round := s.CurrentRound()
	low, high := [32]byte{1}, [32]byte{2}
	for _, id := range round.Members {
		w := WitnessRound{Step: round.Step}
		w.Commitments.Add(round.Seed, low[:])
		w.Commitments.Add(round.Seed, high[:])
		s.mustID(id, w)
	}
	for _, candidates := range [][][32]byte{{low, high}, {high, low}} {
		if got, ok := round.counted(candidates); !ok || got != low {
			t.Errorf("counted %x, want the lower", got[:1])
		}
	}
}

// TestDepartedAreBounded checks that the list of departed clients is bounded although more clients
// join and leave.
func TestDepartedAreBounded(t *testing.T) {
	config := testConfig()
	s := newRun(t, config, "a", "b", "c")
	for i := range MaxClients {
		s.join("n" + strconv.Itoa(i))
	}
	for i := range MaxClients + 5 { // more than the maximum number of departed clients
		name := "n" + strconv.Itoa(i)
		if s.IsPending(clientID(name)) {
			s.must(name, Withdraw{Client: clientID(name)})
		}
		s.join("x" + strconv.Itoa(i))
		s.must("x"+strconv.Itoa(i), Withdraw{Client: clientID("x" + strconv.Itoa(i))})
	}
	if len(s.Departed) != MaxClients {
		t.Errorf("%d departed are remembered", len(s.Departed))
	}
	if err := s.Check(); err != nil {
		t.Error(err)
	}
}

func TestUnknownActionsAreRefused(t *testing.T) {
	s := newRun(t, testConfig(), "a", "b", "c")
	for _, a := range []Action{nil, &Join{}, HealthCheck{Step: 0, Clients: make([]ClientID, MaxClients+1)}} {
		if err := s.Apply(clientID("a"), 1000, a); !errors.Is(err, ErrInvalidAction) {
			t.Errorf("%T: %v", a, err)
		}
	}
	var zero State
	if err := zero.Apply(host, 1, Join{}); !errors.Is(err, ErrHalted) {
		t.Errorf("zero state: %v", err)
	}
	if zero.Tick(5, testDraw(5)) || zero.Check() == nil {
		t.Error("the zero state is valid or reacts to a tick")
	}
}

// TestOldestEjectionIsForgotten ejects more clients than the list can contain.
func TestOldestEjectionIsForgotten(t *testing.T) {
	s := newRun(t, testConfig(), "a", "b", "c")
	for i := range MaxEjections + 1 {
		name := "n" + strconv.Itoa(i)
		s.join(name)
		s.must("host", Eject{Client: clientID(name)})
	}
	if err := s.Check(); err != nil {
		t.Fatal(err)
	}
	if err := s.Apply(clientID("n1"), 1<<40, Join{}); !errors.Is(err, ErrNotAuthorised) {
		t.Errorf("an ejected client joins: %v", err)
	}
	s.join("n0")
}

// BenchmarkTick measures Tick for a run of 256 clients and 32 witnesses.
func BenchmarkTick(b *testing.B) {
	b.Run("nothing due", func(b *testing.B) {
		s := largestState(b)
		now := s.StateStart
		b.ReportAllocs()
		for b.Loop() {
			s.Tick(now, testDraw(1))
		}
	})
	b.Run("next round", func(b *testing.B) {
		full := largestState(b)
		b.ReportAllocs()
		for b.Loop() {
			b.StopTimer()
			s := full.Clone()
			b.StartTimer()
			if !s.Tick(s.StateStart+s.Config.RoundWitnessTime, testDraw(1)) || s.RunState != RoundTrain {
				b.Fatal("no next round")
			}
		}
	})
}

func BenchmarkEncode(b *testing.B) {
	s := largestState(b)
	buffer := s.AppendTo(nil)
	b.ReportAllocs()
	for b.Loop() {
		buffer = s.AppendTo(buffer[:0])
	}
}

func BenchmarkDecode(b *testing.B) {
	s := largestState(b)
	raw := s.AppendTo(nil)
	var following Decoder
	for _, test := range []struct {
		name   string
		decode func([]byte) (State, error)
	}{{"alone", Decode}, {"following", following.Decode}} {
		b.Run(test.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := test.decode(raw); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkApplyWitness(b *testing.B) {
	full := largestState(b)
	round := full.CurrentRound()
	w := round.Witnesses[len(round.Witnesses)-1]
	round.Witnesses = round.Witnesses[:len(round.Witnesses)-1]
	id := round.Members[w.Member]
	action := WitnessRound{Step: round.Step, Participants: w.Participants, Commitments: w.Commitments}
	b.ReportAllocs()
	for b.Loop() {
		if err := full.witness(id, &action); err != nil {
			b.Fatal(err)
		}
		r := full.CurrentRound()
		r.Witnesses = r.Witnesses[:len(r.Witnesses)-1]
	}
}

// TestIDSetFindsWhatTheListHas compares the table with a search of the list, including keys that
// all collide.
func TestIDSetFindsWhatTheListHas(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		someKey := rapid.Custom(func(t *rapid.T) (id ClientID) {
			id[0] = rapid.Byte().Draw(t, "key")
			id[8] = id[0] * rapid.ByteRange(0, 1).Draw(t, "collides")
			return id
		})
		ids := rapid.SliceOfN(someKey, 0, 40).Draw(t, "keys")
		set := newIDSet(ids)
		for _, id := range append([]ClientID{{}, {1}, {2}}, ids...) {
			if got, want := set.has(id), slices.Contains(ids, id); got != want {
				t.Fatalf("%x: %v, want %v", id, got, want)
			}
		}
		different := map[ClientID]bool{}
		for _, id := range ids {
			different[id] = true
		}
		if got, want := repeats(ids), len(different) < len(ids); got != want {
			t.Fatalf("repeats: %v, want %v", got, want)
		}
	})
}

// TestLookupInAnyOrder looks up clients in the order of the list, in a different order, and clients
// that are not in the list.
func TestLookupInAnyOrder(t *testing.T) {
	clients := make([]Client, 9)
	for i := range clients {
		clients[i] = Client{ID: ClientID{byte(i)}}
	}
	l := lookup{clients: clients}
	for _, i := range []byte{0, 1, 2, 5, 3, 9, 8, 0, 0, 77, 7} {
		if got := l.find(ClientID{i}); (got != nil) != (i < 9) || got != nil && got.ID != (ClientID{i}) {
			t.Errorf("client %d: %+v", i, got)
		}
	}
	none := lookup{}
	if none.find(ClientID{}) != nil {
		t.Error("an empty list has a client")
	}
}

// counted returns the candidate that counts for a batch: the commitment with the most votes, if it
// has a quorum. If several have equally many votes, the lowest counts. The order of candidates does
// not matter.
func (r *Round) counted(candidates [][32]byte) (commitment [32]byte, ok bool) {
	most := 0
	for _, candidate := range candidates {
		votes := r.Votes(candidate)
		if votes == 0 || votes < int(r.WitnessesNeeded) {
			continue
		}
		if votes > most || votes == most && bytes.Compare(candidate[:], commitment[:]) < 0 {
			commitment, most = candidate, votes
		}
	}
	return commitment, most > 0
}
