package coordinator

import (
	"bytes"
	"errors"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/psyche-go/psyche/base/fuzztest"
	"github.com/psyche-go/psyche/base/golden"
)

// goldenState returns a state after one and a half epochs. Every field has a value.
func goldenState(t testing.TB) State {
	t.Helper()
	genesis := Genesis{
		RunID: "walk", Host: host, MainAuthority: clientID("main"), JoinAuthority: clientID("door"), Permissioned: true,
		Config: testConfig(), Model: testModel(),
	}
	genesis.Model.ColdStartWarmupSteps = 1
	s := newRunOf(t, genesis, "a", "b", "c", "d")
	s.finishEpoch("x")
	s.must("b", ReportUpload{Step: 2, Digest: clientID("x"), Place: Location{Kind: CheckpointHub, Repo: "org/run", Revision: strings.Repeat("0123456789", 4)}})
	s.must("a", ReportUpload{Step: 2, Digest: clientID("x"), Place: Location{Kind: CheckpointGcs, Repo: "bucket", Revision: "prefix"}})
	s.Earlier, s.RollbackGaps = []Recorded{{Step: 1, Digest: clientID("w")}}, []RollbackGap{{First: 1, Last: 1}} // simulates earlier events
	for _, name := range []string{"e", "g", "h"} {
		s.must("door", Authorize{Grantee: clientID(name), Allowed: true})
	}
	s.must("e", SetDelegates{Number: 5, Delegates: []ClientID{clientID("f"), clientID("e2")}})
	s.join("e", "f", "g")
	s.must("main", Eject{Client: clientID("g")})
	s.must("f", Withdraw{Client: clientID("f")})
	s.startTraining()
	s.must("host", Withdraw{Client: clientID("d")})
	s.must("e", Join{Epoch: s.Progress.Epoch, Commitment: clientID("commitment")})
	s.witnessAll()
	s.must("main", SetPaused{Paused: true})
	s.DrawCommitment, s.Reveals = clientID("draw"), clientID("reveals")
	s.Epoch.Clients[0].Lateness, s.Epoch.Clients[1].Lateness, s.Epoch.Clients[2].Lateness = Slow, FoundLate, Late // simulates findings of witnesses
	s.Config.ProbationSteps, s.Pending[0].Waited, s.Pending[0].ProbationUntil, s.Uploads[0].Since = 9, true, 12, 7
	s.Epoch.Clients[0].Returns, s.Epoch.Clients[1].Complaints, s.Config.EjectionEpochs = 2, 2, 3
	s.Epoch.Rounds[0].Challenge = clientID("challenge")
	s.Epoch.Rounds[0].Witnesses[1].Claim = Claim{Loss: 0x0102, Speed: 0x03040506}
	s.Epoch.Clients[0].HoldsEarlier = 1
	s.Config.SharesBySpeed = true
	s.Epoch.Clients[0].Offer, s.Epoch.Clients[0].Level, s.Epoch.Clients[0].Offered, s.Epoch.Clients[0].Excuses = 90, 80, true, 2
	for i := range s.Epoch.Rounds[0].Members {
		s.Epoch.Rounds[0].Levels[i] = 80 + uint8(i)
	}
	s.Epoch.Rounds[0].Excused = MemberSet{2}
	s.Config.RetryLost = true
	s.Lost, s.Marks = []Stretch{{4, 6, 0}, {8, 9, 7}}, []Mark{{0, 0}, {2, 16}}
	s.Epoch.Rounds[0].Retries, s.Progress.DataIndex = []Stretch{{1, 3, 2}}, s.Progress.DataIndex-2
	s.Epoch.Clients[1].Report, s.Epoch.Clients[1].HeldOut = Recorded{Step: 2, Digest: clientID("d2")}, 0x0708
	s.Authority.Ejections[0].Reason = FoundGuilty
	return s.State
}

func TestGoldenBytes(t *testing.T) {
	for name, state := range map[string]State{"state-v13.golden": goldenState(t), "tried-v13.golden": triedState(t)} {
		t.Run(name, func(t *testing.T) { keepsItsBytes(t, name, state) })
	}
}

