package models

import (
	"errors"
	"testing"
	"time"

	"github.com/psyche-go/psyche/core/coordinator"
)

// TestShares checks when a client offers the run's intermediate checkpoint, and when it shares the
// model that it has read.
func TestShares(t *testing.T) {
	running := func() *coordinator.State {
		s := &coordinator.State{RunState: coordinator.RoundTrain}
		s.Epoch.StartStep, s.Epoch.Commit = 3, coordinator.Recorded{Step: 5, Digest: [32]byte{5}}
		return s
	}
	for name, test := range map[string]struct {
		change  func(h *Shares, s *coordinator.State) // before the offer
		between func(h *Shares, s *coordinator.State) // while the model is read
		err     error
		shared  bool // by another way, meanwhile
		offers  bool
		shares  bool
	}{
		"a round":                         {offers: true, shares: true},
		"no round":                        {change: func(_ *Shares, s *coordinator.State) { s.RunState = coordinator.Cooldown }},
		"no checkpoint":                   {change: func(_ *Shares, s *coordinator.State) { s.Epoch.Commit = coordinator.Recorded{} }},
		"no memory":                       {change: func(h *Shares, _ *coordinator.State) { h.Stop(3) }},
		"no memory in an earlier epoch":   {change: func(h *Shares, _ *coordinator.State) { h.Stop(1) }, offers: true, shares: true},
		"unreadable":                      {err: errors.New("the disk is broken"), offers: true},
		"shared meanwhile":                {shared: true, offers: true},
		"the epoch ends meanwhile":        {between: func(_ *Shares, s *coordinator.State) { s.RunState = coordinator.Warmup }, offers: true},
		"another epoch begins meanwhile":  {between: func(_ *Shares, s *coordinator.State) { s.Epoch.StartStep = 9 }, offers: true},
		"memory runs out meanwhile":       {between: func(h *Shares, _ *coordinator.State) { h.Stop(3) }, offers: true},
		"it continues from another model": {between: func(_ *Shares, s *coordinator.State) { s.Model.Checkpoint.Repo = "another" }, offers: true},
	} {
		h, s := &Shares{}, running()
		if test.change != nil {
			test.change(h, s)
		}
		if h.Offer(s, false) != nil {
			t.Errorf("%s: offers a model that it does not have", name)
		}
		m := h.Offer(s, true)
		if (m != nil) != test.offers {
			t.Errorf("%s: offers %v", name, m)
		}
		if m == nil {
			continue
		}
		if h.Read(m); h.Offer(s, true) != nil {
			t.Errorf("%s: offers a model while it reads one", name)
		}
		if test.between != nil {
			test.between(h, s)
		}
		if got := h.Came(s, test.err, test.shared); got != test.shares {
			t.Errorf("%s: shares it: %v", name, got)
		}
		if test.err != nil && h.Offer(running(), true) != nil {
			t.Errorf("%s: offers a model that it cannot read", name)
		}
	}
}

// TestSharesEnd checks which of three models is dropped, and when sharing ends.
func TestSharesEnd(t *testing.T) {
	now := time.Unix(100, 0)
	for _, fetched := range []byte{0, 1} { // the first model is being fetched, or none is
		h, s := &Shares{}, &coordinator.State{RunState: coordinator.RoundTrain}
		isFetched := func(digest [32]byte) bool { return fetched > 0 && digest[0] == fetched }
		for i := range byte(2) {
			if _, full := h.Add([32]byte{i + 1}, now.Add(time.Duration(i)*time.Second), isFetched); full {
				t.Error("two models are too many")
			}
		}
		if ended, full := h.Add([32]byte{3}, now.Add(time.Minute), isFetched); !full || ended[0] != 1+fetched {
			t.Errorf("model %d is dropped, %v", ended[0], full)
		}
		if got := h.Expire(now, s); len(got) != int(fetched) {
			t.Errorf("%d models end at once", len(got))
		}
		if got := h.Expire(now.Add(2*time.Second), s); len(got) != 1-int(fetched) {
			t.Errorf("%d models end after 2 s", len(got))
		}
		s.RunState = coordinator.Cooldown
		if got := h.Expire(now.Add(time.Hour), s); got != nil {
			t.Error("sharing ends in Cooldown")
		}
		s.RunState = coordinator.Warmup
		if got := h.Expire(now, s); len(got) != 1 || got[0][0] != 3 {
			t.Errorf("at the end of the epoch %d models end", len(got))
		}
	}
}
