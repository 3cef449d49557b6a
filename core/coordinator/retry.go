package coordinator

import (
	"cmp"
	"slices"

	"github.com/psyche-go/psyche/core/assign"
)

// Bounds of lost stretches.
const (
	MaxLost    = 128 // waiting stretches
	MaxRetries = 16  // stretches that one round trains again
	MaxTries   = 8   // rounds in which a stretch is lost before the run gives it up
	MaxMarks   = 1 + MaxEarlier + 2
)

// Stretch is an interval of sequences whose results did not count.
type Stretch struct {
	Start, End uint64
	Tries      uint8 // number of rounds that lost it; 0 if a rollback lost it
}

func (t Stretch) len() uint64 { return t.End - t.Start }

// sequencesOf returns the sequences of a batch in order. A batch is an interval of positions. The first
// positions of a round have the sequences of its Retries, in order. The other positions have its fresh
// sequences, from DataIndex on.
func (r *Round) sequencesOf(batch assign.BatchID) (sequences []Stretch) {
	at := r.Position
	for _, part := range append(slices.Clip(r.Retries), Stretch{Start: r.DataIndex, End: r.NextData()}) {
		start, end := max(batch.Start, at), min(batch.End, at+part.len())
		if start < end {
			sequences = append(sequences, Stretch{part.Start + start - at, part.Start + end - at, part.Tries})
		}
		at += part.len()
	}
	return sequences
}

// Sequences returns the sequences of a batch of the round, as intervals in the order in which the batch
// contains them. Without lost sequences it is the batch itself.
func (r *Round) Sequences(batch assign.BatchID) []assign.BatchID {
	var sequences []assign.BatchID
	for _, part := range r.sequencesOf(batch) {
		if last := len(sequences) - 1; last >= 0 && sequences[last].End == part.Start {
			sequences[last].End = part.End
			continue
		}
		sequences = append(sequences, assign.BatchID{Start: part.Start, End: part.End})
	}
	return sequences
}

// NextData returns the first sequence after the round's fresh sequences.
func (r *Round) NextData() uint64 {
	next := r.DataIndex + uint64(r.BatchSize)
	for _, t := range r.Retries {
		next -= t.len()
	}
	return next
}

// NextPosition returns the first position after the round.
func (r *Round) NextPosition() uint64 { return r.Position + uint64(r.BatchSize) }

// warmingLast moves the batches of warming trainers to the end of the round. The other order stays. The
// results of these batches do not count, so their sequences form one stretch.
func (r *Round) warmingLast(assignments []assign.Assignment) {
	slices.SortStableFunc(assignments, func(a, b assign.Assignment) int {
		return cmp.Compare(flags(r.Warming.Has(a.Member), false), flags(r.Warming.Has(b.Member), false))
	})
	at := r.Position
	for i := range assignments {
		batch := &assignments[i].Batch
		*batch = assign.BatchID{Start: at, End: at + batch.Len()}
		at = batch.End
	}
}

// retries returns the stretches that the next round trains again: the oldest ones, but at most half of
// the round's sequences, so that stretches that no member can train do not stop the run.
func (s *State) retries(batchSize uint32) (retries []Stretch) {
	if !s.Config.RetryLost {
		return nil
	}
	room := uint64(batchSize / 2)
	for _, t := range s.Lost {
		if room == 0 || len(retries) == MaxRetries {
			break
		}
		t.End = min(t.End, t.Start+room)
		room -= t.len()
		retries = append(retries, t)
	}
	return retries
}

// take removes the sequences of a starting round from the sequences that wait.
func (s *State) take(round *Round) {
	s.Progress.DataIndex, s.Position = round.NextData(), round.NextPosition()
	if n := len(round.Retries); n > 0 {
		last := &s.Lost[n-1]
		if last.Start = round.Retries[n-1].End; last.Start < last.End {
			n-- // a part of it waits
		}
		s.Lost = slices.Delete(s.Lost, 0, n)
	}
}

// requeue adds the sequences of the newest round whose results do not count to the lost stretches. Like
// seal, it runs before the next round or Cooldown starts, and the round after the next round is the
// first that can train these sequences: the next round has been fixed since the newest round started.
//
// A result counts if a quorum of witnesses holds it and its trainer is not warming. Clients decide by
// commitments and roots (package tally). If witnesses are honest, the two decisions differ only by
// errors of the filters.
func (s *State) requeue() {
	n := len(s.Epoch.Rounds)
	if !s.Config.RetryLost || n == 0 {
		return
	}
	round := &s.Epoch.Rounds[n-1]
	counted := round.countedMembers(s.Config)
	for _, a := range round.Assignments(s.Config) {
		if counted.Has(a.Member) {
			continue
		}
		for _, t := range round.sequencesOf(a.Batch) {
			t.Tries++
			s.lose(t)
		}
	}
}

