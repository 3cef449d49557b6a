package models

import (
	"slices"
	"time"

	"github.com/psyche-go/psyche/core/coordinator"
)

// maxShared is the maximum number of intermediate checkpoints that are shared at the same time. With two, a
// member can finish fetching an older checkpoint while the newest is shared.
const maxShared = 2

// Shares contains the intermediate checkpoints that a client serves to members that return to the
// running epoch. Each checkpoint takes the memory of a model, unless it is large and on the disk.
// Therefore a client shares a checkpoint only when a member requests it, and only for the time that
// getting a model may take. If a third checkpoint is requested, a checkpoint that no member has
// started to fetch is dropped, or else the oldest. Repeated requests for a checkpoint cause only one
// read from the disk.
type Shares struct {
	shared  []share  // in order of age, oldest first
	reading *Share   // nil: none
	failed  [32]byte // digest of the model that could not be read; zero: none
	narrow  uint32   // first step of an epoch in which sharing would take memory that results need; 0: none
}

// share is a shared intermediate checkpoint.
type share struct {
	digest [32]byte
	until  time.Time
}

// Share is an intermediate checkpoint that is read in order to share it.
type Share struct {
	coordinator.Recorded
	epoch uint32 // first step
	from  coordinator.Checkpoint
}

// Stop ends sharing for the rest of the epoch, because the results of running rounds need the
// memory.
func (h *Shares) Stop(epochStart uint32) {
	h.narrow = epochStart
	for i := range h.shared {
		h.shared[i].until = time.Time{}
	}
}

// Expire ends sharing models for which the time is over, and returns their digests.
func (h *Shares) Expire(now time.Time, s *coordinator.State) (ended [][32]byte) {
	h.shared = slices.DeleteFunc(h.shared, func(l share) bool {
		ends := !inRound(s) && s.RunState != coordinator.Cooldown || inRound(s) && !now.Before(l.until)
		if ends {
			ended = append(ended, l.digest)
		}
		return ends
	})
	return ended
}

// Offer returns the run's intermediate checkpoint if members may request it, else nil. has reports
// whether the client has a copy of it that it does not share.
func (h *Shares) Offer(s *coordinator.State, has bool) *Share {
	commit := s.Epoch.Commit
	if !has || !inRound(s) || h.reading != nil || h.narrow == s.Epoch.StartStep || commit.Step == 0 || h.failed == commit.Digest {
		return nil
	}
	return &Share{commit, s.Epoch.StartStep, s.Model.Checkpoint}
}

// Read starts to read an offered model, because a member requested it.
func (h *Shares) Read(m *Share) { h.reading = m }

// Came ends the reading of a model, and reports whether to share the model. shared reports whether
// the client shares it already.
func (h *Shares) Came(s *coordinator.State, err error, shared bool) bool {
	m := h.reading
	if h.reading = nil; err != nil {
		h.failed = m.Digest
		return false
	}
	return m.epoch == s.Epoch.StartStep && m.from == s.Model.Checkpoint && h.narrow != m.epoch && inRound(s) && !shared
}

// Add adds a model that is shared until a time. If there are too many now, Add removes one and
// returns its digest. fetched reports whether a member has started to fetch a model.
func (h *Shares) Add(digest [32]byte, until time.Time, fetched func(digest [32]byte) bool) (ended [32]byte, full bool) {
	if full = len(h.shared) == maxShared; full {
		i := max(0, slices.IndexFunc(h.shared, func(l share) bool { return !fetched(l.digest) }))
		ended = h.shared[i].digest
		h.shared = slices.Delete(h.shared, i, i+1)
	}
	h.shared = append(h.shared, share{digest, until})
	return ended, full
}
