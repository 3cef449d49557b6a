package solana

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/psyche-go/psyche/core/coordinator"
)

// TestSleep checks that a wait for a turn ends at its time, after a change, or with the client.
func TestSleep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		c := &Client{ctx: ctx}
		begin, changed := time.Now(), make(chan struct{})
		if !c.sleep(begin.Add(5*time.Second), true, changed) || time.Since(begin) != 5*time.Second {
			t.Errorf("after %v", time.Since(begin))
		}
		if !c.sleep(begin, true, changed) {
			t.Error("a time in the past does not end the wait")
		}
		time.AfterFunc(time.Second, func() { close(changed) })
		if c.sleep(time.Time{}, false, changed) || time.Since(begin) != 6*time.Second {
			t.Errorf("after %v", time.Since(begin))
		}
		time.AfterFunc(time.Second, cancel)
		if c.sleep(time.Now().Add(time.Hour), true, nil) || time.Since(begin) != 7*time.Second {
			t.Errorf("after %v", time.Since(begin))
		}
	})
}

// TestUnitsOfTicks checks that the limit of a tick is at least the cost that package programtest allows in the same run.
func TestUnitsOfTicks(t *testing.T) {
	for _, want := range []struct {
		shares, retries bool
		units           uint32
	}{{false, false, 600_000}, {true, false, 1_100_000}, {false, true, 1_100_000}, {true, true, 1_100_000}} {
		state := &coordinator.State{Config: coordinator.Config{SharesBySpeed: want.shares, RetryLost: want.retries}}
		c := &Client{view: view{state: state}}
		if got := c.unitsOfTick(); got < want.units {
			t.Errorf("shares by speed %t, retries %t: a tick may take %d units, want at least %d", want.shares, want.retries, got, want.units)
		}
	}
}
