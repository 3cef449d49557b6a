package check

import (
	"slices"

	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/record/ledger"
)

// mostBooks is the number of states whose books are kept. A host that crashes loses fewer states.
const mostBooks = 64

// book is the ledger of the run's sequences after a tick.
type book struct {
	epoch, step uint32
	state       coordinator.RunState
	since       uint64
	sequences   ledger.Ledger
}

// accounts checks where the sequences of the run are after a tick.
func (c *Checker) accounts(s *coordinator.State) {
	if !s.Config.RetryLost || c.booksLost {
		return
	}
	next := bookOf(s)
	if n := len(c.books); n > 0 {
		next.sequences = c.books[n-1].sequences.Clone()
	}
	if err := next.sequences.See(s); err != nil {
		c.Violate(SequencesKept, "step %d: %v", s.Progress.Step, err)
	}
	if c.books = append(c.books, next); len(c.books) > mostBooks {
		c.books = slices.Delete(c.books, 0, 1)
	}
}

func bookOf(s *coordinator.State) book {
	return book{epoch: s.Progress.Epoch, step: s.Progress.Step, state: s.RunState, since: s.StateStart}
}

// rewindBooks returns to the book of an earlier state. Without that book, it checks no sequences any more.
func (c *Checker) rewindBooks(s *coordinator.State) {
	if len(c.books) == 0 {
		return
	}
	at := bookOf(s)
	i := slices.IndexFunc(c.books, func(b book) bool {
		return b.epoch == at.epoch && b.step == at.step && b.state == at.state && b.since == at.since
	})
	c.books, c.booksLost = c.books[:i+1], i < 0
}