func keepsItsBytes(t *testing.T, name string, state State) {
	t.Helper()
	raw := state.AppendTo(nil)
	golden.Compare(t, name, raw)
	decoded, err := Decode(raw)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(state, decoded, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("decoded (-want +got):\n%s", diff)
	}
	if state.Hash() != decoded.Hash() {
		t.Error("hashes differ")
	}
}

// triedState returns a state with two trials: jurors are voting in one, and the other has no jury
// yet.
func triedState(t testing.TB) State {
	t.Helper()
	c := newCourt(t, 14)
	c.tried(FaultResult)
	c.mustID(c.accused, Accuse{Step: c.step + 1, Client: member(5), Fault: FaultSilent})
	c.vote(true, 3)
	c.vote(false, 2)
	for i := range c.Epoch.Clients {
		if client := &c.Epoch.Clients[i]; client.State == Healthy {
			c.mustID(client.ID, ReportCheckpoint{Step: c.Progress.Step, Digest: clientID("commit")})
		}
	}
	return c.State
}

func TestDecodeRefusesBrokenTrials(t *testing.T) {
	for _, test := range []struct {
		name  string
		alter func(*State, *Trial)
	}{
		{"trials", func(_ *State, a *Trial) { a.Fault = 0 }},
		{"trials", func(_ *State, a *Trial) { a.Fault = maxFault + 1 }},
		{"trials", func(_ *State, a *Trial) { a.Accused = a.Accuser }},
		{"trials", func(_ *State, a *Trial) { a.Slot = MaxTrials }},
		{"trials", func(s *State, a *Trial) { s.Trials[1].Slot = a.Slot }},
		{"trials", func(s *State, a *Trial) { s.Trials[1].Accuser = a.Accuser }},
		{"trials", func(s *State, a *Trial) {
			s.Trials[1].Accused, s.Trials[1].Accuser, s.Trials[1].Step = a.Accused, member(5), a.Step
		}},
		{"trials", func(s *State, a *Trial) { a.Since = s.Progress.Step + 1 }},
		{"trials", func(_ *State, a *Trial) { a.Step = a.Since }},
		{"trials", func(_ *State, a *Trial) { a.Step = 0 }},
		{"trials", func(s *State, a *Trial) { a.SinceTime = s.StateStart + 1 }},
		{"trials", func(_ *State, a *Trial) { a.Jurors, a.Guilty, a.Innocent = 0, 0, 0 }}, // although the round after the accusation has begun
		{"trials", func(s *State, _ *Trial) { s.Trials[1].Since-- }},
		{"trials", func(_ *State, a *Trial) { a.Jurors, a.Guilty, a.Innocent = 1, 0, 0 }},
		{"trials", func(_ *State, a *Trial) { a.Jurors = MaxJury + 1 }},
		{"trials", func(_ *State, a *Trial) { a.Guilty = a.Jurors - a.Innocent + 1 }},
		{"trials", func(_ *State, a *Trial) { a.Guilty = 7 }}, // of 12 jurors
		{"trials", func(_ *State, a *Trial) { a.Innocent = 7 }},
		{"trials", func(s *State, a *Trial) { s.Trials = slices.Repeat([]Trial{*a}, MaxTrials+1) }},
		{"trials", func(s *State, a *Trial) {
			for i := range uint8(2) {
				s.Trials = append(s.Trials, Trial{
					Slot: 2 + i, Accused: a.Accused, Accuser: member(6 + int(i)), Step: a.Step + 1 - 2*uint32(i), Fault: 1, Since: s.Progress.Step,
				})
			}
		}},
		{"clients", func(s *State, _ *Trial) { s.Epoch.Clients[0].Voted = 1 }}, // client 0 is the accuser
		{"departed", func(s *State, _ *Trial) { s.Departed = []Client{{ID: clientID("z"), Voted: 4}} }},
		{"jurors", func(s *State, a *Trial) { a.Jurors-- }},
		{"jurors", func(s *State, a *Trial) { a.Guilty-- }},
		{"jurors", func(s *State, _ *Trial) { s.Epoch.Clients[0].Juror = 1 << 2 }},
		{"jurors", func(s *State, _ *Trial) { s.Epoch.Clients[0].Juror = 1 << s.Trials[1].Slot }},
		{"jurors", func(s *State, _ *Trial) { s.Trials = s.Trials[1:] }},
	} {
		t.Run(test.name, func(t *testing.T) {
			state := triedState(t)
			if err := state.Check(); err != nil {
				t.Fatal(err)
			}
			test.alter(&state, &state.Trials[0])
			var problem *decodeError
			if err := state.Check(); !errors.As(err, &problem) || problem.Field != test.name {
				t.Fatalf("got %v, want %s refused", err, test.name)
			}
		})
	}
}

