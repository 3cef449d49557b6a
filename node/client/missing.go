package client

import (
	"fmt"
	"slices"
	"time"

	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/node/keep"
	"github.com/psyche-go/psyche/node/models"
	"github.com/psyche-go/psyche/node/modelsync"
)

// holdings are the models that this client can load by itself.
type holdings struct {
	models *modelsync.Models
	copies *models.Copies
	saver  *keep.Saver
}

// checkpoint reports whether this client can load the run's checkpoint by itself: its parts are
// still in memory, independent of the trainer's weights, or on its disk.
func (h *holdings) checkpoint(s *coordinator.State) bool {
	c := s.Model.Checkpoint
	return c.FromPeers() && (h.models.Shared(c.Digest) != nil || h.copies.Holds(c.Digest)) || h.saver.Holds(c)
}

// newest returns the newest model that the run recorded and this client holds, or zero.
func (h *holdings) newest(s *coordinator.State) coordinator.Recorded {
	c := s.Model.Checkpoint
	switch {
	case !c.FromPeers():
		return coordinator.Recorded{}
	case h.checkpoint(s):
		return coordinator.Recorded{Step: c.Step, Digest: c.Digest}
	}
	saved, _ := h.saver.Newest(s)
	for _, r := range slices.Backward(s.Earlier) {
		if r.Step > saved.Step && (h.copies.Holds(r.Digest) || h.models.Shared(r.Digest) != nil) {
			return r
		}
	}
	return saved
}

// moreThan reports whether this pending client holds a newer model of the run than the run knows.
// The run may have recorded it since this client joined. told is the run's checkpoint at that time.
func (h *holdings) moreThan(s *coordinator.State, waits *coordinator.Client, told coordinator.Checkpoint) bool {
	return !waits.HoldsModel && told != s.Model.Checkpoint && h.newest(s).Step > waits.HoldsEarlier
}

// unreported reports whether this client has a model that it has not reported.
func (h *holdings) unreported(s *coordinator.State, id coordinator.ClientID) bool {
	me, ok := s.Member(id)
	if !ok {
		return false
	}
	if last := s.Progress.Step - 1; s.RunState == coordinator.Cooldown {
		return h.models.Held != nil && h.models.Held.Step == last && me.Report.Step != last
	}
	_, more := h.copies.Unreported(s, me)
	return more
}

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

func (m *missingModel) text(left time.Duration) string {
	message := fmt.Sprintf("the newest model that the run recorded is of step %d; no connected member has it, and --checkpoint-dir has only step %d; this client waits for a member with the newer model, ", m.of.Step, m.older)
	if m.usable {
		return message + fmt.Sprintf("at most %s more (not at all with --accept-loss); then it joins, and if the run's own wait for the model ends too, the run continues without steps %d to %d", left.Round(time.Second), m.older+1, m.of.Step)
	}
	return message + "because the run would otherwise restart from its initial model; if no member has the newer model, start this client with --accept-loss"
}
