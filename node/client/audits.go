package client

import (
	"path/filepath"

	"github.com/psyche-go/psyche/core/assign"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/node/auditor"
	"github.com/psyche-go/psyche/node/env"
)

// Results that are kept for audits may use 1/resultShare of Options.ResultMemory.
const resultShare = 4

// auditedNode is the auditor's view of a client. It implements auditor.Client.
type auditedNode struct {
	*view
	*roundStates
	node *Node
}

func newAuditor(n *Node) *auditor.Auditor {
	o := auditor.Options{
		Key: n.Key, Memory: n.ResultMemory / resultShare, Tasks: n.tasks, Network: n.Network, Data: n.Data,
		Client: auditedNode{&n.run, &n.rounds, n}, Engine: &n.engine, Submit: n.actions.submit, Emit: n.report.emit, Log: n.report.log,
		Needed: func() bool { return n.rounds.of[n.run.state.Progress.Step].isNeeded(&n.run, n.Draws) },
	}
	if folder := n.folder(); folder.Dir != "" {
		o.Dir, o.Run = filepath.Join(folder.Dir, "audits-"+folder.ID.Short()), folder.Name()
	}
	return auditor.New(o)
}

// Model implements auditor.Client.
func (a auditedNode) Model() (step uint32, m auditor.Model) {
	switch r, held := a.node.rounds.replica, a.node.models.Held; {
	case r != nil && r.Closing:
		return max(r.Step, r.Has), auditor.Outgoing
	case r != nil:
		return max(r.Step, r.Has), auditor.Replica
	case held != nil:
		return held.Step, auditor.Final
	}
	return 0, auditor.NoModel
}

// Spare implements auditor.Client.
func (a auditedNode) Spare() (now, next bool) {
	n := a.node
	if n.rounds.replica == nil {
		return false, false
	}
	s, predicted, lag := n.run.state, n.run.predict(n.Draws), n.engine.Lag()
	next = lag == 1 && predicted.Step == s.Progress.Step+1 && !predicted.OK
	rs := n.rounds.of[s.Progress.Step]
	switch {
	case rs == nil || s.RunState != coordinator.RoundTrain && s.RunState != coordinator.RoundWitness:
		return false, next
	case rs.Own(n.run.me) != nil && !rs.Trained:
		return false, next
	case lag > 1: // the next round's training starts in this round
		return n.AuditIdle || !predicted.OK, next
	}
	return n.AuditIdle || rs.Own(n.run.me) == nil, next
}

// isNeeded reports whether the running round cannot have a quorum if this client leaves. It does not
// count on clients that are not connected, because they may return too late. If this client has a
// batch, and fewer than two thirds of the awaited results can come from other members, witnesses
// wait for this client's result, which does not come. Then staying does not help, and isNeeded
// returns false.
func (rs *roundState) isNeeded(v *view, draws env.Draws) bool {
	if rs == nil || !rs.Elected || rs.Round.HasQuorum() {
		return false
	}
	spoken := make(map[int]bool, len(rs.Round.Witnesses))
	for _, w := range rs.Round.Witnesses {
		spoken[int(w.Member)] = true
	}
	connected := v.connected()
	awaited, able := 0, 0
	for i := range rs.Slots {
		if owner := rs.Slots[i].Owner; v.healthy(owner) {
			awaited++
			if connected[owner] && owner != v.myself() {
				able++
			}
		}
	}
	if rs.Own(v.me) != nil && able < assign.Quorum(awaited) {
		return false
	}
	others := 0
	for i, id := range rs.Round.Members {
		if id == v.myself() {
			if spoken[i] {
				return false
			}
		} else if spoken[i] || v.healthy(id) && connected[id] && draws.Elected(&rs.Round, v.state.Config, i) {
			others++
		}
	}
	return others < int(rs.Round.WitnessesNeeded)
}
