package client

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/psyche-go/psyche/coordinator"
)

// runCheck is what CheckRun says of a definition of the run.
type runCheck struct {
	definition []byte
	handed     bool // members had the model; a run can fall back to the one that it began with
	passed     bool
}

// runChecked reports whether this client can do its part in the run as it is defined now, as
// far as that can be told before it joins, and begins to find out. Once a client that cannot
// has joined, the others have waited for it.
func (n *Node) runChecked() bool {
	if n.CheckRun == nil {
		return true
	}
	model := n.state.Model
	handed := fromPeers(model.Checkpoint)
	if c := n.seat.check; c != nil && bytes.Equal(c.definition, model.Definition) && (c.handed == handed || c.passed && handed) {
		return c.passed
	}
	c := &runCheck{definition: model.Definition, handed: handed}
	n.seat.check = c
	n.spawn(func(ctx context.Context) func() {
		err := n.CheckRun(ctx, model)
		return func() {
			switch {
			case n.seat.check != c || ctx.Err() != nil:
			case err != nil:
				n.fail(fmt.Errorf("check before joining the run: %w", err))
			default:
				c.passed = true
			}
		}
	})
	return false
}

// waiting is why a client that has a place in the run does nothing.
type waiting struct {
	why        string // empty: it does not wait
	have, want int    // members
	at         time.Time
}

// waitingPause is between two lines about it, however fast clients come and go.
const waitingPause = time.Second

// reportWaiting says what this client waits for, when that has changed.
func (n *Node) reportWaiting() {
	if e := n.errands["join"]; e != nil && e.flying {
		return // it is said first that the client joined
	}
	now, last := n.waitsFor(), n.seat.waiting
	now.at = last.at
	if now == last {
		return
	}
	if now.why == "" {
		n.seat.waiting = now
		return
	}
	if now.at = n.Runtime.Now(); now.at.Sub(last.at) < waitingPause {
		return
	}
	n.seat.waiting = now
	if now.want > 0 {
		n.log.Info(now.why, "have", now.have, "want", now.want)
	} else {
		n.log.Info(now.why)
	}
}

// waitsFor returns what this client waits for.
func (n *Node) waitsFor() waiting {
	if !n.hasSeat() {
		return waiting{}
	}
	switch n.state.RunState {
	case coordinator.WaitingForMembers:
		if have, want := len(n.state.Pending), int(n.state.Config.InitMinClients); have < want {
			return waiting{why: "waiting for members", have: have, want: want}
		}
	case coordinator.Paused:
		return waiting{why: "waiting: the run is paused"}
	case coordinator.Warmup, coordinator.RoundTrain, coordinator.RoundWitness, coordinator.Cooldown:
		if !n.isMember() {
			return waiting{why: "waiting for the next epoch"}
		}
	}
	return waiting{}
}

// reportLoss says what is lost when this client has left the run as the last one that holds
// its model.
func (n *Node) reportLoss() {
	if n.state == nil || n.state.RunState == coordinator.Finished || !n.hasSeat() || n.othersHold() {
		return
	}
	recorded, newest := n.state.Model.Checkpoint.Step, n.newestStep()
	switch {
	case n.CheckpointDir == "" && len(n.state.UploadsOf(n.state.Model.Checkpoint.Digest)) == 0 && newest > 0:
		n.log.Warn(fmt.Sprintf("this was the last member, and it saved no checkpoint: steps 1 to %d are lost, unless a member that left saved some", newest))
	case newest > recorded:
		n.log.Warn(fmt.Sprintf("this was the last member: steps %d to %d are in no checkpoint", recorded+1, newest))
	}
}

// othersHold reports whether another client may hold the run's model.
func (n *Node) othersHold() bool {
	me := coordinator.ClientID(n.id)
	for id := range n.fit {
		if id != me {
			return true
		}
	}
	for i := range n.state.Pending {
		if c := &n.state.Pending[i]; c.ID != me && c.HoldsModel {
			return true
		}
	}
	return false
}

// newestStep returns the newest step whose results are part of the model here; 0: none.
func (n *Node) newestStep() uint32 {
	switch {
	case n.replica != nil:
		return n.replica.step
	case n.model != nil:
		return n.model.step
	}
	return 0
}

// findOtherModels says, once in an epoch that begins with a model which does not come from
// members, that members began with different ones. Each has its own from where its user
// said, so nobody but the users can tell which is the right one; all results of one side are
// lost, and the side without a quorum takes over the other's model.
func (n *Node) findOtherModels() {
	r := n.replica
	if r == nil || fromPeers(r.epoch.checkpoint) || n.otherModels == r.epoch {
		return
	}
	l := n.rounds[r.epoch.startStep]
	if l == nil || !l.began {
		return
	}
	announced, others := l.origins()
	if others == 0 || announced < len(l.slots) && n.state.RunState == coordinator.RoundTrain {
		return
	}
	n.otherModels = r.epoch
	n.log.Warn("other members began from another model: compare the digest in the line \"holds the model\" and give every member the same --model-path",
		"results", announced, "of another model", others, "digest", hexOf(r.from)[:16])
}

// origins returns of how many batches a result is announced, and of how many only such that
// were made from another replica. A result of a model of another shape is never held.
func (l *ledger) origins() (all, others int) {
	for i := range l.slots {
		known := l.slots[i].candidates
		if len(known) == 0 {
			continue
		}
		all++
		if !slices.ContainsFunc(known, func(c *candidate) bool { return c.replica == l.replica }) {
			others++
		}
	}
	return all, others
}
