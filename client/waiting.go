package client

import (
	"fmt"
	"log/slog"
	"time"

	"github.com/psyche-go/psyche/client/handover"
	"github.com/psyche-go/psyche/coordinator"
)

// waiting is why a client that has a place in the run does nothing.
type waiting struct {
	why        string // empty: it does not wait
	have, want int    // members
	at         time.Time
}

// waitingPause is between two lines about it, however fast clients come and go.
const waitingPause = time.Second

// said says what a client waits for, when that has changed since it was said last.
func (last waiting) said(next waiting, now time.Time, log *slog.Logger) waiting {
	next.at = last.at
	if next == last {
		return last
	}
	if next.why == "" {
		return next
	}
	if next.at = now; next.at.Sub(last.at) < waitingPause {
		return last
	}
	if next.want > 0 {
		log.Info(next.why, "have", next.have, "want", next.want)
	} else {
		log.Info(next.why)
	}
	return next
}

// waitsFor returns what this client waits for.
func (v *view) waitsFor() waiting {
	if !v.hasSeat() {
		return waiting{}
	}
	switch v.state.RunState {
	case coordinator.WaitingForMembers:
		if have, want := len(v.state.Pending), int(v.state.Config.InitMinClients); have < want {
			return waiting{why: "waiting for members", have: have, want: want}
		}
	case coordinator.Paused:
		return waiting{why: "waiting: the run is paused"}
	case coordinator.Warmup, coordinator.RoundTrain, coordinator.RoundWitness, coordinator.Cooldown:
		if !v.isMember() {
			return waiting{why: "waiting for the next epoch"}
		}
	}
	return waiting{}
}

// reportWaiting says what this client waits for, when that has changed.
func (s *seat) reportWaiting(v *view, e *errands, log *slog.Logger) {
	if !e.flying("join") { // else it is said first that the client joined
		s.waiting = s.waiting.said(v.waitsFor(), e.tasks.Now(), log)
	}
}

// loss says what is lost when this client has left the run as the last one that holds its
// model, of which newest is the newest step; empty: nothing.
func (v *view) loss(newest uint32, saves bool) string {
	s := v.state
	if s == nil || s.RunState == coordinator.Finished || !v.hasSeat() || v.othersHold() {
		return ""
	}
	switch recorded := s.Model.Checkpoint.Step; {
	case !saves && len(s.UploadsOf(s.Model.Checkpoint.Digest)) == 0 && newest > 0:
		return fmt.Sprintf("this was the last member, and it saved no checkpoint: steps 1 to %d are lost, unless a member that left saved some", newest)
	case newest > recorded:
		return fmt.Sprintf("this was the last member: steps %d to %d are in no checkpoint", recorded+1, newest)
	}
	return ""
}

// newestStep returns the newest step whose results are part of the model here; 0: none.
func newestStep(r *replica, held *handover.Model) uint32 {
	switch {
	case r != nil:
		return r.step
	case held != nil:
		return held.Step
	}
	return 0
}

// findOtherModels says, once in an epoch that begins with a model which does not come from
// members, that members began with different ones. Each has its own from where its user
// said, so nobody but the users can tell which is the right one; all results of one side are
// lost, and the side without a quorum takes over the other's model. The ledger is that of the
// epoch's first round, or nil.
func (r *replica) findOtherModels(l *ledger, s *coordinator.State, log *slog.Logger) {
	if r.epoch.checkpoint.FromPeers() || r.otherModels || l == nil || !l.Began {
		return
	}
	announced, others := l.Origins()
	if others == 0 || announced < len(l.Slots) && s.RunState == coordinator.RoundTrain {
		return
	}
	r.otherModels = true
	log.Warn("other members began from another model: compare the digest in the line \"holds the model\" and give every member the same --model-path",
		"results", announced, "of another model", others, "digest", hexOf(r.from)[:16])
}
