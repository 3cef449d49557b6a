package client

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/psyche-go/psyche/coordinator"
	"github.com/psyche-go/psyche/data"
	"github.com/psyche-go/psyche/event"
	"github.com/psyche-go/psyche/identity"
	"github.com/psyche-go/psyche/wire"
)

const (
	maxEarly     = maxAnnouncements
	maxEarlyEach = 2 * maxCandidates // of one author

	maxHeardAtOnce = coordinator.MaxClients // announcements, before the loop looks at anything else
)

// ledger is a round's books, and what the client has done in it.
type ledger struct {
	*results
	epochStart uint32 // StartStep of the round's epoch
	elected    bool   // this client witnesses the round

	tokens      *data.Batch // the own batch; nil: not read yet
	loading     bool        // tokens are on their way
	loadAt      time.Time   // not before
	loadTries   int
	trained     bool       // training was started
	commitment  commitment // of the own result, once announced
	raw         []byte     // the own announcement
	settleSince time.Time  // when it was first tried to apply the round
	settled     judgement  // what came of that
	asked       time.Time  // when peers were last asked for its results

	unfetched int                    // candidates in state announced
	unshelved bool                   // peers cannot ask for the newest announcements yet
	judged    bool                   // suspects are known
	suspects  []coordinator.ClientID // whose results the witnesses do not hold
}

// utterance is an announcement whose signature was verified.
type utterance struct {
	from         identity.ID // who gossiped it; zero when it was asked for
	author       identity.ID
	announcement wire.ResultAnnouncement
	raw          []byte
}

// openRounds brings the books in line with the newest state.
func (n *Node) openRounds() {
	rounds := n.state.Epoch.Rounds
	if len(rounds) == 0 {
		return
	}
	running := n.state.RunState == coordinator.RoundTrain || n.state.RunState == coordinator.RoundWitness
	newest := rounds[len(rounds)-1].Step
	for i, round := range rounds {
		l := n.rounds[round.Step]
		if l != nil && l.round.Seed != round.Seed { // the host lost its memory
			n.closeRound(round.Step)
			l = nil
		}
		if l == nil {
			if round.Step+n.keptRounds() <= newest {
				continue
			}
			l = n.openRound(round)
		}
		l.renew(round, !running || i < len(rounds)-1)
	}
	for _, step := range n.opened {
		behind := n.replica != nil && step > n.replica.step && step+coordinator.StoredRounds > newest
		ahead := step > newest // the host went back: these rounds are not the run's
		if ahead || step+n.keptRounds() <= newest && !behind {
			n.closeRound(step)
		}
	}
	early := n.early
	n.early = nil
	for _, u := range early {
		n.hear(u)
	}
}

// keptRounds is how many rounds have books: the running one, those that are not applied
// before it, and one more for peers that are late.
func (n *Node) keptRounds() uint32 {
	if n.trainer == nil {
		return 3
	}
	return 2 + n.trainer.ApplyLag()
}

// openRound opens the books of a round.
func (n *Node) openRound(round coordinator.Round) *ledger {
	l := &ledger{results: newResults(round, n.Draws.Assignments(&round, n.state.Config)), epochStart: n.state.Epoch.StartStep}
	if index, takesPart := round.MemberIndex(coordinator.ClientID(n.id)); takesPart {
		l.elected = n.Draws.Elected(&round, n.state.Config, index)
	}
	n.rounds[round.Step] = l
	n.opened = openSteps(n.rounds)
	return l
}

// openSteps returns the steps with books, ascending.
func openSteps(rounds map[uint32]*ledger) []uint32 {
	steps := make([]uint32, 0, len(rounds))
	for step := range rounds {
		steps = append(steps, step)
	}
	slices.Sort(steps)
	return steps
}

// closeRound forgets a round and its blobs.
func (n *Node) closeRound(step uint32) {
	n.rounds[step].stopFetches()
	blobs := n.rounds[step].blobs()
	delete(n.rounds, step)
	n.opened = openSteps(n.rounds)
	n.shelf.dropRound(step)
	n.dropBlobs(blobs)
}

// listen verifies what gossip brings. It runs in the network's goroutine.
func (n *Node) listen(from identity.ID, message []byte) {
	if len(message) > maxAnnouncementSize {
		n.log.Debug("gossip is too long", "from", from.Short(), "bytes", len(message))
		n.Misbehaved(from, InvalidMessage, "announcement that is too long")
		return
	}
	author, announcement, err := n.Announcements.Open(message)
	if err != nil {
		n.log.Debug("gossip refused", "from", from.Short(), "err", err)
		n.Misbehaved(from, InvalidMessage, "announcement: "+err.Error())
		return
	}
	select {
	case n.heard <- utterance{from, author, announcement, message}:
	default: // heal asks again for what is lost here
	}
}