// TestDecodeRefusesUnknownFlags checks that unknown flags of a configuration are refused.
func TestDecodeRefusesUnknownFlags(t *testing.T) {
	update := UpdateConfig{Config: testConfig(), Model: testModel()}
	raw := update.AppendTo(nil)
	raw[configSize-1] |= 2
	if _, err := DecodeUpdateConfig(raw); !errors.Is(err, ErrMalformed) {
		t.Errorf("an unknown flag: %v", err)
	}
}

func TestDecodeRefusesEveryTruncation(t *testing.T) {
	state := goldenState(t)
	raw := state.AppendTo(nil)
	for n := range raw {
		_, err := Decode(raw[:n])
		var problem *decodeError
		if !errors.As(err, &problem) || !errors.Is(err, ErrMalformed) || problem.Offset > n {
			t.Fatalf("%d of %d bytes: %v", n, len(raw), err)
		}
	}
	_, err := Decode(append(raw, 0))
	if !errors.Is(err, ErrMalformed) {
		t.Errorf("one byte too many: %v", err)
	}
	golden.Message(t, "a byte too many", err)
}

// TestDecodeRefusesEarlierEncodings checks that the error names the version of the encoding and a
// remedy.
func TestDecodeRefusesEarlierEncodings(t *testing.T) {
	state := goldenState(t)
	raw := state.AppendTo(nil)
	raw[0] = 10
	_, err := Decode(raw)
	var problem *decodeError
	if !errors.As(err, &problem) || !errors.Is(err, ErrMalformed) || problem.Version != 10 {
		t.Errorf("encoding 10: %v", err)
	}
	golden.Message(t, "encoding 10", err)
	for _, version := range []byte{0, EncodingVersion + 1, 255} {
		raw[0] = version
		if _, err := Decode(raw); !errors.As(err, &problem) || problem.Version != 0 || problem.Field != "version" {
			t.Errorf("encoding %d: %v", version, err)
		}
	}
}