// countedMembers returns the members of a finished round whose results count.
func (r *Round) countedMembers(c Config) (counted MemberSet) {
	if !r.HasQuorum() {
		return MemberSet{}
	}
	outcomes, _ := r.outcomes(c)
	for member, outcome := range outcomes {
		if outcome == resultCounts && !r.Warming.Has(member) {
			counted.add(member)
		}
	}
	return counted
}

// lose adds a stretch to the lost stretches, or gives it up.
func (s *State) lose(t Stretch) {
	if last := len(s.Lost) - 1; last >= 0 && s.Lost[last].End == t.Start && s.Lost[last].Tries == t.Tries && t.Tries < MaxTries {
		s.Lost[last].End = t.End
	} else if t.Tries < MaxTries && len(s.Lost) < MaxLost {
		s.Lost = append(s.Lost, t)
	}
}

// Mark is the first fresh sequence that a model does not include.
type Mark struct {
	Step uint32 // newest step that the model includes
	Data uint64
}

// mark records a model from which the run may continue. The first mark is the origin's, so it stays.
func (s *State) mark(step uint32, data uint64) {
	if n := len(s.Marks); !s.Config.RetryLost || n > 0 && s.Marks[n-1].Step >= step {
		return
	}
	if len(s.Marks) == MaxMarks {
		s.Marks = slices.Delete(s.Marks, 1, 2)
	}
	s.Marks = append(s.Marks, Mark{step, data})
}

// markCommit records the newest intermediate checkpoint, which replaces the previous one of the epoch.
// It has no mark if its round is no longer stored.
func (s *State) markCommit(step uint32) {
	s.Marks = slices.DeleteFunc(s.Marks, func(m Mark) bool { return m.Step > max(s.Model.Checkpoint.Step, s.OriginStep-1) })
	if round := s.RoundOfStep(step); round != nil {
		s.mark(step, round.NextData())
	}
}

// rollBack makes all sequences that were fresh after a step wait again, because the run continues from
// the model of that step. Sequences that were retries after that step are given up.
func (s *State) rollBack(step uint32) {
	i := slices.IndexFunc(s.Marks, func(m Mark) bool { return m.Step == step })
	if !s.Config.RetryLost || i < 0 || s.Marks[i].Data == s.Progress.DataIndex {
		return
	}
	data := s.Marks[i].Data
	s.Marks = s.Marks[:i+1]
	s.Lost = slices.DeleteFunc(s.Lost, func(t Stretch) bool { return t.Start >= data })
	for j := range s.Lost {
		s.Lost[j].End = min(s.Lost[j].End, data)
	}
	s.Lost = slices.Insert(s.Lost[:min(len(s.Lost), MaxLost-1)], 0, Stretch{Start: data, End: s.Progress.DataIndex})
}

// brokenLost describes an invalid stretch or position.
func (s *State) brokenLost() string {
	if len(s.Lost) > MaxLost || s.Position < s.Progress.DataIndex || stretchesBroken(s.Lost, s.Progress.DataIndex) {
		return "lost stretches"
	}
	if broken := s.brokenMarks(); broken != "" {
		return broken
	}
	for i := range s.Epoch.Rounds {
		r, retried := &s.Epoch.Rounds[i], uint64(0)
		if len(r.Retries) > MaxRetries || r.Position < r.DataIndex || r.Position > 1<<64-1-uint64(r.BatchSize) || stretchesBroken(r.Retries, r.DataIndex) {
			return "retries"
		}
		for _, t := range r.Retries {
			retried += t.len()
		}
		if retried > uint64(r.BatchSize/2) {
			return "retries"
		}
	}
	return ""
}

func (s *State) brokenMarks() string {
	if len(s.Marks) > MaxMarks {
		return "marks"
	}
	for i, m := range s.Marks {
		if m.Step >= s.Progress.Step || m.Data > s.Progress.DataIndex || i > 0 && (m.Step <= s.Marks[i-1].Step || m.Data < s.Marks[i-1].Data) {
			return "marks"
		}
	}
	return ""
}

// stretchesBroken reports whether stretches are invalid, overlap, or have sequences from limit on.
func stretchesBroken(stretches []Stretch, limit uint64) bool {
	ordered := slices.SortedFunc(slices.Values(stretches), func(a, b Stretch) int { return cmp.Compare(a.Start, b.Start) })
	end := uint64(0)
	for _, t := range ordered {
		if t.Start < end || t.Start >= t.End || t.Tries >= MaxTries {
			return true
		}
		end = t.End
	}
	return end > limit
}
