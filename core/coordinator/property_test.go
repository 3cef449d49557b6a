package coordinator

import (
	"bytes"
	"errors"
	"slices"
	"strconv"
	"testing"

	"pgregory.net/rapid"

	"github.com/psyche-go/psyche/core/bloom"
)

// someID draws one of a few clients, including the host.
func someID(t *rapid.T) ClientID {
	names := []string{"host", "a", "b", "c", "d", "e", "f", "g"}
	return clientID(rapid.SampledFrom(names).Draw(t, "client"))
}

// around draws n or a number that differs from n by one or two.
func around(t *rapid.T, n uint32) uint32 {
	return n + rapid.SampledFrom([]uint32{0, 0, 0, 0, 1, 1<<32 - 1, 2}).Draw(t, "offset")
}

// someCommitment draws the zero commitment or the commitment to the chain that honest clients
// reveal.
func someCommitment(t *rapid.T) [32]byte {
	return rapid.SampledFrom([][32]byte{{}, testLinks[0]}).Draw(t, "commitment")
}

// someReveal draws a value that may be the next value of that chain.
func someReveal(t *rapid.T) [32]byte {
	return rapid.SampledFrom([][32]byte{{}, testLinks[1], testLinks[2]}).Draw(t, "reveal")
}

// someAction draws an action that is sometimes valid and often hostile.
func someAction(t *rapid.T, s *State) Action {
	switch rapid.IntRange(0, 26).Draw(t, "action") {
	case 0, 1:
		a := Join{Epoch: around(t, s.Progress.Epoch), Commitment: someCommitment(t)}
		if rapid.IntRange(0, 4).Draw(t, "holds") == 0 {
			a.Holds = s.Model.Checkpoint.Digest
		}
		return a
	case 2:
		return Return{Epoch: around(t, s.Progress.Epoch)}
	case 3:
		return Ready{Epoch: around(t, s.Progress.Epoch), Reveal: someReveal(t), Next: someCommitment(t)}
	case 4, 5:
		return someWitness(t, s)
	case 6:
		return HealthCheck{
			Step:    around(t, s.Progress.Step-1),
			Clients: rapid.SliceOfN(rapid.Custom(someID), 0, 4).Draw(t, "accused"),
		}
	case 7:
		return ReportCheckpoint{Step: around(t, s.Progress.Step), Digest: [32]byte{rapid.Byte().Draw(t, "digest") % 2}, HeldOut: rapid.Uint16().Draw(t, "held-out loss")}
	case 8:
		return Withdraw{Client: someID(t)}
	case 9:
		return SetPaused{Paused: rapid.Bool().Draw(t, "paused")}
	case 10, 11:
		if rapid.IntRange(0, 2).Draw(t, "by a grant") == 0 {
			return Admit{Grant: ClientID{byte(rapid.IntRange(1, 2).Draw(t, "grant"))}, Client: someID(t), Allowed: rapid.IntRange(0, 3).Draw(t, "allowed") > 0}
		}
		return Authorize{Grantee: someID(t), Allowed: rapid.IntRange(0, 3).Draw(t, "allowed") > 0}
	case 12:
		return SetDelegates{
			Number:    rapid.Uint32Range(0, s.Authority.Grants+1).Draw(t, "number"),
			Delegates: rapid.SliceOfN(rapid.Custom(someID), 0, MaxDelegates+1).Draw(t, "delegates"),
		}
	case 13:
		return Eject{Client: someID(t)}
	case 14:
		return someUpdate(t, s)
	case 15, 16:
		return someUpload(t, s)
	case 17, 18, 19:
		return Accuse{Step: around(t, s.Progress.Step-1), Client: someID(t), Fault: Fault(rapid.OneOf(rapid.IntRange(0, 4), rapid.IntRange(int(maxFault)-1, int(maxFault)+1)).Draw(t, "fault"))}
	case 20, 21, 22:
		return someVote(t, s)
	case 23, 24, 25:
		return Offer{Step: around(t, s.Progress.Step), Level: rapid.SampledFrom([]uint8{0, 1, 60, 80, 83, 90, 255}).Draw(t, "level")}
	default:
		if rapid.IntRange(0, 5).Draw(t, "close") == 0 {
			return Close{}
		}
		return SetPaused{}
	}
}

// someSender draws the sender of an action: mostly a client that may send it.
func someSender(t *rapid.T, s *State, a Action) ClientID {
	entitled := someID(t)
	switch a := a.(type) {
	case Authorize:
		entitled = s.Authority.Join
	case Admit:
		entitled = a.Client
	case SetPaused, UpdateConfig, Eject, Close:
		entitled = s.Authority.Main
	}
	if rapid.IntRange(0, 4).Draw(t, "usurper") == 0 {
		return someID(t)
	}
	return entitled
}

