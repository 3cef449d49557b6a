package sim

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/psyche-go/psyche/core/assign"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/proof/sim/check"
	"github.com/psyche-go/psyche/proof/sim/model"
	"github.com/psyche-go/psyche/proof/sim/scenario"
)

// mutation breaks one rule.
type mutation struct {
	name   string
	rules  func() rules
	faults scenario.Faults
	want   []check.Assertion // any of these
	first  uint64            // first seed, if earlier seeds are known not to show the mutation; otherwise 0
}

// mutations break one rule each. The checker must detect every mutation within a thousand seeds.
// The test logs the seed.
var mutations = []mutation{
	{"the quorum is half of the witnesses", quorumIsHalf, scenario.AllFaults, []check.Assertion{check.Invariants, check.QuorumOrTime}, 0},
	{"the round ends with half of the witnesses", endsWithHalf, scenario.AllFaults, []check.Assertion{check.QuorumOrTime}, 0},
	{"the first result to arrive counts", firstCounts, scenario.AllFaults, []check.Assertion{check.CountedRight}, 31},
	{"the last results of an epoch are not applied", lastRoundDropped, scenario.AllFaults, []check.Assertion{check.CountedRight}, 0},
	{"the data index does not advance", dataIndexBy(0), scenario.AllFaults, []check.Assertion{check.Invariants, check.DataContinuous}, 0},
	{"the data index advances twice", dataIndexBy(2), scenario.AllFaults, []check.Assertion{check.Invariants, check.DataContinuous}, 0},
	{"witnesses need not be elected", anybodyWitnesses, scenario.AllFaults, []check.Assertion{check.OnlyElected}, 0},
	{"the newest claim counts for all witnesses", newestClaim, scenario.AllFaults, []check.Assertion{check.ClaimsKept}, 0},
	{"claims are forgotten", noClaims, scenario.AllFaults, []check.Assertion{check.ClaimsKept}, 0},
	{"nonces are not checked", noNonces, scenario.AllFaults, []check.Assertion{check.NotReplayed}, 4},
	{"accusations need no proof", accusationsBelieved, scenario.AllFaults, []check.Assertion{check.NotFramed}, 0},
	{"one report is enough for a checkpoint", oneReport, scenario.AllFaults, []check.Assertion{check.CheckpointTrue}, 17},
	{"the host acknowledges an action before it is on the disk", finishes(answerEarly), scenario.AllFaults, []check.Assertion{check.NothingLost, check.ShownFirst}, 0},
	{"the host never syncs its disk", finishes(neverSync), scenario.AllFaults, []check.Assertion{check.NothingLost}, 0},
	{"the host publishes an action before it is on the disk", finishes(publishEarly), scenario.AllFaults, []check.Assertion{check.NothingLost}, 0},
	{"the host answers an action before it publishes it", finishes(answerFirst), scenario.AllFaults, []check.Assertion{check.ShownFirst}, 0},
	{"a disconnected member is withdrawn too early", graceOf(5 * time.Second), scenario.AllFaults, []check.Assertion{check.KeepsGrace}, 3},
	{"a disconnected member is withdrawn too late", graceOf(20 * time.Second), scenario.AllFaults, []check.Assertion{check.KeepsGrace}, 3},
	{"RoundWitness does not wait for witnesses", witnessWaitsForNobody, scenario.AllFaults, []check.Assertion{check.QuorumOrTime}, 0},
	{"RoundWitness always lasts its maximum time", witnessLastsItsTime, scenario.AllFaults, []check.Assertion{check.InTime}, 0},
	{"waits are a hundredth of their time", waitsAreShort, scenario.AllFaults, []check.Assertion{check.QuorumOrTime}, 0},
	{"waits last a second too long", waitsLastLonger, scenario.AllFaults, []check.Assertion{check.InTime}, 0},
	{"the host sleeps too long", sleepsTooLong, scenario.AllFaults, []check.Assertion{check.InTime}, 41},
	{"the batch seed comes from the next draw", batchSeedIsFresh, scenario.AllFaults, []check.Assertion{check.SeedsRight}, 0},
	{"the witness seed is known a round ahead", witnessSeedIsKnown, scenario.AllFaults, []check.Assertion{check.SeedsRight}, 0},
	{"the seed chain does not change", chainStands, scenario.AllFaults, []check.Assertion{check.SeedsRight}, 0},
	{"the host chooses the draw of a round", otherDraw, scenario.AllFaults, []check.Assertion{check.SeedsRight}, 0},
	{"revealed values are not checked", falseReveals, scenario.Coalition, []check.Assertion{check.SeedsRight}, 0},
	{"revealed values do not change the draw", noReveals, scenario.AllFaults, []check.Assertion{check.SeedsRight}, 0},
	{"results are made from other models", func() rules { return rules{trains: func(m *model.Model) { m[1]++ }} }, scenario.AllFaults, []check.Assertion{check.TrainedRight}, 0},
	{"a result is applied twice", appliedTwice, scenario.AllFaults, []check.Assertion{check.OnceOnly}, 0},
	{"a wrong speculation stays in the model", func() rules { return rules{keeps: true} }, scenario.AllFaults, []check.Assertion{check.OnceOnly, check.SameReplica}, 0},
	{"a single committee drops a member", oneCommitteeDrops, scenario.AllFaults, []check.Assertion{check.NotFramed}, 0},
	{"a member that few witnesses deny is dropped", fewDrop, scenario.Coalition, []check.Assertion{check.NotFramed}, 33},
	{"all members may become slow", everybodySlow, scenario.SilentTrainer | scenario.InvalidResult, []check.Assertion{check.NotFramed}, 25},
	{"findings drop more than a third", anyNumberDropped, scenario.SilentTrainer | scenario.InvalidResult, []check.Assertion{check.NotFramed}, 25},
	{"proofs of two results are not verified", func() rules { return rules{unproved: true} }, scenario.Coalition, []check.Assertion{check.Ejected}, 0},
	{"two results are forgiven", forgiven, scenario.Coalition, []check.Assertion{check.Ejected}, 0},
	{"an ejected client joins again at once", ejectedReturns, scenario.Coalition, []check.Assertion{check.Ejected, check.FairlyTried}, 8},
	{"one network takes all seats", anyNetwork, scenario.Coalition, []check.Assertion{check.SeatsFair}, 0},
	{"seats of absent members are given away", countsConnected, scenario.Coalition, []check.Assertion{check.SeatsFair}, 0},
	{"a leaving member revokes its revealed value", takesBack, scenario.Coalition, []check.Assertion{check.SeedsRight}, 0},
	{"newcomers get seats in the order of arrival", firstCome, scenario.Coalition, []check.Assertion{check.SeatsFair}, 27},
	{"clients that know the draw take part in it", lateDrawn, scenario.Coalition, []check.Assertion{check.SeatsFair}, 9},
	{"witnesses wait for the last result", func() rules { return rules{holdsProofs: true} }, scenario.Coalition, []check.Assertion{check.NoPaceSetter}, 5},
	{"a client that knows two histories continues", func() rules { return rules{deaf: true} }, scenario.CoalitionHost, []check.Assertion{check.OneHistory}, 30},
	{"late members stay late", lateForEver, scenario.AllFaults, []check.Assertion{check.NotFramed, check.Invariants}, 0},
	{"rounds wait for late members", lateAwaited, scenario.AllFaults, []check.Assertion{check.InTime}, 3},
	{"rounds wait for the last result", lastAwaited, scenario.AllFaults, []check.Assertion{check.InTime}, 0},
	{"a returning member is no longer late", returnsOnTime, scenario.Coalition, []check.Assertion{check.OwnSeat}, 4},
	{"members return without a limit", returnsForEver, scenario.Coalition | scenario.Drop, []check.Assertion{check.OwnSeat, check.SeatsFair}, 21},
	{"clients without a seat return", anybodyReturns, scenario.AllFaults, []check.Assertion{check.OwnSeat, check.Invariants}, 7},
	{"the few remaining members record a checkpoint", fewRecord, scenario.Coalition, []check.Assertion{check.CheckpointTrue}, 0},
	{"results of members on probation count", probationCounts, scenario.AllFaults, []check.Assertion{check.SeatsFair}, 0},
	{"new members need no probation", noProbation, scenario.AllFaults, []check.Assertion{check.SeatsFair}, 0},
	{"a dropped member starts a new probation", droppedIsNew, scenario.AllFaults, []check.Assertion{check.SeatsFair}, 7},
	{"an epoch seats all pending clients", everybodySeated, scenario.Crash | scenario.Partition, []check.Assertion{check.SeatsFair, check.SeedsRight}, 0},
	{"a returning member has lost its seat", returningWaits, scenario.AllFaults, []check.Assertion{check.SeatsFair}, 0},
}

