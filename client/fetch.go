package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/psyche-go/psyche/identity"
)

const (
	maxHolders = 8 // peers that are tried for one result
	fetchPause = 500 * time.Millisecond
	maxPause   = 5 * time.Second

	// A fetch that is slower than the ones before by slowFactor, beyond minPatience, gives
	// way to others that wait. As long as nothing was measured it has 1/unmeasuredShare of
	// the time that a finished round has to complete.
	minPatience     = 2 * time.Second
	slowFactor      = 4
	unmeasuredShare = 8
)

// want is an announced result that is not on its way.
type want struct {
	ledger    *ledger
	slot      *slot
	candidate *candidate
	setbacks  int // failed attempts, and what its owner let run out of time before
	need      need
	rank      int // within its round
}

// need is how much depends on a result.
type need uint8

const (
	needed    need = iota // its round runs, or it counts as far as is known
	telling               // it can be what a witness's filter stands for, or another one of its batch
	supported             // a witness's filter contains it
	useless
)

// fetchResults starts to fetch what was announced: oldest rounds first, within a round
// first what has not failed. When all places are taken, fetches that are overdue give way,
// so that peers who stall hold up nothing that others have.
func (n *Node) fetchResults() {
	if n.replica == nil || n.trainer == nil {
		return
	}
	if n.fetches >= n.Downloads && n.Runtime.Now().Before(n.overdue) {
		return
	}
	wanted := n.wanted()
	if waiting := len(wanted) - (n.Downloads - n.fetches); waiting > 0 {
		n.makeRoom(waiting)
	}
	for _, w := range wanted {
		if n.fetches >= n.Downloads {
			return
		}
		n.fetchResult(w.ledger, w.slot, w.candidate)
	}
}

// wanted lists what can be fetched now, in the order in which it should be; the list is
// overwritten by the next call.
func (n *Node) wanted() []want {
	now := n.Runtime.Now()
	all := n.wants[:0]
	for _, step := range n.opened {
		l := n.rounds[step]
		if step <= n.replica.step || l.unfetched == 0 {
			continue // applied, nobody needs it here any more; or on its way
		}
		first := len(all)
		needOf := l.needs()
		for i := range l.slots {
			s := &l.slots[i]
			for _, c := range s.candidates {
				if c.state != announced || now.Before(c.retryAt) {
					continue
				}
				if need := needOf(s, c); need != useless {
					all = append(all, want{l, s, c, c.attempts + n.stalls[identity.ID(s.owner)], need, 0})
				}
			}
		}
		inOrder(all[first:], n.turn%2 == 1)
	}
	n.wants = all
	return all
}

// inOrder sorts what is wanted of one round: first what is needed and has not failed. Then
// what is needed and has failed takes turns with what is not known to be needed, so that
// neither forged commitments hold up what exposes them, nor results that count for nothing
// what does count. Who is first in that changes from one fetch to the next.
func inOrder(wants []want, failedFirst bool) {
	slices.SortStableFunc(wants, func(a, b want) int {
		return cmp.Or(cmp.Compare(a.setbacks, b.setbacks), cmp.Compare(a.need, b.need))
	})
	failed, others := 1, 2
	if !failedFirst {
		failed, others = others, failed
	}
	for i := range wants {
		switch w := &wants[i]; {
		case w.need != needed:
			w.rank, others = others, others+2
		case w.setbacks > 0:
			w.rank, failed = failed, failed+2
		}
	}
	slices.SortStableFunc(wants, func(a, b want) int { return cmp.Compare(a.rank, b.rank) })
}

