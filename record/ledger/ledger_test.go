package ledger

import (
	"errors"
	"testing"

	"github.com/psyche-go/psyche/core/coordinator"
	"pgregory.net/rapid"
)

const second = 1000

// run plays a run whose members lose results, leave, and report models or none.
type run struct {
	t     *rapid.T
	state coordinator.State
	book  Ledger
	now   uint64
	nonce uint64
}

func newRun(t *rapid.T, change func(*coordinator.Genesis)) *run {
	g := coordinator.Genesis{
		RunID: "walk", Host: coordinator.ClientID{1},
		Config: coordinator.Config{
			WarmupTime: 30 * second, CooldownTime: 20 * second, RoundsPerEpoch: 4, MaxRoundTrainTime: 60 * second,
			RoundWitnessTime: 2 * second, WaitingForMembersExtraTime: 5 * second,
			GlobalBatchSizeStart: 24, GlobalBatchSizeEnd: 24, TotalSteps: 60, InitMinClients: 3, MinClients: 2, RetryLost: true,
		},
		Model: coordinator.Model{MaxSeqLen: 16, Checkpoint: coordinator.Checkpoint{Kind: coordinator.CheckpointHub, Repo: "base"}},
	}
	change(&g)
	state, err := g.State()
	if err != nil {
		t.Fatal(err)
	}
	r := &run{t: t, state: state, now: 1000 * second}
	r.see()
	return r
}

func (r *run) see() {
	r.t.Helper()
	if err := r.state.Check(); err != nil {
		r.t.Fatalf("%v\n%s", err, r.state.String())
	}
	if err := r.book.See(&r.state); err != nil {
		r.t.Fatalf("%v\n%s", err, r.state.String())
	}
}

func (r *run) apply(id coordinator.ClientID, a coordinator.Action) {
	r.t.Helper()
	r.nonce++
	if r.state.Apply(id, r.nonce, a) == nil {
		r.see()
	}
}

func (r *run) tick(passed uint64) {
	r.t.Helper()
	r.now += passed
	if r.state.Tick(r.now, [32]byte{1, byte(r.now), byte(r.now >> 8), byte(r.now >> 16), byte(r.now >> 24)}) {
		r.see()
	}
}

// witness lets all witnesses prove the results of all members that are not missing.
func (r *run) witness(missing func(coordinator.ClientID) bool) {
	r.t.Helper()
	round := *r.state.CurrentRound()
	proof := coordinator.WitnessRound{Step: round.Step}
	for _, owner := range round.Owners(r.state.Config) {
		if id := round.Members[owner]; !missing(id) {
			proof.Participants.Add(round.Seed, id[:])
			proof.Commitments.Add(round.Seed, id[:])
		}
	}
	for _, id := range round.Members {
		r.apply(id, proof)
	}
}

func names(n int) (ids []coordinator.ClientID) {
	for i := range n {
		ids = append(ids, coordinator.ClientID{9, byte(i)})
	}
	return ids
}

