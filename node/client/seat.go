package client

import (
	"crypto/hmac"
	"crypto/sha256"
	"slices"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/node/core"
	"github.com/psyche-go/psyche/node/keep"
	"github.com/psyche-go/psyche/node/models"
	"github.com/psyche-go/psyche/node/modelsync"
)

// membership is this client's membership of a run.
type membership struct {
	*core.Member
	origin  origin        // the model that the run trains
	holders []identity.ID // members asked for the intermediate checkpoint that the client returns with
}

// domainSecrets is the key derivation domain of the secrets of a member's commitments.
const domainSecrets = "psyche/secrets/v1"

// secretOf returns the secret of a key's commitments in a run.
func secretOf(key identity.Key, run [32]byte) [32]byte {
	mac := hmac.New(sha256.New, key.Private().Seed())
	mac.Write(append([]byte(domainSecrets), run[:]...))
	return [32]byte(mac.Sum(nil))
}

// modelOf describes a model; nil: none.
func modelOf(m *modelsync.Model) *core.Model {
	if m == nil {
		return nil
	}
	return &core.Model{Step: m.Step, Digest: m.Digest, Origin: m.Origin}
}

// holdings are the models that this client can load by itself. They implement core.Holdings.
type holdings struct {
	models *modelsync.Models
	copies *models.Copies
	saver  *keep.Saver
}

// Checkpoint reports whether this client can load the run's checkpoint by itself: its parts are
// still in memory, independent of the trainer's weights, or on its disk.
func (h *holdings) Checkpoint(s *coordinator.State) bool {
	c := s.Model.Checkpoint
	return c.FromPeers() && (h.models.Shared(c.Digest) != nil || h.copies.Holds(c.Digest)) || h.saver.Holds(c)
}

// Shares reports whether peers can fetch a model from this client.
func (h *holdings) Shares(digest [32]byte) bool { return h.models.Shared(digest) != nil }

// Newest returns the newest model that the run recorded and this client holds, or zero.
func (h *holdings) Newest(s *coordinator.State) coordinator.Recorded {
	c := s.Model.Checkpoint
	switch {
	case !c.FromPeers():
		return coordinator.Recorded{}
	case h.Checkpoint(s):
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

// Saved returns the newest model in the folder that the run recorded.
func (h *holdings) Saved(s *coordinator.State) (newest coordinator.Recorded, found bool) {
	return h.saver.Newest(s)
}

// Before returns the step of the newest checkpoint of the run in the folder before a step; 0: none.
func (h *holdings) Before(step uint32) uint32 {
	newest, _ := h.saver.Folder.NewestBefore(step)
	return newest
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
