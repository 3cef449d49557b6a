package client

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/psyche-go/psyche/coordinator"
	"github.com/psyche-go/psyche/event"
	"github.com/psyche-go/psyche/identity"
)

const (
	opApply = "apply"

	maxApplyFailures = 3 // in a row, before the client gives up

	judgePause = 100 * time.Millisecond // between decisions of a round that lacks results
)

// roundWitness proves what is held of the round that has just ended.
func (n *Node) roundWitness() {
	n.cancelTraining(0)
	if l := n.keepUp(); l != nil {
		n.sendWitness(l, true)
	}
}

// sendWitness sends the proof of an elected witness: as soon as everything that can be
// expected is held, or at the round's end whatever is.
func (n *Node) sendWitness(l *ledger, now bool) {
	if !l.elected || (!now && !l.complete(n.healthy)) {
		return
	}
	index, _ := l.round.MemberIndex(coordinator.ClientID(n.id))
	if slices.ContainsFunc(l.round.Witnesses, func(w coordinator.Witness) bool { return int(w.Member) == index }) {
		return
	}
	if n.answered("witness", l.round.Step) {
		return
	}
	proof, count := l.witness()
	n.submit("witness", proof.Step, proof, func() {
		n.log.Info("witnessed", "step", proof.Step, "held", count, "batches", len(l.slots))
		n.emit(event.WitnessSent{Step: proof.Step, Held: count, Batches: len(l.slots)})
	})
}

// settle applies the results of finished rounds up to a step and reports whether all are
// applied. What it lacks it asks peers for; when that fails in time, or when it missed
// too much, the client is desynchronised.
func (n *Node) settle(want uint32) bool {
	if n.replica.step >= want {
		return true
	}
	if n.op != nil {
		n.cancelTraining(0)
		return false
	}
	step := n.replica.step + 1
	l := n.rounds[step]
	if l == nil || !l.final || l.epochStart != n.replica.epoch.startStep {
		n.desynchronise(fmt.Sprintf("the outcome of step %d was missed", step))
		return false
	}
	if !l.began {
		n.begin(l)
	}
	if replica, agreed := l.round.QuorumReplica(); agreed && replica != l.replica {
		n.desynchronise(fmt.Sprintf("the witnesses of step %d hold another model", step))
		return false
	}
	late := !l.settleSince.IsZero() && n.Runtime.Now().Sub(l.settleSince) > n.settleTimeout()
	outcome := n.judge(l, late)
	if outcome.missing == 0 {
		n.apply(l, outcome)
		return false
	}
	if l.settleSince.IsZero() {
		l.settleSince = n.Runtime.Now()
	}
	if late {
		if outcome.noRoom { // joining again would end the same way
			n.fail(fmt.Errorf("get the results of step %d from peers: %w", step, ErrNoRoom))
			return false
		}
		n.desynchronise(fmt.Sprintf("%d results of step %d cannot be had from peers", outcome.missing, step))
		return false
	}
	n.askFor(l, outcome.informed)
	return false
}

// judgement is an outcome and what it was decided from.
type judgement struct {
	made      bool
	at        time.Time
	witnesses []coordinator.Witness
	changes   int
	outcome   outcome
}

// judge decides the round, unless nothing has changed since the last time: newer states of
// the run say nothing new of a round that is over. A decision takes long when many
// commitments were forged. So while results are missing, and others are still to come, it
// is made only once in judgePause, unless it must be made now; the next heartbeat makes up
// for what was left out.
func (n *Node) judge(l *ledger, now bool) outcome {
	s := &l.settled
	if s.made && s.changes == l.changes && slices.Equal(s.witnesses, l.round.Witnesses) {
		return s.outcome
	}
	if s.made && s.outcome.missing > 0 && !now && n.Runtime.Now().Sub(s.at) < judgePause && l.unfinished() {
		return s.outcome
	}
	o := l.decide()
	*s = judgement{true, n.Runtime.Now(), l.round.Witnesses, l.changes, o}
	return o
}

// settleTimeout is how long a finished round may take to complete.
func (n *Node) settleTimeout() time.Duration {
	if n.SettleTimeout > 0 {
		return n.SettleTimeout
	}
	return max(time.Duration(n.state.Config.MaxRoundTrainTime)*time.Millisecond, requestTimeout)
}