func TestDecodeRefusesBrokenInvariants(t *testing.T) {
	tests := []struct {
		name  string
		alter func(*State)
	}{
		{"run state", func(s *State) { s.RunState = Uninitialized }},
		{"run state", func(s *State) { s.RunState = 9 }},
		{"run id", func(s *State) { s.RunID = "" }},
		{"config", func(s *State) { s.Config.MinClients = 0 }},
		{"model", func(s *State) { s.Model.MaxSeqLen = 0 }},
		{"step", func(s *State) { s.Progress.Step = 0 }},
		{"step", func(s *State) { s.Progress.Step = s.Config.TotalSteps + 2 }},
		{"checkpoint step", func(s *State) { s.Model.Checkpoint.Step = s.Progress.Step }},
		{"step", func(s *State) { s.Config.TotalSteps = s.Progress.Step - 1 }},
		{"run state", func(s *State) { s.RunState = Finished }},
		{"closed", func(s *State) { s.Closed = true }},
		{"data index", func(s *State) { s.Progress.DataIndex = 1 << 40 }},
		{"epoch number", func(s *State) { s.Progress.Epoch = s.Progress.Step }},
		{"authorizations", func(s *State) { s.Authority.Permissioned = false }},
		{"authorizations", func(s *State) { s.Authority.Grants = 1 }},
		{"authorizations", func(s *State) { s.Authority.Authorizations[1].Number = 1 }},
		{"authorizations", func(s *State) { s.Authority.Authorizations[1].Grantee = clientID("a") }},
		{"delegates", func(s *State) { s.Authority.Authorizations[4].Delegates[0] = clientID("e") }},
		{"delegates", func(s *State) { s.Authority.Authorizations[4].Delegates[0] = clientID("e2") }},
		{"ejections", func(s *State) { s.Authority.Ejections[0].Until = s.Progress.Epoch }},
		{"ejections", func(s *State) { s.Authority.Ejections[0].Until = s.Progress.Epoch + 65_537 }},
		{"ejections", func(s *State) {
			s.Authority.Ejections[0].Reason, s.Authority.Ejections[0].Until = ByAuthority, s.Progress.Epoch+3
		}},
		{"ejections", func(s *State) { s.Authority.Ejections[0].Reason = AccusedWrongly + 1 }},
		{"ejections", func(s *State) {
			s.Authority.Ejections = append(s.Authority.Ejections, s.Authority.Ejections[0])
		}},
		{"uploads", func(s *State) { s.Uploads[0].Step++ }},
		{"uploads", func(s *State) { s.Uploads[0].Digest[0]++ }},
		{"uploads", func(s *State) { s.Uploads[0].Place.Revision = "main" }},
		{"uploads", func(s *State) { s.Uploads[1].Place.Repo = "with space" }},
		{"uploads", func(s *State) { s.Uploads[1].Place.Kind = CheckpointLocal }},
		{"uploads", func(s *State) { s.Uploads[1].Tries = MaxUploadTries + 1 }},
		{"uploads", func(s *State) { s.Uploads[1].Reporter = s.Uploads[0].Reporter }},
		{"uploads", func(s *State) {
			for i := range s.Uploads {
				s.Uploads[i].Step, s.Uploads[i].Digest[0] = 1, byte(i)
			}
		}},
		{"uploads", func(s *State) { s.Model.Checkpoint = s.Model.Checkpoint.origin() }},
		{"rollback gaps", func(s *State) { s.RollbackGaps = make([]RollbackGap, MaxRollbackGaps+1) }},
		{"earlier checkpoints", func(s *State) { s.Earlier[0].Step = 2 }},
		{"origin step", func(s *State) { s.OriginStep = 0 }},
		{"origin step", func(s *State) { s.OriginStep = s.Progress.Step + 1 }},
		{"rollback gaps", func(s *State) { s.RollbackGaps[0].First = 2 }},
		{"rollback gaps", func(s *State) { s.RollbackGaps[0].Last = s.Progress.Step }},
		{"rollback gaps", func(s *State) { s.RollbackGaps = append(s.RollbackGaps, s.RollbackGaps[0]) }},
		{"pending", func(s *State) { s.Pending[0].ID = clientID("nobody") }},
		{"pending", func(s *State) { s.Authority.Ejections[0].Client = s.Pending[0].ID }},
		{"clients", func(s *State) { s.Epoch.Clients[0].OptimizerSince = s.Progress.Step + 1 }},
		{"warming members", func(s *State) { s.Epoch.Rounds[0].Warming[31] = 128 }},
		{"excused members", func(s *State) { s.Epoch.Rounds[0].Excused[31] = 128 }},
		{"clients", func(s *State) { s.Epoch.Clients[0].Excuses = MaxExcuses + 1 }},
		{"clients", func(s *State) { s.Epoch.Clients[0].Offer = 0 }},
		{"pending", func(s *State) { s.Pending[0].Offered = true }},
		{"pending", func(s *State) { s.Pending[0].Excuses = 1 }},
		{"pending pause", func(s *State) { s.PendingResume = true }},
		{"clients", func(s *State) { s.Epoch.Clients[1].ID = s.Epoch.Clients[0].ID }},
		{"clients", func(s *State) { s.Epoch.Clients[1].State = 4 }},
		{"clients", func(s *State) { s.RunState = WaitingForMembers }},
		{"exited", func(s *State) { s.Epoch.Exited = []Client{{ID: clientID("z")}} }},
		{"exited", func(s *State) { s.Epoch.Exited = []Client{{ID: clientID("z"), State: Dropped}} }},
		{"clients", func(s *State) { s.Epoch.Clients[0].ProbationUntil = 0 }},
		{"clients", func(s *State) { s.Epoch.Clients[0].Waited = true }},
		{"departed", func(s *State) { s.Departed[0].Waited = true }},
		{"pending", func(s *State) { s.Pending[0].Lateness = Late }},
		{"pending", func(s *State) { s.Pending[0].Returns = 1 }},
		{"pending", func(s *State) { s.Pending[0].State = Withdrawn }},
		{"pending", func(s *State) { s.Pending[0].ID = s.Epoch.Clients[0].ID }},
		{"ready", func(s *State) { s.Epoch.Ready[1] = s.Epoch.Ready[0] }},
		{"reports", func(s *State) { s.Epoch.Clients[0].Report.Step = s.Progress.Step }},
		{"reports", func(s *State) { s.Pending[0].Report.Step = s.Progress.Step }},
		{"reports", func(s *State) { s.Departed[0].HoldsEarlier = s.Progress.Step }},
		{"intermediate checkpoint", func(s *State) { s.Epoch.Commit.Step = s.Progress.Step }},
		{"intermediate checkpoint", func(s *State) { s.Epoch.Commit.Digest[0] = 1 }},
		{"intermediate checkpoint", func(s *State) { s.Epoch.Commit.Step = s.Model.Checkpoint.Step }},
		{"rounds", func(s *State) { s.Epoch.Rounds = nil }},
		{"epoch's start step", func(s *State) { s.RunState, s.Epoch.Rounds, s.Epoch.StartStep = Warmup, nil, 1 }},
		{"rounds", func(s *State) { s.Progress.DataIndex++ }},
		{"rounds", func(s *State) { s.Epoch.Rounds[0].Height++ }},
		{"rounds", func(s *State) { s.Epoch.Rounds = append(s.Epoch.Rounds, s.Epoch.Rounds[0]) }},
		{"round members", func(s *State) { s.Epoch.Rounds[0].Members[1] = s.Epoch.Rounds[0].Members[0] }},
		{"round data index", func(s *State) { s.Epoch.Rounds[0].DataIndex = 1<<64 - 1 }},
		{"witnesses elected", func(s *State) { s.Epoch.Rounds[0].WitnessesNeeded-- }},
		{"witnesses", func(s *State) { s.Epoch.Rounds[0].Witnesses[1].Member = s.Epoch.Rounds[0].Witnesses[0].Member }},
		{"witnesses", func(s *State) { s.Epoch.Rounds[0].Witnesses[1].Member = 77 }},
		{"witnesses", func(s *State) { s.Epoch.Rounds[0].Witnesses[1].Participants[3] = 1<<64 - 1 }},
		{"witnesses", func(s *State) { s.Epoch.Rounds[0].Witnesses[1].Commitments[3] = 1<<64 - 1 }},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			state := goldenState(t)
			test.alter(&state)
			_, err := Decode(state.AppendTo(nil))
			var problem *decodeError
			if !errors.As(err, &problem) || problem.Field != test.name {
				t.Fatalf("got %v, want %s refused", err, test.name)
			}
			if state.Check() == nil {
				t.Error("Check accepts the state")
			}
			var following Decoder
			good := goldenState(t)
			if _, err := following.Decode(good.AppendTo(nil)); err != nil {
				t.Fatal(err)
			}
			if _, err := following.Decode(state.AppendTo(nil)); !errors.As(err, &problem) || problem.Field != test.name {
				t.Fatalf("after restoring the state: got %v, want %s refused", err, test.name)
			}
		})
	}
}