// hear enters an announcement into the books, or keeps it for a round to come.
func (n *Node) hear(u utterance) {
	a := u.announcement
	l := n.rounds[a.Step]
	if l == nil {
		// Nobody announces a result again once its round is over.
		if u.from != (identity.ID{}) && n.state != nil && a.Step+coordinator.StoredRounds < n.state.Progress.Step {
			n.Misbehaved(u.from, ReplayedRound, fmt.Sprintf("step %d in step %d", a.Step, n.state.Progress.Step))
		}
		n.keepEarly(u)
		return
	}
	err := l.hear(u.author, a, u.raw)
	crowded := len(l.displaced) > 0
	n.letGo(l)
	switch {
	case err == nil || crowded:
	case errors.Is(err, errOtherSize):
		n.dispute(l, u)
		return
	case errors.Is(err, errEquivocation):
		n.log.Warn("a trainer signed two results", "step", a.Step, "batch", a.Batch, "from", u.author.Short())
		e := event.Equivocation{Step: a.Step, Batch: batchOf(a.Batch), From: u.author.String()}
		for _, c := range l.find(a.Batch).candidates {
			e.Commitments = append(e.Commitments, hexOf(c.commitment))
		}
		n.emit(e)
	default:
		if !errors.Is(err, errKnownResult) {
			n.log.Debug("announcement refused", "from", u.author.Short(), "err", err)
		}
		return
	}
	l.unfetched++
	l.unshelved = true
}

// letGo ends what was done for results that have made room for others.
func (n *Node) letGo(l *ledger) {
	for _, c := range l.displaced {
		switch c.state {
		case announced:
			l.unfetched--
		case fetching:
			c.stopped = true
			c.stop()
		}
		n.dropBlobs([][32]byte{c.commitment})
	}
	l.displaced = nil
}

// dispute forgets the size of a result whose trainer signed different ones, so that who
// believed the wrong one could not fetch what counts.
func (n *Node) dispute(l *ledger, u utterance) {
	n.log.Warn("a trainer signed a result with two sizes", "step", u.announcement.Step, "batch", u.announcement.Batch, "from", u.author.Short())
	for _, c := range l.find(u.announcement.Batch).candidates {
		if c.commitment != u.announcement.Blob {
			continue
		}
		c.disputed = true
		c.retryAt = time.Time{}
		if c.state == refused && c.stop == nil { // for its size
			c.state = announced
			l.unfetched++
		}
		if c.state == fetching {
			c.stop()
		}
	}
}

// shelve lets peers ask for what was heard since the last time.
func (n *Node) shelve() {
	for step, l := range n.rounds {
		if l.unshelved {
			l.unshelved = false
			for i := range l.slots {
				if s := &l.slots[i]; s.unshelved {
					s.unshelved = false
					n.shelf.putBatch(step, i, len(l.slots), l.announcements(s))
				}
			}
		}
	}
}

// keepEarly keeps an announcement of a peer that is a moment ahead.
func (n *Node) keepEarly(u utterance) {
	if n.state == nil || !n.healthy(coordinator.ClientID(u.author)) {
		return
	}
	next := n.state.Progress.Step
	if step := u.announcement.Step; step < next || step > next+1 || len(n.early) >= maxEarly {
		return
	}
	count := 0
	for _, other := range n.early {
		if other.author == u.author {
			count++
		}
	}
	if count < maxEarlyEach {
		n.early = append(n.early, u)
	}
}

// begin fixes the replica that a round's results must be made from: that after the
// newest step that is applied before it. Everything is applied at the start of an epoch.
func (n *Node) begin(l *ledger) {
	from := n.replica.hash
	if n.replica.step+n.trainer.ApplyLag() > l.round.Step {
		from = n.replica.before
	}
	l.begin(from)
	for i := range l.slots {
		for _, c := range l.slots[i].candidates {
			n.flagReplica(l, &l.slots[i], c)
		}
	}
}

// flagReplica reports a held result that was made from another model.
func (n *Node) flagReplica(l *ledger, s *slot, c *candidate) {
	if l.began && c.state == held && c.replica != l.replica {
		n.reject(l, s, "made from another replica of the model")
	}
}

// reject reports a result that is not counted here.
func (n *Node) reject(l *ledger, s *slot, reason string) {
	from := identity.ID(s.owner)
	n.log.Warn("result rejected", "step", l.round.Step, "batch", s.batch, "from", from.Short(), "reason", reason)
	n.emit(event.Rejected{Step: l.round.Step, Batch: batchOf(s.batch), From: from.String(), Reason: reason})
}
