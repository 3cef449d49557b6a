package coordinator

import (
	"crypto/sha256"
	"slices"

	"github.com/psyche-go/psyche/core/assign"
)

// NextRound returns the round that follows the running one, and in Warmup the first round of the
// epoch. The prediction assumes that no member leaves, no authority acts, and the running round
// gets its quorum. Trainers can fetch the data of that round before it starts. Seed and the numbers
// of witnesses are zero. ok is false if the next round cannot be predicted.
//
// Seed stays unknown until the round starts, because it elects the witnesses, which decide which
// results count. If members knew it before the members of the round are fixed, a party with k keys
// could choose which of its keys stay, among 2ᵏ sets, and take the set that elects most of its keys.
// Batches need no such secrecy: all come from the run's data. They have nearly the same size, or sizes by
// levels that were fixed before the batch seed was known. A key that leaves loses its seat and its own batch.
// Verifiers follow from BatchSeed, and are therefore known a round early. A rule that fixes the targets of
// their audits would have to use Seed.
func (s *State) NextRound() (next Round, ok bool) {
	step := s.Progress.Step
	switch s.RunState {
	case Warmup:
	case RoundTrain, RoundWitness:
		if s.quorumIsOutOfReach() { // which ends the epoch
			return Round{}, false
		}
		step++
	default:
		return Round{}, false
	}
	if s.endsBefore(step) {
		return Round{}, false
	}
	return s.roundOf(step), true
}

// endsBefore reports whether the configuration, the members or a pause end the epoch before the
// round of a step would start. A round without a quorum also ends the epoch, but callers must check
// that themselves.
func (s *State) endsBefore(step uint32) bool {
	switch {
	case s.Config.RoundsPerEpoch != 0 && step-s.Epoch.StartStep >= s.Config.RoundsPerEpoch,
		s.Epoch.LastStep != 0 && step > s.Epoch.LastStep,
		s.HealthyCount() < int(s.Config.MinClients),
		step > s.Config.TotalSteps,
		s.PendingPause,
		s.isAbandoned(step):
		return true
	default:
		return false
	}
}

// isAbandoned reports whether so many members have been absent for more than StoredRounds rounds
// that the remaining members are too few to agree on a model of this epoch. Further training would
// be lost at the epoch's end. During the first StoredRounds rounds of their absence, members may
// still return.
func (s *State) isAbandoned(step uint32) bool {
	gone := 0
	for i := range s.Epoch.Exited {
		if s.Epoch.Exited[i].ExitedHeight+StoredRounds < step-s.Epoch.StartStep {
			gone++
		}
	}
	return s.Seats()-gone < s.fewestReports()
}

// roundOf returns the fields of a step's round that are known before it starts: all fields that do
// not depend on its Seed.
func (s *State) roundOf(step uint32) Round {
	members := make([]ClientID, 0, len(s.Epoch.Clients))
	var levels [MaxClients]uint8
	for i := range s.Epoch.Clients {
		client := &s.Epoch.Clients[i]
		if client.State != Healthy {
			continue
		}
		if s.Config.SharesBySpeed {
			levels[len(members)] = client.Level
		}
		members = append(members, client.ID)
	}
	if s.Config.SharesBySpeed && s.Config.VerificationPercent > 0 {
		assign.CutFastest(levels[:len(members)])
	}
	round := Round{
		Height:    step - s.Epoch.StartStep,
		Step:      step,
		BatchSeed: le.Uint64(s.SeedChain[8:16]),
		DataIndex: s.Progress.DataIndex,
		BatchSize: s.Config.BatchSize(s.Progress.DataIndex, s.Model.MaxSeqLen),
		Members:   members,
		Levels:    levels,
		Position:  s.Position,
	}
	round.Retries = s.retries(round.BatchSize)
	s.warm(&round)
	return round
}

// startRound sets all fields of the next round and starts RoundTrain.
func (s *State) startRound(now uint64, draw [32]byte) {
	round := s.roundOf(s.Progress.Step)
	s.take(&round)
	s.requeue()
	s.seal()
	round.Seed = s.mixSeed(draw)
	s.sealChallenge()
	elected := len(round.ElectedWitnesses(s.Config))
	round.WitnessesElected = uint16(elected)
	round.WitnessesNeeded = uint16(assign.Quorum(elected))
	if len(s.Epoch.Rounds) == StoredRounds {
		s.Epoch.Rounds = slices.Delete(s.Epoch.Rounds, 0, 1)
	}
	s.Epoch.Rounds = append(s.Epoch.Rounds, round)
	for i := range s.Pending {
		s.Pending[i].Waited = true
	}
	s.enter(RoundTrain, now)
	s.drawJuries()
}

// opens reports whether a round may start with a draw: the draw's hash must be the DrawCommitment,
// if there is one. A draw of zeros is refused, because a draw becomes the next commitment, and zeros
// mean no commitment, so that any later draw would be accepted.
func (s *State) opens(draw [32]byte) bool {
	none := [32]byte{}
	return s.DrawCommitment == none || draw != none && sha256.Sum256(draw[:]) == s.DrawCommitment
}

// mixSeed extends the seed chain and returns the round's seed, the first eight bytes of
// sha256(chain ‖ draw ‖ step as le32 ‖ reveals). A host that repeats a draw still gets another
// round seed. The next eight bytes are the batch seed of the following round. They do not reveal
// the round's seed.
func (s *State) mixSeed(draw [32]byte) uint64 {
	message := slices.Concat(s.SeedChain[:], draw[:])
	message = le.AppendUint32(message, s.Progress.Step)
	message = append(message, s.Reveals[:]...)
	s.SeedChain = sha256.Sum256(message)
	if s.DrawCommitment != ([32]byte{}) {
		s.DrawCommitment = draw
	}
	return le.Uint64(s.SeedChain[:8])
}