// TestDecoderRemembersNoWrongElection changes the inputs of an election and the witnesses from one
// state to the next. It checks that a Decoder refuses the same states as Decode.
func TestDecoderRemembersNoWrongElection(t *testing.T) {
	config := testConfig()
	config.WitnessNodes = 1
	run := newRun(t, config, "a", "b", "c", "d", "e")
	run.startTraining()
	run.witnessAll()
	var following Decoder
	refused := 0
	for seed := range uint64(8) {
		for range 2 { // the second time uses the remembered election
			for member := range uint16(5) {
				s := run.Clone()
				round := s.CurrentRound()
				round.Seed = seed
				round.Witnesses[0].Member = member
				raw := s.AppendTo(nil)
				_, want := Decode(raw)
				if _, got := following.Decode(raw); (got == nil) != (want == nil) {
					t.Fatalf("member %d with seed %d: %v, want %v", member, seed, got, want)
				}
				if want != nil {
					refused++
				}
			}
		}
	}
	if want := 8 * 2 * 4; refused != want {
		t.Errorf("%d states were refused, want %d", refused, want)
	}
	s := run.Clone()
	s.Config.WitnessNodes = 0
	if _, err := following.Decode(s.AppendTo(nil)); !errors.Is(err, ErrMalformed) {
		t.Errorf("one witness elected instead of all: %v", err)
	}
}

