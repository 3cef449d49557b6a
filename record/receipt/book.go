package receipt

import (
	"cmp"
	"encoding/hex"
	"slices"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/record/follow"
)

// Book counts the contributions of one member to a run, from the run's log.
type Book struct {
	member  coordinator.ClientID
	receipt Receipt
	head    [32]byte
	step    uint32         // of the newest round that has started
	waiting []contribution // counted, but not yet in a recorded model
}

// contribution is one counted result of the member that the receipt is for.
type contribution struct {
	step   uint32
	tokens uint64
}

// NewBook returns a Book without entries.
func NewBook(member identity.ID) *Book {
	return &Book{member: coordinator.ClientID(member), receipt: Receipt{Format: format, Member: member.String()}}
}

// Receipt returns the receipt for the entries so far.
func (b *Book) Receipt() Receipt {
	r := b.receipt
	r.Head = hex.EncodeToString(b.head[:])
	return r
}

// Entry is one entry of a run's log.
type Entry struct {
	Run    [32]byte // hash that identifies the run, only in the first entry of a run; else zero
	Head   [32]byte // of the log's hash chain, including this entry
	Time   uint64   // Unix time in milliseconds; 0 if the log has no time for it
	Actor  coordinator.ClientID
	Action coordinator.Action // nil for a tick or a genesis
}

// EntryOf returns the Entry for a record of a server's log. previous is the preceding head.
func EntryOf(previous [32]byte, record follow.Record) Entry {
	e := Entry{Head: follow.Chain(previous, record.AppendTo(nil))}
	switch record.Kind {
	case follow.KindGenesis:
		e.Run = record.Genesis.Run()
	case follow.KindTick:
		e.Time = record.Now
	case follow.KindAction:
		e.Actor, e.Action = coordinator.ClientID(record.Action.From), record.Action.Action
	}
	return e
}

// See counts the next entry of the log. s is the state after the entry; See does not keep it. If
// the entry starts a run, the counts of a previous run are reset.
func (b *Book) See(e Entry, s *coordinator.State) {
	if e.Run != ([32]byte{}) {
		member := b.receipt.Member
		b.receipt = Receipt{Format: format, Member: member, Run: hex.EncodeToString(e.Run[:]), RunID: s.RunID}
		b.step, b.waiting = s.Progress.Step, nil
	}
	r := &b.receipt
	b.head = e.Head
	r.Entries++
	r.Time = max(r.Time, e.Time)
	b.act(e)
	if s.Progress.Step > b.step {
		b.count(b.step, s)
		b.step = s.Progress.Step
	}
	b.keep(s)
}

// act counts the member's own actions.
func (b *Book) act(e Entry) {
	if e.Actor != b.member {
		return
	}
	switch e.Action.(type) {
	case coordinator.WitnessRound:
		b.receipt.Witnessed++
	case coordinator.Vote:
		b.receipt.Voted++
	}
}

// count counts the results of the round with the given step, which has ended.
func (b *Book) count(step uint32, s *coordinator.State) {
	round := s.RoundOfStep(step)
	if round == nil || !round.HasQuorum() {
		return
	}
	r, own, held := &b.receipt, uint64(0), make(map[int]bool)
	for _, batch := range round.Assignments(s.Config) {
		counts, judged := held[batch.Member]
		if !judged {
			counts = round.Score(round.Members[batch.Member]) >= int(round.WitnessesNeeded) && !round.Warming.Has(batch.Member)
			held[batch.Member] = counts
		}
		tokens := batch.Batch.Len() * uint64(s.Model.MaxSeqLen)
		if counts {
			r.AllTokens += tokens
		}
		if counts && round.Members[batch.Member] == b.member {
			own += tokens
		}
	}
	if own == 0 {
		return
	}
	r.First = cmp.Or(r.First, step)
	r.Last = step
	r.Rounds++
	r.Tokens += own
	b.waiting = append(b.waiting, contribution{step, own})
}

// keep moves the counted results into the newest model that the run has recorded. The run loses the
// results that are in no model when the next epoch starts.
func (b *Book) keep(s *coordinator.State) {
	r := &b.receipt
	step, digest := uint32(0), [32]byte{}
	if c := s.Model.Checkpoint; c.FromPeers() {
		step, digest = c.Step, c.Digest
	}
	if c := s.Epoch.Commit; c.Step > step {
		step, digest = c.Step, c.Digest
	}
	if step > r.ModelStep {
		r.ModelStep, r.Model = step, hex.EncodeToString(digest[:])
		b.waiting = slices.DeleteFunc(b.waiting, func(g contribution) bool {
			if g.step <= step {
				r.InModel++
				r.TokensInModel += g.tokens
			}
			return g.step <= step
		})
	}
	if s.RunState == coordinator.Warmup {
		b.waiting = nil
	}
}