func TestCheckerCatchesMutations(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: simulates many runs")
	}
	for _, m := range slices.Concat(mutations, courtMutations, commitMutations, shareMutations) {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			first := max(1, m.first)
			for seed := first; seed < first+1000; seed++ {
				o := Options{Seed: seed, Clients: 8, Rounds: 4, Faults: m.faults, rules: m.rules()}
				switch m.faults {
				case scenario.Coalition, scenario.CoalitionHost:
					o.Clients, o.Rounds = 40, 8
				case scenario.SilentTrainer | scenario.InvalidResult:
					o.Clients = 4 // two of them contribute nothing
				case scenario.Crash | scenario.Partition:
					o.Clients = 5 // more of them are late than an epoch allows
				}
				if m.faults&courtFaults == courtFaults && m.faults != scenario.AllFaults || m.faults == scenario.HonestFaults {
					o.Rounds = 10
				}
				if slices.ContainsFunc(shareMutations, func(s mutation) bool { return s.name == m.name }) {
					o.Clients, o.Rounds, o.Shares = 12, 12, true
				}
				r := Run(o)
				if r.Violation == nil {
					continue
				}
				if !slices.Contains(m.want, r.Violation.Assertion) {
					t.Errorf("seed %d: caught by an unexpected assertion: %v", seed, r.Violation)
				}
				t.Logf("caught by seed %d: %v", seed, r.Violation)
				return
			}
			t.Error("not caught within 1000 seeds")
		})
	}
}