func TestCloneSharesNothing(t *testing.T) {
	state := goldenState(t)
	before := state.AppendTo(nil)
	c := state.Clone()
	c.Model.Definition[0]++
	c.Epoch.Clients[0].Nonce++
	c.Epoch.Rounds[0].Members[0][0]++
	c.Epoch.Rounds[0].Witnesses[0].Member++
	c.Epoch.Ready[0][0]++
	tried := triedState(t)
	hash, other := tried.Hash(), tried.Clone()
	other.Trials[1].Step++
	if tried.Hash() != hash {
		t.Error("a change of the copy's trials changed the original")
	}
	c.Pending[0].Nonce++
	c.Departed[0].Nonce++
	c.Authority.Authorizations[0].Number++
	c.Authority.Authorizations[4].Delegates[0][0]++
	c.Authority.Ejections[0].Until++
	c.Earlier[0].Step++
	c.Uploads[0].Tries++
	c.RollbackGaps[0].Last++
	if !bytes.Equal(before, state.AppendTo(nil)) {
		t.Error("a change of the copy changed the original")
	}
}

func TestLargestStateFits(t *testing.T) {
	state := largestState(t)
	state.Authority.Permissioned = true
	state.Authority.Grants = MaxAuthorizations
	for i := range MaxAuthorizations {
		name := strconv.Itoa(i)
		authorization := Authorization{Grantee: clientID("member " + name), Number: uint32(i) + 1}
		for j := range MaxDelegates {
			authorization.Delegates = append(authorization.Delegates, clientID(strconv.Itoa(j)+" of "+name))
		}
		state.Authority.Authorizations = append(state.Authority.Authorizations, authorization)
		state.Authority.Ejections = append(state.Authority.Ejections, Ejection{Client: clientID("e" + name), Until: 1})
	}
	state.Model.Checkpoint.Repo = strings.Repeat("r", MaxRepoLength)
	checkpoint := &state.Model.Checkpoint
	checkpoint.Kind, checkpoint.Origin, checkpoint.Step = CheckpointP2P, CheckpointHub, 3
	state.Progress.Step = max(state.Progress.Step, 4)
	for i := range MaxUploads {
		state.Uploads = append(state.Uploads, Upload{Reporter: clientID("u" + strconv.Itoa(i)), Place: Location{Kind: CheckpointGcs, Repo: strings.Repeat("r", MaxRepoLength)}})
	}
	newest := state.CurrentRound()
	for i := range MaxTrials {
		state.Trials = append(state.Trials, Trial{
			Slot: uint8(i), Accused: newest.Members[i], Accuser: newest.Members[i+8], Step: newest.Step - 1, Fault: FaultSilent, Since: newest.Step,
		})
	}
	for i := range uint32(3) {
		state.Earlier = append(state.Earlier, Recorded{Step: i})
	}
	raw := state.AppendTo(nil)
	t.Logf("%d bytes, bound %d", len(raw), MaxStateSize)
	if len(raw) > MaxStateSize {
		t.Errorf("%d bytes, bound %d", len(raw), MaxStateSize)
	}
	if _, err := Decode(raw); err != nil {
		t.Error(err)
	}
}