// needs returns how much depends on each result. Of a round that is over those are useless
// that cannot be among its outcome, once that is known. As long as it is not, or lacks
// results, also what a single witness holds is fetched: only with that can its list be
// read, and without the lists forged commitments count that nobody can fetch.
func (l *ledger) needs() func(s *slot, c *candidate) need {
	switch {
	case !l.final:
		return func(*slot, *candidate) need { return needed }
	case !l.round.HasQuorum():
		return func(*slot, *candidate) need { return useless }
	}
	outcome, judged := l.settled.outcome, l.settled.made
	_, agreed := l.round.QuorumRoot()
	decided := judged && !outcome.open && (agreed || outcome.missing == 0) // nothing else has an agreed root
	return func(s *slot, c *candidate) need {
		switch votes := l.votes(c); {
		case judged && slices.Contains(outcome.sources, c), !judged && votes >= int(l.round.WitnessesNeeded):
			return needed
		case decided, votes == 0, !judged && !agreed:
			return useless
		case len(s.candidates) > 1:
			return telling
		}
		return supported
	}
}

// makeRoom stops overdue fetches, at most so many as results wait for a place, and notes
// when the next one will be overdue. What was
// stopped waits for its next turn.
func (n *Node) makeRoom(waiting int) {
	now := n.Runtime.Now()
	n.overdue = now.Add(n.settleTimeout())
	for _, step := range n.opened {
		for i := range n.rounds[step].slots {
			s := &n.rounds[step].slots[i]
			for _, c := range s.candidates {
				switch {
				case c.state != fetching || c.stopped:
				case waiting > 0 && now.After(c.due):
					c.stopped = true
					c.stop()
					n.stalls[identity.ID(s.owner)]++
					waiting--
				case c.due.Before(n.overdue):
					n.overdue = c.due
				}
			}
		}
	}
}

// patience is how long a fetch of size bytes may keep others waiting. It doubles with every
// attempt, so that a slow link is no reason never to get a result.
func (n *Node) patience(size uint64, attempts int) time.Duration {
	limit := n.settleTimeout()
	patience := max(minPatience, limit/unmeasuredShare)
	if n.pace > 0 {
		expected := slowFactor * float64(size) / n.pace // seconds
		patience = minPatience + time.Duration(min(expected, limit.Seconds()/2)*float64(time.Second))
	}
	return min(patience<<min(attempts, 8), limit)
}

// measure takes a successful fetch into the pace that later ones are measured by.
func (n *Node) measure(size int, took time.Duration) {
	pace := float64(size) / max(took.Seconds(), 1e-3)
	if n.pace == 0 {
		n.pace = pace
		return
	}
	n.pace += (pace - n.pace) / 8
}

// fetchLimit is how long a result of the round can be of use: until the round has to be
// complete.
func (n *Node) fetchLimit(l *ledger) time.Duration {
	limit := n.settleTimeout()
	switch {
	case !l.final:
		c := n.state.Config
		return limit + time.Duration(c.MaxRoundTrainTime+c.RoundWitnessTime)*time.Millisecond
	case !l.settleSince.IsZero():
		return max(limit-n.Runtime.Now().Sub(l.settleSince), minPatience)
	}
	return limit
}

// fetchResult fetches and verifies one result.
func (n *Node) fetchResult(l *ledger, s *slot, c *candidate) {
	l.unfetched--
	limit := n.trainer.MaxResultSize()
	if uint64(c.size) > uint64(limit) && !c.disputed {
		c.state = refused
		n.reject(l, s, fmt.Sprintf("result of %d bytes, at most %d are possible", c.size, limit))
		return
	}
	c.state = fetching
	n.fetches++
	fetch, size := n.Network.Fetch, uint64(c.size)
	if c.disputed {
		fetch, size = n.Network.FetchUpTo, uint64(limit)
	}
	step, trainer, holders, suspect := l.round.Step, n.trainer, n.holders(l, s, c), n.storeLoses
	begun := n.Runtime.Now()
	ctx, stop := n.Runtime.WithTimeout(n.work, n.fetchLimit(l))
	c.stop, c.stopped, c.due = stop, false, begun.Add(n.patience(size, c.attempts))
	if c.due.Before(n.overdue) {
		n.overdue = c.due
	}
	n.spawn(func(context.Context) func() {
		defer stop()
		payload, err := fetch(ctx, c.commitment, size, holders)
		took := n.Runtime.Now().Sub(begun)
		var invalid error
		kept := true
		if err == nil {
			invalid = trainer.Verify(payload, step, s.batch, s.owner)
			if suspect {
				_, lost := n.Network.Fetch(ctx, c.commitment, uint64(len(payload)), nil)
				kept = lost == nil
			}
		}
		return func() {
			if err == nil {
				n.measure(len(payload), took)
			}
			n.fetched(l, s, c, payload, err, invalid)
			if !kept && c.state == held {
				c.payload = payload
			}
		}
	})
}