// afterTick changes the state after each tick that moved the run.
func afterTick(change func(s *coordinator.State, before coordinator.RunState)) rules {
	return rules{tick: func(s *coordinator.State, now uint64, draw [32]byte) bool {
		before := s.RunState
		changed := s.Tick(now, draw)
		if s.RunState != before {
			change(s, before)
		}
		return changed
	}}
}

func quorumIsHalf() rules {
	return afterTick(func(s *coordinator.State, _ coordinator.RunState) {
		if s.RunState == coordinator.RoundTrain {
			round := s.CurrentRound()
			round.WitnessesNeeded = max(1, round.WitnessesElected/2)
		}
	})
}

// endsWithHalf leaves the correct state but moves on too early.
func endsWithHalf() rules {
	return rules{tick: func(s *coordinator.State, now uint64, draw [32]byte) bool {
		if s.RunState == coordinator.RoundTrain {
			if round := s.CurrentRound(); len(round.Witnesses) > 0 && 2*len(round.Witnesses) >= int(round.WitnessesElected) {
				s.RunState, s.StateStart = coordinator.RoundWitness, now
				return true
			}
		}
		return s.Tick(now, draw)
	}}
}

// firstCounts makes a client apply the first result that it received if there are several results.
func firstCounts() rules {
	type key struct {
		p     *process
		step  uint32
		batch assign.BatchID
	}
	first := make(map[key][]byte)
	return rules{
		verified: func(p *process, step uint32, batch assign.BatchID, payload []byte) {
			k := key{p, step, batch}
			if _, known := first[k]; !known && len(payload) >= model.ResultSize {
				first[k] = payload
			}
		},
		payloads: func(p *process, step uint32, payloads [][]byte) [][]byte {
			payloads = slices.Clone(payloads)
			for i, payload := range payloads {
				_, batch, _ := model.ReadHeader(payload)
				if earlier := first[key{p, step, batch}]; earlier != nil && !bytes.Equal(earlier, payload) {
					payloads[i] = earlier
				}
			}
			return payloads
		},
	}
}

func lastRoundDropped() rules {
	return rules{payloads: func(p *process, step uint32, payloads [][]byte) [][]byte {
		if p.world.host.State().RunState == coordinator.Cooldown {
			return nil
		}
		return payloads
	}}
}

func dataIndexBy(times uint64) func() rules {
	return func() rules {
		return afterTick(func(s *coordinator.State, _ coordinator.RunState) {
			if round := s.CurrentRound(); s.RunState == coordinator.RoundTrain {
				s.Progress.DataIndex = round.DataIndex + times*uint64(round.BatchSize)
			}
		})
	}
}

func anybodyWitnesses() rules {
	return rules{apply: func(s *coordinator.State, from coordinator.ClientID, nonce uint64, a coordinator.Action) error {
		err := s.Apply(from, nonce, a)
		if w, ok := a.(coordinator.WitnessRound); ok && errors.Is(err, coordinator.ErrNotElected) {
			round := s.CurrentRound()
			member, _ := round.MemberIndex(from)
			round.Witnesses = append(round.Witnesses, coordinator.Witness{
				Member: uint16(member), Participants: w.Participants, Commitments: w.Commitments,
				CommitmentsRoot: w.CommitmentsRoot, Replica: w.Replica,
			})
			return nil
		}
		return err
	}}
}

