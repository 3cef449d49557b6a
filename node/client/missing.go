package client

import (
	"fmt"
	"time"

	"github.com/psyche-go/psyche/core/coordinator"
)

// A restarted client may have only an older model of the run, from which the run could continue.
// Such a client waits up to holderTimeout for a holder of the newest model, and logs that it waits
// every holderReminder.
const (
	holderTimeout  = 5 * time.Minute
	holderReminder = time.Minute
)

// missingModel describes a client's wait for the run's newest recorded model, which no connected
// client has.
type missingModel struct {
	of     coordinator.Checkpoint
	since  time.Time // zero: the model is available
	said   time.Time
	older  uint32 // step of the newest checkpoint in the folder
	usable bool   // the run has recorded that older checkpoint
}

// waitsForHolder reports whether this client should not join yet: it was restarted without the run's
// newest model, its folder has an older model, and no connected client has the newest one. If an
// epoch started now, the run would continue without the newest model, although a client may bring
// that model later.
func (n *Node) waitsForHolder() bool {
	s, m := n.run.state, &n.seat.missing
	c := s.Model.Checkpoint
	if n.AcceptLoss || n.CheckpointDir == "" || !c.FromPeers() || n.models.Held != nil || n.rounds.replica != nil ||
		n.seat.holds.checkpoint() || len(s.UploadsOf(c.Digest)) > 0 || n.run.othersHold() {
		m.since = time.Time{}
		return false
	}
	now := n.tasks.Now()
	if m.of != c || m.since.IsZero() {
		*m = missingModel{of: c, since: now}
		var newest coordinator.Recorded
		if newest, m.usable = n.saver.Newest(s); m.usable {
			m.older = newest.Step
		} else if m.older, _ = n.folder().NewestBefore(c.Step); m.older == 0 {
			return false // a client that is new or keeps nothing cannot know what other members have
		}
	}
	switch {
	case m.older == 0:
		return false
	case m.usable && now.Sub(m.since) >= holderTimeout:
		return false
	case m.said.IsZero() || now.Sub(m.said) >= holderReminder:
		m.said = now
		n.report.log.Warn(m.text(holderTimeout - now.Sub(m.since)))
	}
	return true
}

func (m *missingModel) text(left time.Duration) string {
	message := fmt.Sprintf("the newest model that the run recorded is of step %d; no connected member has it, and --checkpoint-dir has only step %d; this client waits for a member with the newer model, ", m.of.Step, m.older)
	if m.usable {
		return message + fmt.Sprintf("at most %s more (not at all with --accept-loss); then it joins, and if the run's own wait for the model ends too, the run continues without steps %d to %d", left.Round(time.Second), m.older+1, m.of.Step)
	}
	return message + "because the run would otherwise restart from its initial model; if no member has the newer model, start this client with --accept-loss"
}

// lapseNow returns the newest rollback gap. It reports whether the model that the epoch starts from
// lacks the steps of this gap.
func (v *view) lapseNow() (coordinator.Lapse, bool) {
	s := v.state
	if len(s.Lapses) == 0 {
		return coordinator.Lapse{}, false
	}
	newest := s.Lapses[len(s.Lapses)-1]
	return newest, newest.Last+1 == s.Epoch.StartStep
}
