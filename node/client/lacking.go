package client

import (
	"fmt"
	"time"

	"github.com/psyche-go/psyche/core/coordinator"
)

// How long a client that has an older model than the run's newest waits for somebody who has that, when
// the run can go on from the older one; and how often it says that it waits.
const (
	holderTimeout  = 5 * time.Minute
	holderReminder = time.Minute
)

// lacking is the run's newest recorded model, when it is not to be had.
type lacking struct {
	of     coordinator.Checkpoint
	since  time.Time // zero: it is to be had
	said   time.Time
	older  uint32 // step of the newest checkpoint in the folder
	usable bool   // it is one that the run recorded
}

// waitsForHolder reports whether this client should not ask for a place yet: it was restarted without
// the run's newest model, of which its folder has an older one, and nobody who is there has it. An epoch
// that began now would lose what somebody may have who comes later.
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
			return false // it is new, or keeps nothing: it cannot know what others have
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

// lapseNow returns the counted steps that the first model of the epoch does not contain. It reports whether there are
// such steps.
func (v *view) lapseNow() (coordinator.Lapse, bool) {
	s := v.state
	if len(s.Lapses) == 0 {
		return coordinator.Lapse{}, false
	}
	newest := s.Lapses[len(s.Lapses)-1]
	return newest, newest.Last+1 == s.Epoch.StartStep
}