func newestClaim() rules {
	return onApply(func(s *coordinator.State, _ coordinator.ClientID, a coordinator.Action, err error) error {
		if proof, ok := a.(coordinator.WitnessRound); ok && err == nil {
			for i := range s.CurrentRound().Witnesses {
				s.CurrentRound().Witnesses[i].Claim = proof.Claim
			}
		}
		return err
	})
}

func noClaims() rules {
	return onApply(func(s *coordinator.State, _ coordinator.ClientID, a coordinator.Action, err error) error {
		if _, ok := a.(coordinator.WitnessRound); ok && err == nil {
			witnesses := s.CurrentRound().Witnesses
			witnesses[len(witnesses)-1].Claim = coordinator.Claim{}
		}
		return err
	})
}

func noNonces() rules {
	return rules{apply: func(s *coordinator.State, from coordinator.ClientID, nonce uint64, a coordinator.Action) error {
		err := s.Apply(from, nonce, a)
		for n := nonce; errors.Is(err, coordinator.ErrStaleNonce) && n < 1<<62; n = 2*n + 1 {
			err = s.Apply(from, n, a)
		}
		return err
	}}
}

func accusationsBelieved() rules {
	return rules{apply: func(s *coordinator.State, from coordinator.ClientID, nonce uint64, a coordinator.Action) error {
		err := s.Apply(from, nonce, a)
		if check, ok := a.(coordinator.HealthCheck); ok && errors.Is(err, coordinator.ErrFalseAccusation) {
			for _, id := range check.Clients {
				if member, ok := s.Member(id); ok {
					member.State = coordinator.Dropped
				}
			}
			return nil
		}
		return err
	}}
}

// witnessWaitsForNobody continues at once, even if members are silent.
func witnessWaitsForNobody() rules {
	return rules{tick: func(s *coordinator.State, now uint64, draw [32]byte) bool {
		if s.RunState == coordinator.RoundWitness {
			return s.Tick(max(now, s.StateStart+s.Config.RoundWitnessTime), draw)
		}
		return s.Tick(now, draw)
	}}
}

func witnessLastsItsTime() rules {
	return rules{tick: func(s *coordinator.State, now uint64, draw [32]byte) bool {
		if s.RunState == coordinator.RoundWitness && now >= s.StateStart && now-s.StateStart < s.Config.RoundWitnessTime {
			return false
		}
		return s.Tick(now, draw)
	}}
}

// waitsAreShort treats times as if they had a smaller unit.
func waitsAreShort() rules {
	return rules{tick: func(s *coordinator.State, now uint64, draw [32]byte) bool {
		config := s.Config
		s.Config.MaxRoundTrainTime /= 100
		s.Config.RoundWitnessTime /= 100
		changed := s.Tick(now, draw)
		s.Config = config
		return changed
	}}
}

// waitsLastLonger makes a round end a second late if the time limit ends it.
func waitsLastLonger() rules {
	return rules{tick: func(s *coordinator.State, now uint64, draw [32]byte) bool {
		config := s.Config
		s.Config.MaxRoundTrainTime += 1000
		changed := s.Tick(now, draw)
		s.Config = config
		return changed
	}}
}

func sleepsTooLong() rules {
	return rules{due: func(s *coordinator.State, now uint64) (uint64, bool) {
		at, ok := s.Due(now)
		return at + 500, ok
	}}
}

// onRoundStart changes a round that has just begun.
func onRoundStart(change func(s *coordinator.State, round *coordinator.Round)) rules {
	return afterTick(func(s *coordinator.State, _ coordinator.RunState) {
		if s.RunState == coordinator.RoundTrain {
			change(s, s.CurrentRound())
		}
	})
}

func batchSeedIsFresh() rules {
	return onRoundStart(func(_ *coordinator.State, round *coordinator.Round) { round.BatchSeed = round.Seed })
}

func witnessSeedIsKnown() rules {
	return onRoundStart(func(_ *coordinator.State, round *coordinator.Round) { round.Seed = round.BatchSeed })
}

// chainStands draws every round from the initial chain.
func chainStands() rules {
	return rules{tick: func(s *coordinator.State, now uint64, draw [32]byte) bool {
		chain, before := s.SeedChain, s.RunState
		changed := s.Tick(now, draw)
		if s.RunState == coordinator.RoundTrain && before != coordinator.RoundTrain {
			s.SeedChain = chain
		}
		return changed
	}}
}

// otherDraw accepts a draw without a commitment.
func otherDraw() rules {
	return rules{tick: func(s *coordinator.State, now uint64, draw [32]byte) bool {
		committed := s.DrawCommitment
		draw[0] ^= 1
		s.DrawCommitment = sha256.Sum256(draw[:])
		changed := s.Tick(now, draw)
		if s.DrawCommitment != draw {
			s.DrawCommitment = committed
		}
		return changed
	}}
}