// holders lists who is asked for a result. Its trainer is the first, unless it has lied
// about it, or has let fetches run out of time. Of the others those who did come last.
func (n *Node) holders(l *ledger, s *slot, c *candidate) []identity.ID {
	owner := identity.ID(s.owner)
	n.turn++
	members := l.round.Members
	others := make([]identity.ID, 0, maxHolders)
	last := c.disputed || n.stalls[owner] > 0
	if !last {
		others = append(others, owner)
	}
	room := len(others) + maxHolders - 1
	var stalling []identity.ID
	for i := 0; i < len(members) && len(others) < room; i++ {
		id := identity.ID(members[(i+n.turn)%len(members)])
		switch {
		case id == owner || id == n.id:
		case n.stalls[id] > 0:
			stalling = append(stalling, id)
		default:
			others = append(others, id)
		}
	}
	slices.SortStableFunc(stalling, func(a, b identity.ID) int { return cmp.Compare(n.stalls[a], n.stalls[b]) })
	others = append(others, stalling[:min(len(stalling), room-len(others))]...)
	if last {
		others = append(others, owner)
	}
	return others
}

// stopFetches ends the fetches of a round whose results are not needed any more.
func (l *ledger) stopFetches() {
	for i := range l.slots {
		for _, c := range l.slots[i].candidates {
			if c.state == fetching {
				c.stopped = true
				c.stop()
			}
		}
	}
}

// fetched enters the outcome of fetchResult.
func (n *Node) fetched(l *ledger, s *slot, c *candidate, payload []byte, err, invalid error) {
	n.fetches--
	step := l.round.Step
	from := identity.ID(s.owner)
	noRoom := errors.Is(err, ErrNoRoom)
	if noRoom { // the rounds that run come first
		n.forgetResults(0)
	}
	if !slices.Contains(s.candidates, c) { // displaced meanwhile
		if err == nil {
			n.dropBlobs([][32]byte{c.commitment})
		}
		return
	}
	if c.noRoom != noRoom {
		c.noRoom = noRoom
		l.changes++
	}
	if err != nil {
		if errors.Is(err, context.DeadlineExceeded) {
			n.stalls[from]++
		}
		c.state = announced
		l.unfetched++
		c.retryAt = n.Runtime.Now().Add(min(fetchPause<<min(c.attempts, 8), maxPause))
		c.attempts++
		n.log.Debug("fetch result", "step", step, "batch", s.batch, "from", from.Short(), "attempt", c.attempts, "err", err)
		return
	}
	n.total.PayloadReceived += uint64(len(payload))
	switch {
	case n.rounds[step] != l, n.replica != nil && step <= n.replica.step: // too late
		c.state = refused
		n.dropBlobs([][32]byte{c.commitment})
	case invalid != nil:
		c.state = refused
		n.dropBlobs([][32]byte{c.commitment})
		n.reject(l, s, invalid.Error())
	default:
		c.state, c.size = held, uint32(len(payload)) // which its trainer may have said differently
		l.changes++
		if len(s.candidates) > 1 { // it may be preferred now
			s.unshelved, l.unshelved = true, true
		}
		n.flagReplica(l, s, c)
	}
}