// apply makes a round's outcome part of the model.
func (n *Node) apply(l *ledger, o outcome) {
	own := l.commitment != (commitment{}) && slices.ContainsFunc(o.counted, func(c countedResult) bool { return c.commitment == l.commitment })
	replica, trainer, step := n.replica, n.trainer, l.round.Step
	n.model = nil
	n.start(opApply, step, func(ctx context.Context) func() {
		begun := n.Runtime.Now()
		var err error
		var unread []*candidate
		if o.payloads, unread, err = readPayloads(ctx, n.Network, o.sources); err == nil {
			err = trainer.Apply(ctx, step, o.payloads, own)
		}
		seconds := n.Runtime.Now().Sub(begun).Seconds()
		return func() {
			switch {
			case n.replica != replica:
			case len(unread) > 0:
				n.unread(l, unread, err)
			case err != nil:
				n.applyFailed(step, err)
			default:
				n.applyFailures = 0
				l.stopFetches() // nobody needs the others here any more
				replica.before, replica.hash = replica.hash, extendReplica(replica.hash, step, o.counted)
				replica.step = step
				n.remember(l, o, replica)
				n.dropOthers(l, o)
				n.reportApplied(step, o, own, replica.hash, seconds)
			}
		}
	})
}

// readPayloads reads what counts from the blob store, which may have it on the disk: kept
// in memory until then, large results of several rounds would take more than the store
// may. It returns the candidates that cannot be read, and why the last of them cannot.
func readPayloads(ctx context.Context, blobs Blobs, sources []*candidate) (payloads [][]byte, lost []*candidate, err error) {
	payloads = make([][]byte, len(sources))
	for i, c := range sources {
		if payloads[i] = c.payload; c.payload != nil {
			continue
		}
		var missing error
		if payloads[i], missing = blobs.Fetch(ctx, c.commitment, uint64(c.size), nil); missing != nil {
			lost, err = append(lost, c), fmt.Errorf("read a result of %d bytes: %w", c.size, missing)
		}
	}
	if err != nil {
		return nil, lost, err
	}
	return payloads, nil, nil
}

// unread has results fetched again that were lost from the blob store. A store whose disk
// is full, or whose folder is gone, keeps nothing: from now on what it does not have after
// a fetch stays in memory.
func (n *Node) unread(l *ledger, lost []*candidate, err error) {
	n.log.Warn("results are fetched again, as the store for shared data has lost them: is its disk full?",
		"step", l.round.Step, "results", len(lost), "err", err)
	n.storeLoses = true
	for i := range l.slots {
		for _, c := range l.slots[i].candidates {
			if !slices.Contains(lost, c) {
				continue
			}
			c.state = announced
			l.unfetched++
			c.retryAt = n.Runtime.Now().Add(min(fetchPause<<min(c.attempts, 8), maxPause))
			c.attempts++
		}
	}
	l.changes++
}

// dropOthers drops what is held of an applied round and did not count, and the memory of
// what did.
func (n *Node) dropOthers(l *ledger, o outcome) {
	var others [][32]byte
	for i := range l.slots {
		for _, c := range l.slots[i].candidates {
			c.payload = nil
			if c.state == held && !slices.Contains(o.sources, c) {
				c.state = refused
				others = append(others, c.commitment)
			}
		}
	}
	n.dropBlobs(others)
}

// applyFailed handles a model of which nobody knows what it is.
func (n *Node) applyFailed(step uint32, err error) {
	n.applyFailures++
	n.log.Error("apply results", "step", step, "err", err)
	if n.applyFailures >= maxApplyFailures {
		n.fail(fmt.Errorf("apply results of step %d: %w", step, err))
		return
	}
	n.desynchronise("applying results failed: " + err.Error())
}

func (n *Node) reportApplied(step uint32, o outcome, own bool, replica [32]byte, seconds float64) {
	e := event.Applied{Step: step, Counted: len(o.counted), OwnCounted: own, Replica: hexOf(replica), Seconds: seconds}
	n.log.Info("applied", "step", step, "counted", e.Counted, "lost", len(o.lost), "replica", e.Replica[:16])
	if n.Events == nil {
		return
	}
	for _, s := range o.lost {
		e.Lost = append(e.Lost, event.LostBatch{Batch: batchOf(s.batch), Owner: identity.ID(s.owner).String()})
	}
	n.emit(e)
	wire := n.total
	wire.Step = step
	wire.P2PSent, wire.P2PReceived = n.Network.Bytes()
	if counter, ok := n.Backend.(interface {
		Bytes() (sent, received uint64)
	}); ok {
		wire.ServerSent, wire.ServerReceived = counter.Bytes()
	}
	n.emit(wire)
}