func TestUpdateConfigRoundTrip(t *testing.T) {
	u := UpdateConfig{Config: testConfig(), Model: testModel()}
	raw := u.AppendTo(nil)
	decoded, err := DecodeUpdateConfig(raw)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(u, decoded); diff != "" {
		t.Errorf("decoded (-want +got):\n%s", diff)
	}
	for n := range raw {
		if _, err := DecodeUpdateConfig(raw[:n]); !errors.Is(err, ErrMalformed) {
			t.Fatalf("%d of %d bytes: %v", n, len(raw), err)
		}
	}
	if _, err := DecodeUpdateConfig(append(raw, 0)); !errors.Is(err, ErrMalformed) {
		t.Errorf("one byte too many: %v", err)
	}
	u.Model.MaxSeqLen = 0
	checkConfigError(t, u.Validate(), "max_seq_len")
	u.Config.MinClients = 0
	checkConfigError(t, u.Validate(), "min_clients")
}

func FuzzDecodeUpdateConfig(f *testing.F) {
	u := UpdateConfig{Config: testConfig(), Model: testModel()}
	f.Add(u.AppendTo(nil))
	fuzztest.Run(f, func(t *testing.T, raw []byte) {
		u, err := DecodeUpdateConfig(raw)
		if err != nil {
			return
		}
		if !bytes.Equal(u.AppendTo(nil), raw) {
			t.Fatal("a second encoding of the same configuration was accepted")
		}
		_ = u.Validate()
	})
}

// fuzzedStates returns states of every phase of a run.
func fuzzedStates(t testing.TB) []State {
	t.Helper()
	fresh, err := New("walk", host, testConfig(), testModel())
	if err != nil {
		t.Fatal(err)
	}
	states := []State{goldenState(t), triedState(t), fresh}
	late := fresh.Clone()
	late.StateStart = 1<<64 - 1
	states = append(states, late)
	c := newCourt(t, 5)
	c.accuse(FaultSilent)
	c.cooldown()
	states = append(states, c.Clone())
	c.finishEpoch("x")
	states = append(states, c.Clone())
	paused := c.Clone()
	paused.RunState = Paused
	closed := paused.Clone()
	closed.Closed = true
	c.until(Warmup)
	last := c.Clone()
	last.Config.TotalSteps = last.Progress.Step
	return append(states, paused, closed, c.Clone(), last)
}

func FuzzDecode(f *testing.F) {
	for _, state := range fuzzedStates(f) {
		f.Add(state.AppendTo(nil))
	}
	fuzztest.Run(f, func(t *testing.T, raw []byte) {
		state, err := Decode(raw)
		if err != nil {
			return
		}
		if !bytes.Equal(state.AppendTo(nil), raw) {
			t.Fatal("a second encoding of the same state was accepted")
		}
		// An accepted state must be usable.
		_ = state.String()
		_ = state.Accusable()
		_ = state.Awaited()
		_, _ = state.AuditSeed(state.Progress.Step - 1)
		for _, client := range state.Epoch.Clients {
			_ = state.MayAccuse(client.ID, Accuse{Step: 1, Client: client.ID, Fault: FaultResult})
			_, _ = state.Juror(client.ID, 7)
		}
		for i := range uint64(4) {
			state.Tick(state.StateStart+i<<50, testDraw(i))
		}
		if err := state.Check(); err != nil {
			t.Fatalf("after ticks: %v", err)
		}
	})
}

// TestFuzzedStatesAreStates checks that the seeds of the fuzz test are valid states.
func TestFuzzedStatesAreStates(t *testing.T) {
	for i, state := range fuzzedStates(t) {
		if err := state.Check(); err != nil {
			t.Errorf("state %d: %v\n%s", i, err, state.String())
		}
	}
}