// someUpdate draws a configuration that is often unchanged and sometimes invalid.
func someUpdate(t *rapid.T, s *State) UpdateConfig {
	u := UpdateConfig{Config: s.Config, Model: s.Model}
	switch rapid.IntRange(0, 9).Draw(t, "key") {
	case 0:
		u.Config.TotalSteps = around(t, s.Progress.Step)
	case 1:
		u.Config.WitnessNodes = rapid.Uint16Range(0, 3).Draw(t, "witness nodes")
	case 2:
		u.Config.ProbationSteps = rapid.Uint32Range(0, 5).Draw(t, "probation")
		u.Config.VerificationPercent = rapid.Uint8().Draw(t, "verification percent")
	case 3:
		u.Config.GlobalBatchSizeEnd = 1<<32 - 1
	case 4:
		u.Model.MaxSeqLen = rapid.Uint32Range(15, 17).Draw(t, "sequence length")
	case 5:
		u.Model.Checkpoint.Repo = "other"
	case 6:
		u.Model.Checkpoint = s.Model.Checkpoint.origin()
	case 7:
		u.Model.ColdStartWarmupSteps = rapid.Uint32Range(0, 3).Draw(t, "cold start")
	case 8:
		u.Config.SharesBySpeed = !s.Config.SharesBySpeed
		u.Config.RetryLost = rapid.Bool().Draw(t, "retry lost")
	default:
		u.Config.MinClients = rapid.Uint16Range(0, 3).Draw(t, "min clients")
	}
	return u
}

// someUpload draws the reported location of a checkpoint, mostly of a recorded checkpoint.
func someUpload(t *rapid.T, s *State) ReportUpload {
	c := s.Model.Checkpoint
	known := append([]Recorded{{Step: c.Step, Digest: c.Digest}, {Step: c.Step + 1}}, s.Earlier...)
	r := rapid.SampledFrom(known).Draw(t, "checkpoint")
	kind := rapid.SampledFrom([]CheckpointKind{CheckpointGcs, CheckpointGcs, CheckpointHub, CheckpointLocal}).Draw(t, "place")
	return ReportUpload{Step: r.Step, Digest: r.Digest, Place: Location{Kind: kind, Repo: "bucket"}}
}

func someWitness(t *rapid.T, s *State) WitnessRound {
	a := WitnessRound{Step: around(t, s.Progress.Step)}
	round := s.CurrentRound()
	if round == nil {
		return a
	}
	a.Reveal, a.Claim = someReveal(t), Claim{Loss: rapid.Uint16().Draw(t, "loss"), Speed: rapid.Uint32().Draw(t, "speed")}
	missing := rapid.IntRange(-1, len(round.Members)).Draw(t, "missing")
	for i, id := range round.Members {
		if i != missing {
			c := commitment(id, round.Step)
			a.Participants.Add(round.Seed, id[:])
			a.Commitments.Add(round.Seed, c[:])
		}
	}
	if rapid.IntRange(0, 9).Draw(t, "filled") == 0 {
		a.Participants = bloom.Filter{1<<64 - 1, 1<<64 - 1}
	}
	return a
}

