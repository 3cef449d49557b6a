// Package ledger accounts for every sequence that the rounds of a run have used. It sees the states of
// the run in the order of its log, and knows by number which sequences count, wait, are being trained,
// or were given up, and why. It does not use the coordinator's records of lost sequences, but compares
// its result with them.
package ledger

import (
	"errors"
	"fmt"
	"slices"
	"sort"
	"strings"

	"github.com/psyche-go/psyche/core/assign"
	"github.com/psyche-go/psyche/core/coordinator"
)

// ErrBalance is wrapped by the errors of a Ledger: the coordinator's records of sequences contradict the
// results of the rounds.
var ErrBalance = errors.New("the ledger of sequences does not balance")

// Fate is the state of a sequence.
type Fate uint8

// Fates of a sequence. The run has given up those after Waiting.
const (
	Counted    Fate = iota // a result that counts contains it
	Running                // it is in a round that is not over
	Waiting                // a later round trains it
	NotRetried             // its result did not count, and the run trains no sequence again
	OutOfTries             // coordinator.MaxTries rounds lost it
	NoRoom                 // the list of lost stretches was full
	RolledBack             // the run continued from a model that does not include it
	fates
)

// span is an interval of sequences with the same fate.
type span struct {
	start, end uint64
	fate       Fate
	tries      uint8
	step       uint32 // Counted by a round that trained it again: the step of the round; else 0
}

// Ledger is the account. Its zero value expects the first state of a run.
type Ledger struct {
	spans       []span   // ascending and adjacent
	next        uint64   // sequence after the last span
	after       []uint64 // data index after each round
	first       uint32   // step of the first element of after
	begun, over uint32   // newest round that began, that is over
	state       coordinator.RunState
	started     bool
}

// Totals contains the number of sequences of each Fate.
type Totals [fates]uint64

// String describes the totals, without the fates that no sequence has.
func (t Totals) String() string {
	var parts []string
	for fate, name := range []string{"counted", "in a round", "waiting", "not trained again", "given up after all tries", "given up for lack of room", "given up by a rollback"} {
		if t[fate] > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", t[fate], name))
		}
	}
	return strings.Join(parts, ", ")
}

// Totals returns the numbers of sequences.
func (l *Ledger) Totals() (t Totals) {
	for _, s := range l.spans {
		t[s.fate] += s.end - s.start
	}
	return t
}

// Clone returns a copy that shares no memory with l.
func (l *Ledger) Clone() Ledger {
	c := *l
	c.spans, c.after = slices.Clone(l.spans), slices.Clone(l.after)
	return c
}

// See processes the next state of the run.
func (l *Ledger) See(s *coordinator.State) error {
	if !l.started {
		*l = Ledger{next: s.Progress.DataIndex, first: s.Progress.Step, started: true}
	}
	changed := false
	for i := range s.Epoch.Rounds {
		if r := &s.Epoch.Rounds[i]; r.Step > l.begun {
			if err := l.begin(r); err != nil {
				return err
			}
		}
	}
	for i := range s.Epoch.Rounds {
		if r := &s.Epoch.Rounds[i]; r.Step > l.over && r.Step < s.Progress.Step {
			l.over, changed = r.Step, true
			if err := l.end(r, s.Config); err != nil {
				return err
			}
		}
	}
	begins := s.RunState != l.state && (s.RunState == coordinator.Warmup || s.RunState == coordinator.Finished)
	l.state = s.RunState
	if n := len(s.RollbackGaps); begins && n > 0 && s.RollbackGaps[n-1].Last == s.Progress.Step-1 {
		changed = true
		if err := l.rollBack(s, s.RollbackGaps[n-1].First); err != nil {
			return err
		}
	}
	if !changed {
		return nil
	}
	return l.compare(s)
}

// begin puts the sequences of a round into it.
func (l *Ledger) begin(r *coordinator.Round) error {
	l.begun = r.Step
	for int(r.Step-l.first) > len(l.after) { // a round without a state: not in a complete log
		l.after = append(l.after, l.next)
	}
	for _, t := range r.Retries {
		if err := l.set(span{start: t.Start, end: t.End, fate: Running, tries: t.Tries}, Waiting); err != nil {
			return fmt.Errorf("step %d trains again: %w", r.Step, err)
		}
	}
	if r.DataIndex != l.next {
		return fmt.Errorf("%w: step %d begins at sequence %d, want %d", ErrBalance, r.Step, r.DataIndex, l.next)
	}
	if l.next = r.NextData(); l.next > r.DataIndex {
		l.spans = append(l.spans, span{start: r.DataIndex, end: l.next, fate: Running})
	}
	l.after = append(l.after, l.next)
	return nil
}

// end judges the results of a round.
func (l *Ledger) end(r *coordinator.Round, c coordinator.Config) error {
	for _, a := range r.Assignments(c) {
		id, witnesses := r.Members[a.Member], 0
		for i := range r.Witnesses {
			if r.Witnesses[i].Participants.Contains(r.Seed, id[:]) {
				witnesses++
			}
		}
		counts := witnesses >= int(r.WitnessesNeeded) && !r.Warming.Has(a.Member)
		for _, part := range r.Sequences(a.Batch) {
			for _, old := range l.pieces(part) {
				if err := l.set(judged(old, counts, r, c), Running); err != nil {
					return fmt.Errorf("step %d: %w", r.Step, err)
				}
			}
		}
	}
	return nil
}

