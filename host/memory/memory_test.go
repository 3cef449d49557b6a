package memory

import (
	"context"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/record/backend/backendtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestConformance(t *testing.T) {
	backendtest.Run(t, func(t *testing.T, s backendtest.Setup) backendtest.Attach {
		h, err := NewHost(Options{Genesis: s.Genesis, Now: s.Now})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { h.Run(ctx, time.Millisecond) })
		t.Cleanup(func() { cancel(); running.Wait() })
		return func(_ context.Context, key identity.Key) (backendtest.Backend, error) { return h.Attach(key) }
	})
}

// TestSameSeedSameRun checks that two hosts that are driven in the same way have states with the
// same bytes.
func TestSameSeedSameRun(t *testing.T) {
	run := func() string {
		now := uint64(1_000_000_000)
		h, err := NewHost(Options{Genesis: backendtest.Genesis("r", 1), Now: func() uint64 { return now }, Seed: 7})
		if err != nil {
			t.Fatal(err)
		}
		c, err := h.Attach(backendtest.Key(1))
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Submit(t.Context(), coordinator.Join{}); err != nil {
			t.Fatal(err)
		}
		for range 10 {
			now += 30_000
			h.tick(time.Second)
		}
		state := h.State()
		if state.Progress.Epoch == 0 && state.CurrentRound() == nil {
			t.Fatalf("the run is still in %v", state.RunState)
		}
		return string(state.AppendTo(nil))
	}
	if first, second := run(), run(); first != second {
		t.Fatal("two runs with the same seed differ")
	}
}