func falseReveals() rules {
	return rules{apply: func(s *coordinator.State, from coordinator.ClientID, nonce uint64, a coordinator.Action) error {
		err := s.Apply(from, nonce, a)
		if ready, ok := a.(coordinator.Ready); ok && errors.Is(err, coordinator.ErrInvalidAction) {
			member, _ := s.Member(from)
			member.Commitment = sha256.Sum256(ready.Reveal[:])
			err = s.Apply(from, nonce, a)
		}
		return err
	}}
}

func noReveals() rules {
	return rules{tick: func(s *coordinator.State, now uint64, draw [32]byte) bool {
		reveals := s.Reveals
		s.Reveals = [32]byte{}
		changed := s.Tick(now, draw)
		s.Reveals = reveals
		return changed
	}}
}

func oneReport() rules {
	return afterTick(func(s *coordinator.State, before coordinator.RunState) {
		reports := s.Reporters(s.Progress.Step - 1)
		if before != coordinator.Cooldown || len(reports) == 0 {
			return
		}
		c := &s.Model.Checkpoint
		if c.Origin == 0 {
			c.Origin, c.Kind = c.Kind, coordinator.CheckpointP2P
		}
		c.Digest, c.Step = reports[0].Report.Digest, s.Progress.Step-1
	})
}

func appliedTwice() rules {
	return rules{payloads: func(_ *process, _ uint32, payloads [][]byte) [][]byte {
		if len(payloads) > 2 {
			return append(slices.Clone(payloads), payloads[0])
		}
		return payloads
	}}
}

// onHealthCheck changes the state after an accepted health check.
func onHealthCheck(change func(s *coordinator.State, a coordinator.HealthCheck)) rules {
	return rules{apply: func(s *coordinator.State, from coordinator.ClientID, nonce uint64, a coordinator.Action) error {
		err := s.Apply(from, nonce, a)
		if check, ok := a.(coordinator.HealthCheck); ok && err == nil {
			change(s, check)
		}
		return err
	}}
}

func oneCommitteeDrops() rules {
	return onHealthCheck(func(s *coordinator.State, a coordinator.HealthCheck) {
		for _, id := range a.Clients {
			if member, ok := s.Member(id); ok {
				member.State = coordinator.Dropped
			}
		}
	})
}

func lateForEver() rules {
	late := make(map[coordinator.ClientID]bool)
	return rules{tick: func(s *coordinator.State, now uint64, draw [32]byte) bool {
		for i := range s.Epoch.Clients {
			if s.Epoch.Clients[i].Lateness != coordinator.OnTime {
				late[s.Epoch.Clients[i].ID] = true
			}
		}
		before := s.RunState
		changed := s.Tick(now, draw)
		for i := range s.Epoch.Clients {
			if c := &s.Epoch.Clients[i]; s.RunState == coordinator.Warmup && before != coordinator.Warmup && late[c.ID] {
				c.Lateness = coordinator.Late
			}
		}
		return changed
	}}
}

// lateAwaited waits in RoundWitness for all elected members.
func lateAwaited() rules {
	return rules{tick: func(s *coordinator.State, now uint64, draw [32]byte) bool {
		if s.RunState == coordinator.RoundWitness && now < s.StateStart+s.Config.RoundWitnessTime {
			round := s.CurrentRound()
			for i := range round.Members {
				if check.IsSilent(s, round, i) {
					return false
				}
			}
		}
		return s.Tick(now, draw)
	}}
}

// lastAwaited ends RoundTrain only after a quorum has the results of all healthy trainers.
func lastAwaited() rules {
	return rules{tick: func(s *coordinator.State, now uint64, draw [32]byte) bool {
		if s.RunState != coordinator.RoundTrain || now >= s.StateStart+s.Config.MaxRoundTrainTime {
			return s.Tick(now, draw)
		}
		round, complete := s.CurrentRound(), 0
		for i := range round.Witnesses {
			lacks := func(a assign.Assignment) bool {
				id := round.Members[a.Member]
				member, ok := s.Member(id)
				return ok && member.State == coordinator.Healthy && !round.Witnesses[i].Participants.Contains(round.Seed, id[:])
			}
			if !slices.ContainsFunc(round.Assignments(s.Config), lacks) {
				complete++
			}
		}
		if round.HasQuorum() && complete < int(round.WitnessesNeeded) {
			return false
		}
		return s.Tick(now, draw)
	}}
}