// TestLedgerBalances plays runs that lose results, rounds and models, and turn the option on and off.
func TestLedgerBalances(t *testing.T) {
	var reached Totals
	rapid.Check(t, func(t *rapid.T) {
		members := names(rapid.IntRange(3, 8).Draw(t, "members"))
		r := newRun(t, func(g *coordinator.Genesis) {
			g.Config.RoundsPerEpoch = rapid.Uint32Range(1, 9).Draw(t, "rounds")
			g.Config.ProbationSteps = rapid.SampledFrom([]uint32{0, 0, 3}).Draw(t, "probation")
			g.Config.VerificationPercent = rapid.SampledFrom([]uint8{0, 0, 40}).Draw(t, "verification")
			g.Config.SharesBySpeed = rapid.Bool().Draw(t, "shares by speed")
			g.Config.RetryLost = rapid.IntRange(0, 9).Draw(t, "retry lost") > 0
			g.Config.GlobalBatchSizeEnd = rapid.SampledFrom([]uint32{24, 24, 50}).Draw(t, "batch")
			g.Config.GlobalBatchSizeWarmupTokens = 2000
			if g.Model.ColdStartWarmupSteps = min(rapid.Uint32Range(0, 2).Draw(t, "cold start"), g.Config.RoundsPerEpoch); rapid.Bool().Draw(t, "continues a run") {
				g.Progress = coordinator.Progress{Epoch: 1, Step: 5, DataIndex: 77}
			}
		})
		lossy := rapid.IntRange(0, 9).Draw(t, "lossy")
		for range rapid.IntRange(10, 120).Draw(t, "events") {
			chance := func(of int, name string) bool { return rapid.IntRange(1, of).Draw(t, name) == 1 }
			switch id := rapid.SampledFrom(members).Draw(t, "member"); {
			case chance(12, "withdraws"):
				r.apply(id, coordinator.Withdraw{Client: id})
			case chance(40, "pauses"):
				r.apply(r.state.Host, coordinator.SetPaused{Paused: r.state.RunState != coordinator.Paused})
			}
			for _, id := range members {
				switch s := &r.state; s.RunState {
				case coordinator.WaitingForMembers:
					join := coordinator.Join{Epoch: s.Progress.Epoch}
					if chance(2, "holds") {
						join.Holds = s.Model.Checkpoint.Digest
					}
					r.apply(id, join)
				case coordinator.Warmup:
					r.apply(id, coordinator.Ready{Epoch: s.Progress.Epoch})
					if chance(3, "offers") {
						r.apply(id, coordinator.Offer{Step: s.Progress.Step, Level: uint8(70 + rapid.IntRange(0, 30).Draw(t, "level"))})
					}
				case coordinator.Cooldown:
					if chance(2, "reports") {
						r.apply(id, coordinator.ReportCheckpoint{Step: s.Progress.Step, Digest: [32]byte{byte(s.Progress.Step)}})
					}
				case coordinator.RoundTrain:
					r.apply(id, coordinator.Return{Epoch: s.Progress.Epoch})
				}
			}
			if r.state.RunState == coordinator.RoundTrain && chance(3, "commits") {
				for _, id := range members {
					r.apply(id, coordinator.ReportCheckpoint{Step: r.state.Progress.Step - uint32(rapid.IntRange(0, 2).Draw(t, "before")), Digest: [32]byte{byte(r.state.Progress.Step)}})
				}
			}
			if r.state.RunState == coordinator.RoundTrain && !chance(20, "no quorum") {
				r.witness(func(coordinator.ClientID) bool { return rapid.IntRange(0, 9).Draw(t, "lost") < lossy })
			}
			if r.state.RunState == coordinator.Paused && chance(2, "changes the option") {
				config := r.state.Config
				config.RetryLost = !config.RetryLost
				r.apply(r.state.Host, coordinator.UpdateConfig{Config: config, Model: r.state.Model})
			}
			for range 4 {
				r.tick(rapid.SampledFrom([]uint64{1, second, 3 * second, 31 * second, 100 * second, 100 * second, 24 * 3600 * second}).Draw(t, "passed"))
			}
		}
		totals, sum := r.book.Totals(), uint64(0)
		for fate, n := range totals {
			sum += n
			reached[fate] += n
		}
		if first := r.book.spans; len(first) > 0 && sum != r.state.Progress.DataIndex-first[0].start {
			t.Fatalf("%d sequences, want %d", sum, r.state.Progress.DataIndex)
		}
	})
	t.Log("fates", reached)
}

func TestTotalsAreDescribed(t *testing.T) {
	if got, want := (Totals{114, 0, 6, 0, 0, 2}).String(), "114 counted, 6 waiting, 2 given up for lack of room"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestLedgerFindsErrors changes the coordinator's records behind its back.
func TestLedgerFindsErrors(t *testing.T) {
	for name, damage := range map[string]func(s *coordinator.State){
		"a stretch is dropped": func(s *coordinator.State) { s.Lost = nil },
		"a stretch is longer":  func(s *coordinator.State) { s.Lost[0].End++ },
		"a counted one waits":  func(s *coordinator.State) { s.Lost[0].Start, s.Lost[0].End = 0, 24 },
		"a try is forgotten":   func(s *coordinator.State) { s.Lost[0].Tries = 0 },
		"one is trained again": func(s *coordinator.State) {
			s.CurrentRound().Retries = []coordinator.Stretch{{Start: 0, End: 3, Tries: 1}}
		},
		"the data index goes on":  func(s *coordinator.State) { s.CurrentRound().DataIndex += 3 },
		"the data index is early": func(s *coordinator.State) { s.CurrentRound().DataIndex -= 3 },
	} {
		t.Run(name, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				r := newRun(t, func(*coordinator.Genesis) {})
				members := names(4)
				for _, id := range members {
					r.apply(id, coordinator.Join{})
				}
				for r.state.RunState != coordinator.Warmup {
					r.tick(second)
				}
				for _, id := range members {
					r.apply(id, coordinator.Ready{})
				}
				for r.state.RunState != coordinator.RoundTrain {
					r.tick(second)
				}
				r.witness(func(id coordinator.ClientID) bool { return id == members[1] })
				for r.state.Progress.Step < 2 {
					r.now += second
					r.state.Tick(r.now, [32]byte{1})
				}
				damage(&r.state)
				if err := r.book.See(&r.state); !errors.Is(err, ErrBalance) {
					t.Fatalf("got %v, want ErrBalance", err)
				}
			})
		})
	}
}