// judged returns a span after its round.
func judged(old span, counts bool, r *coordinator.Round, c coordinator.Config) span {
	switch {
	case counts && old.start < r.DataIndex:
		return span{start: old.start, end: old.end, fate: Counted, step: r.Step}
	case counts:
		return span{start: old.start, end: old.end, fate: Counted}
	case !c.RetryLost:
		old.fate = NotRetried
	case old.tries+1 == coordinator.MaxTries:
		old.fate = OutOfTries
	default:
		old.fate = Waiting
	}
	old.tries++
	return old
}

// rollBack forgets what the run trained from step first on, because the model from which it continues does
// not include that.
func (l *Ledger) rollBack(s *coordinator.State, first uint32) error {
	data := l.next
	switch before := int64(first) - int64(l.first); { // number of rounds before the gap
	case before == 0 && len(l.spans) > 0:
		data = l.spans[0].start
	case before > 0 && before <= int64(len(l.after)):
		data = l.after[before-1]
	}
	again := len(s.Lost) > 0 && s.Lost[0].Start == data && s.Lost[0].End == l.next && s.Lost[0].Tries == 0
	for i := range l.spans {
		piece := &l.spans[i]
		if piece.fate == Counted && piece.start < data && piece.step >= first {
			piece.fate, piece.step = RolledBack, 0
		}
	}
	if data == l.next {
		return nil
	}
	for _, old := range l.pieces(assign.BatchID{Start: data, End: l.next}) {
		switch {
		case again:
			old = span{start: old.start, end: old.end, fate: Waiting}
		case old.fate == Counted:
			old.fate, old.step = RolledBack, 0
		}
		if err := l.set(old); err != nil {
			return err
		}
	}
	return nil
}

// compare compares the sequences that wait with the coordinator's, and gives up those for which the
// coordinator had no room.
func (l *Ledger) compare(s *coordinator.State) error {
	kept := slices.SortedFunc(slices.Values(s.Lost), func(a, b coordinator.Stretch) int {
		if a.Start < b.Start {
			return -1
		}
		return 1
	})
	for _, t := range kept {
		for _, old := range l.pieces(assign.BatchID{Start: t.Start, End: t.End}) {
			if old.fate != Waiting || old.tries != t.Tries {
				return fmt.Errorf("%w: the sequences %d to %d wait after %d tries, want %v after %d", ErrBalance, old.start, old.end, t.Tries, old.fate, old.tries)
			}
		}
	}
	for _, old := range slices.Clone(l.spans) {
		if old.fate != Waiting {
			continue
		}
		at := old.start
		for _, t := range append(kept, coordinator.Stretch{Start: old.end, End: old.end}) {
			if t.Start > at && t.Start <= old.end && at < old.end {
				if len(s.Lost) < coordinator.MaxLost {
					return fmt.Errorf("%w: no list has the sequences %d to %d", ErrBalance, at, t.Start)
				}
				if err := l.set(span{start: at, end: t.Start, fate: NoRoom, tries: old.tries}, Waiting); err != nil {
					return err
				}
			}
			at = max(at, min(t.End, old.end))
		}
	}
	return nil
}

// pieces returns the parts of the spans in an interval.
func (l *Ledger) pieces(of assign.BatchID) (pieces []span) {
	i := sort.Search(len(l.spans), func(i int) bool { return l.spans[i].end > of.Start })
	for ; i < len(l.spans) && l.spans[i].start < of.End; i++ {
		piece := l.spans[i]
		piece.start, piece.end = max(piece.start, of.Start), min(piece.end, of.End)
		pieces = append(pieces, piece)
	}
	return pieces
}

// set replaces an interval, whose present fate must be one of from, if from is given.
func (l *Ledger) set(to span, from ...Fate) error {
	i := sort.Search(len(l.spans), func(i int) bool { return l.spans[i].end > to.start })
	j := i
	for ; j < len(l.spans) && l.spans[j].start < to.end; j++ {
		if len(from) > 0 && !slices.Contains(from, l.spans[j].fate) {
			return fmt.Errorf("%w: the fate of the sequences %d to %d is %d, want %v", ErrBalance, l.spans[j].start, l.spans[j].end, l.spans[j].fate, from)
		}
	}
	if i == j || l.spans[i].start > to.start || l.spans[j-1].end < to.end {
		return fmt.Errorf("%w: the sequences %d to %d were in no round", ErrBalance, to.start, to.end)
	}
	left, right := l.spans[i], l.spans[j-1]
	left.end, right.start = to.start, to.end
	var pieces []span
	for _, piece := range []span{left, to, right} {
		if piece.start < piece.end {
			pieces = append(pieces, piece)
		}
	}
	l.spans = slices.Replace(l.spans, i, j, pieces...)
	for k := min(i+len(pieces), len(l.spans)-1); k > max(0, i-1); k-- {
		if a, b := &l.spans[k-1], l.spans[k]; a.fate == b.fate && a.tries == b.tries && a.step == b.step {
			a.end = b.end
			l.spans = slices.Delete(l.spans, k, k+1)
		}
	}
	return nil
}