// TestRandomActionsKeepTheInvariants lets members and other clients send any action at any time. It
// checks that a refused action changes nothing, that a second tick at the same time changes
// nothing, that Due predicts changes correctly, and that replaying the accepted actions gives the
// same bytes.
func TestRandomActionsKeepTheInvariants(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		config := testConfig()
		config.TotalSteps = rapid.Uint32Range(1, 12).Draw(t, "total steps")
		config.WitnessNodes = rapid.Uint16Range(0, 2).Draw(t, "witness nodes")
		config.VerificationPercent = rapid.SampledFrom([]uint8{0, 0, 40, 100}).Draw(t, "verification")
		config.ProbationSteps = rapid.SampledFrom([]uint32{0, 1, 3, 1<<32 - 1}).Draw(t, "probation")
		config.SharesBySpeed = rapid.Bool().Draw(t, "shares by speed")
		config.RetryLost = rapid.Bool().Draw(t, "retry lost")
		if rapid.Bool().Draw(t, "by time") {
			config.RoundsPerEpoch, config.EpochTime = 0, 100*second
		}
		genesis := Genesis{RunID: "walk", Host: host, Config: config, Model: testModel()}
		genesis.Model.ColdStartWarmupSteps = rapid.Uint32Range(0, 1).Draw(t, "cold start warmup steps")
		genesis.Permissioned = rapid.Bool().Draw(t, "permissioned")
		if rapid.Bool().Draw(t, "committed draws") {
			genesis.Draws = testLinks[0]
		}
		if rapid.Bool().Draw(t, "other authority") {
			genesis.MainAuthority, genesis.JoinAuthority = clientID("a"), clientID("b")
		}
		live, err := genesis.State()
		if err != nil {
			t.Fatal(err)
		}
		replay := live.Clone()
		var mirror Decoder
		now, nonce := uint64(100*second), uint64(1)
		if genesis.Permissioned {
			for i, name := range []string{"a", "b", "c", "d"} {
				a := Authorize{Grantee: clientID(name), Allowed: true}
				if err := errors.Join(live.Apply(live.Authority.Join, uint64(i)+1, a), replay.Apply(live.Authority.Join, uint64(i)+1, a)); err != nil {
					t.Fatal(err)
				}
				nonce++
			}
		}
		for range rapid.IntRange(50, 300).Draw(t, "events") {
			before := live.AppendTo(nil)
			checkDue(t, &live, now)
			if rapid.IntRange(0, 3).Draw(t, "tick") == 0 {
				now += rapid.SampledFrom([]uint64{0, 1, second, 5 * second, 30 * second, 70 * second, 1<<64 - 3*second}).Draw(t, "passed") // or back by 3 s
				seed := rapid.Uint64().Draw(t, "seed")
				draw := live.testDraw(seed)
				if rapid.IntRange(0, 9).Draw(t, "wrong draw") == 0 {
					draw[31]++
				}
				committed := live.DrawCommitment
				changed := live.Tick(now, draw)
				if committed != ([32]byte{}) && live.DrawCommitment == committed {
					draw = [32]byte{} // hosts keep only draws that had an effect
				}
				if after := live.AppendTo(nil); changed == bytes.Equal(before, after) {
					t.Fatalf("tick reports changed %t\n%s", changed, live.String())
				}
				if err := live.Check(); err != nil {
					t.Fatalf("%v\n%s", err, live.String())
				}
				replay.Tick(now, draw)
				continue
			}
			a := someAction(t, &live)
			from := someSender(t, &live, a)
			if rapid.IntRange(0, 2).Draw(t, "honest") > 0 { // to make progress more likely
				if id := someID(t); honestAction(&live, id) != nil {
					from, a = id, honestAction(&live, id)
				}
			}
			if rapid.IntRange(0, 7).Draw(t, "replayed") > 0 {
				nonce++
			}
			state := live.RunState
			err := live.Apply(from, nonce, a)
			if live.RunState != state {
				t.Fatalf("%T moved the run from %s to %s", a, state, live.RunState)
			}
			if err != nil {
				if code, ok := errors.AsType[Code](err); !ok || !code.Valid() {
					t.Fatalf("refused with an error of type %T", err)
				}
				if !bytes.Equal(before, live.AppendTo(nil)) {
					t.Fatalf("%T was refused (%v) but changed the state", a, err)
				}
				continue
			}
			if err := live.Check(); err != nil {
				t.Fatalf("after %T: %v\n%s", a, err, live.String())
			}
			if err := replay.Apply(from, nonce, a); err != nil {
				t.Fatalf("the replay refuses an accepted action: %v", err)
			}
			raw := live.AppendTo(nil)
			if seen, err := mirror.Decode(raw); err != nil || !bytes.Equal(raw, seen.AppendTo(nil)) {
				t.Fatalf("a follower of the run refuses the action: %v", err)
			}
		}
		checkReplay(t, &live, &replay)
	})
}

func checkReplay(t *rapid.T, live, replay *State) {
	t.Helper()
	raw := live.AppendTo(nil)
	if !bytes.Equal(raw, replay.AppendTo(nil)) {
		t.Fatal("the replay differs")
	}
	if err := live.Check(); err != nil {
		t.Fatalf("%v\n%s", err, live.String())
	}
	decoded, err := Decode(raw)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(raw, decoded.AppendTo(nil)) {
		t.Fatal("decoding and encoding changed the state")
	}
}

