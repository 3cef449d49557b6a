package client

import (
	"slices"
	"time"

	"github.com/psyche-go/psyche/assign"
	"github.com/psyche-go/psyche/client/books"
	"github.com/psyche-go/psyche/client/env"
	"github.com/psyche-go/psyche/coordinator"
	"github.com/psyche-go/psyche/identity"
	"github.com/psyche-go/psyche/wire"
)

const (
	maxEarly     = books.MaxCandidates * coordinator.MaxClients
	maxEarlyEach = 2 * books.MaxCandidates // of one author
)

// ledger is a round's book, and what this client has to do in the round and has done.
type ledger struct {
	*books.Book
	start   wire.Head // of the run's log at the round's start; zero where no host signs heads
	opened  time.Time
	most    time.Time // when the results of two thirds of the awaited trainers were held; zero: not yet
	elected bool      // this client witnesses the round
	seats   int       // members that its epoch began with
	told    bool      // that everything that can be expected is held

	trained    bool                 // training was started
	ahead      assign.BatchID       // of the next round, once begun: not again before that round, should it fail
	commitment books.Commitment     // of the own result, once announced
	raw        []byte               // the own announcement
	asked      time.Time            // when peers were last asked for its results
	answered   map[identity.ID]bool // who has answered since the round is over

	offences  []*offence             // trainers that signed two results of a batch
	accusedIn *coordinator.State     // newest in which members were looked at
	judged    bool                   // suspects are known
	suspects  []coordinator.ClientID // whose results the witnesses do not hold
}

// openLedger opens the books of a round.
func openLedger(round coordinator.Round, v *view, draws env.Draws, now time.Time) *ledger {
	config := v.state.Config
	l := &ledger{start: v.startOf(round.Step), opened: now, answered: make(map[identity.ID]bool), Book: books.Open(round, v.state.Epoch.StartStep, draws.Assignments(&round, config))}
	l.seats = max(v.state.Seats(), len(round.Members)) // the epoch may be over
	if index, takesPart := round.MemberIndex(v.myself()); takesPart {
		l.elected = draws.Elected(&round, config, index)
	}
	return l
}

// wellAnswered reports whether so many members have said what they know of the finished round
// that one of them is honest, if fewer than a third of the epoch's first members lie.
func (l *ledger) wellAnswered() bool { return len(l.answered) > (l.seats-1)/3 }

// begin fixes the replica that the round's results must be made from: that after the newest
// step that is applied before it. Everything is applied at the start of an epoch.
func (l *ledger) begin(r *replica, lag uint32, report *reporter) {
	from := r.hash
	if r.step+lag > l.Round.Step {
		from = r.before
	}
	l.Begin(books.ReplicaAt(from, l.start.Hash))
	for i := range l.Slots {
		for _, c := range l.Slots[i].Candidates {
			report.foreign(l.Book, &l.Slots[i], c)
		}
	}
}

// ledgers are the rounds with books, announcements for those to come, and the replica of the model that
// they are applied to.
type ledgers struct {
	replica *replica           // nil: the client has no part in the epoch
	of      map[uint32]*ledger // by step
	steps   []uint32           // ascending; replaced, never modified
	early   []utterance        // for rounds that have not begun here
}

// put adds the ledger of a step.
func (ls *ledgers) put(step uint32, l *ledger) {
	ls.of[step] = l
	ls.order()
}

// remove takes the ledger of a step out.
func (ls *ledgers) remove(step uint32) {
	delete(ls.of, step)
	ls.order()
}

func (ls *ledgers) order() {
	steps := make([]uint32, 0, len(ls.of))
	for step := range ls.of {
		steps = append(steps, step)
	}
	slices.Sort(steps)
	ls.steps = steps
}

// after returns the books of the rounds after a step, oldest first.
func (ls *ledgers) after(step uint32) []*books.Book {
	open := make([]*books.Book, 0, len(ls.steps))
	for _, s := range ls.steps {
		if s > step {
			open = append(open, ls.of[s].Book)
		}
	}
	return open
}

// eachBlob calls need for the hash of each result that is held or on its way.
func (ls *ledgers) eachBlob(need func(hash [32]byte)) {
	for _, l := range ls.of {
		l.EachBlob(need)
	}
}

// keepEarly keeps an announcement of a peer that is a moment ahead of the next round.
func (ls *ledgers) keepEarly(u utterance, next uint32) {
	if step := u.announcement.Step; step < next || step > next+1 || len(ls.early) >= maxEarly {
		return
	}
	count := 0
	for _, other := range ls.early {
		if other.author == u.author {
			count++
		}
	}
	if count < maxEarlyEach {
		ls.early = append(ls.early, u)
	}
}

// takeEarly hands out what was kept.
func (ls *ledgers) takeEarly() []utterance {
	early := ls.early
	ls.early = nil
	return early
}
