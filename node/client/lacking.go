package client

import (
	"fmt"
	"time"

	"github.com/psyche-go/psyche/core/coordinator"
)

// Limits for a client with an older model than the run's newest, if the run can continue from that
// older model: how long the client waits for a holder of the newest, and how often it logs that it
// waits.
const (
	holderTimeout  = 5 * time.Minute
	holderReminder = time.Minute
)

// lacking describes the run's newest recorded model while it is not available.
type lacking struct {
	of     coordinator.Checkpoint
	since  time.Time // zero: the model is available
	said   time.Time
	older  uint32 // step of the newest checkpoint in the folder
	usable bool   // the run has recorded that older checkpoint
}

// waitsForHolder reports whether this client should not join yet: it was restarted without the
// run's newest model, its folder has an older one, and no client that is present has the newest. An
// epoch that started now would lose a model that a client may bring later.
func (n *Node) waitsForHolder() bool {
	s, l := n.run.state, &n.seat.lacking
	c := s.Model.Checkpoint
	if n.AcceptLoss || n.CheckpointDir == "" || !c.FromPeers() || n.models.Held != nil || n.rounds.replica != nil ||
		n.seat.holds.checkpoint() || len(s.UploadsOf(c.Digest)) > 0 || n.run.othersHold() {
		l.since = time.Time{}
		return false
	}
	now := n.tasks.Now()
	if l.of != c || l.since.IsZero() {
		*l = lacking{of: c, since: now}
		var newest coordinator.Recorded
		if newest, l.usable = n.saver.Newest(s); l.usable {
			l.older = newest.Step
		} else if l.older, _ = n.folder().NewestBefore(c.Step); l.older == 0 {
			return false // a client that is new or keeps nothing cannot know what other members have
		}
	}
	switch {
	case l.older == 0:
		return false
	case l.usable && now.Sub(l.since) >= holderTimeout:
		return false
	case l.said.IsZero() || now.Sub(l.said) >= holderReminder:
		l.said = now
		n.report.log.Warn(l.text(holderTimeout - now.Sub(l.since)))
	}
	return true
}

func (l *lacking) text(left time.Duration) string {
	message := fmt.Sprintf("the newest model that the run recorded is of step %d; nobody who is there has it, and --checkpoint-dir has step %d: waiting for a member that has it, ", l.of.Step, l.older)
	if l.usable {
		return message + fmt.Sprintf("at most %s more, with --accept-loss no longer, and then as long as the run waits for it: it goes on without steps %d to %d", left.Round(time.Second), l.older+1, l.of.Step)
	}
	return message + "since the run would go back to where it began; if nobody has it, let the run go on with --accept-loss"
}

// lapseNow returns the newest lapse. It reports whether the model of the starting epoch lacks the steps of this lapse.
func (v *view) lapseNow() (coordinator.Lapse, bool) {
	s := v.state
	if len(s.Lapses) == 0 {
		return coordinator.Lapse{}, false
	}
	newest := s.Lapses[len(s.Lapses)-1]
	return newest, newest.Last+1 == s.Epoch.StartStep
}