// TestHonestRunsFinish checks that runs with honest clients finish. Clients that are present act
// whenever they can, and clients that leave come back.
func TestHonestRunsFinish(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		config := testConfig()
		config.TotalSteps = rapid.Uint32Range(1, 9).Draw(t, "total steps")
		config.WitnessNodes = rapid.Uint16Range(0, 2).Draw(t, "witness nodes")
		config.ProbationSteps = rapid.Uint32Range(0, 4).Draw(t, "probation")
		config.VerificationPercent = rapid.SampledFrom([]uint8{0, 40}).Draw(t, "verification")
		state, err := New("walk", host, config, testModel())
		if err != nil {
			t.Fatal(err)
		}
		clients := make([]ClientID, rapid.IntRange(3, 7).Draw(t, "clients"))
		for i := range clients {
			clients[i] = clientID("client " + strconv.Itoa(i))
		}
		down := rapid.SliceOfN(rapid.IntRange(0, 400), len(clients), len(clients)).Draw(t, "down at")
		for seconds := range uint64(4000) {
			if state.RunState == Finished {
				return
			}
			for i, id := range clients {
				if away := int(seconds) - down[i]; away >= 0 && away < 150 {
					continue
				}
				actHonestly(t, &state, id, seconds+1)
			}
			state.Tick((1000+seconds)*second, testDraw(seconds))
		}
		t.Fatalf("not finished:\n%s", state.String())
	})
}

// actHonestly sends the next action of a client that follows the protocol, if there is one.
func actHonestly(t *rapid.T, s *State, id ClientID, nonce uint64) {
	a := honestAction(s, id)
	if a == nil {
		return
	}
	err := s.Apply(id, nonce, a)
	usual := errors.Is(err, ErrDuplicate) || errors.Is(err, ErrNotElected) || errors.Is(err, ErrNotMember)
	if err != nil && !usual {
		t.Fatalf("%T of an honest client: %v\n%s", a, err, s.String())
	}
}

func honestAction(s *State, id ClientID) Action {
	switch {
	case s.MayReturn(id) && indexOf(s.Epoch.Exited, id) >= 0 && id[0]%2 == 0:
		return Return{Epoch: s.Progress.Epoch}
	case !s.isHealthy(id) && !s.IsPending(id):
		return Join{Epoch: s.Progress.Epoch, Commitment: testLinks[0]}
	case s.RunState == Warmup:
		return Ready{Epoch: s.Progress.Epoch, Reveal: s.nextReveal(id), Next: testLinks[0]}
	case s.RunState == Cooldown:
		return ReportCheckpoint{Step: s.Progress.Step, Digest: [32]byte{byte(s.Progress.Step)}}
	case s.RunState != RoundTrain && s.RunState != RoundWitness:
		return nil
	}
	if a := courtAction(s, id); a != nil {
		return a
	}
	round := s.CurrentRound()
	member, ok := round.MemberIndex(id)
	if !ok || slices.ContainsFunc(round.Witnesses, func(w Witness) bool { return int(w.Member) == member }) {
		return nil
	}
	if accusable := s.Accusable(); len(accusable) > 0 {
		return HealthCheck{Step: s.Progress.Step - 1, Clients: accusable}
	}
	if !slices.Contains(round.ElectedWitnesses(s.Config), member) {
		return nil
	}
	w := WitnessRound{Step: round.Step, Reveal: s.nextReveal(id)}
	for _, assigned := range s.Awaited() {
		w.Participants.Add(round.Seed, round.Members[assigned.Member][:])
	}
	return w
}

// nextReveal returns the value that opens a member's commitment.
func (s *State) nextReveal(id ClientID) [32]byte {
	if client, ok := s.Member(id); ok {
		return testOpening[client.Commitment]
	}
	return [32]byte{}
}

// courtAction returns a member's next vote or accusation, or nil. A third of the members accuse
// silent members, which the jurors reject. For a wrong result, most jurors vote guilty.
func courtAction(s *State, id ClientID) Action {
	for _, trial := range s.Trials {
		if juror, voted := s.Juror(id, trial.Slot); juror && !voted {
			return Vote{Step: trial.Step, Client: trial.Accused, Guilty: trial.Fault == FaultResult && id[0]%3 < 2}
		}
	}
	members := s.CurrentRound().Members
	a := Accuse{Step: s.Progress.Step - 1, Client: members[int(id[0]+byte(s.Progress.Step))%len(members)], Fault: FaultSilent}
	if s.Config.VerificationPercent > 0 && id[0]%3 == 0 && s.MayAccuse(id, a) == nil {
		return a
	}
	return nil
}

// someVote draws a vote that often belongs to an open trial.
func someVote(t *rapid.T, s *State) Vote {
	a := Vote{Step: around(t, s.Progress.Step), Client: someID(t), Guilty: rapid.Bool().Draw(t, "guilty")}
	if len(s.Trials) > 0 && rapid.IntRange(0, 3).Draw(t, "tried") > 0 {
		trial := rapid.SampledFrom(s.Trials).Draw(t, "trial")
		a.Step, a.Client = trial.Step, trial.Accused
	}
	return a
}
