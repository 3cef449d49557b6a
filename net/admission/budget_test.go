package admission

import (
	"context"
	"errors"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// TestBudgetIsSharedByAddress checks that an address that takes once does not wait behind an
// address that takes a hundred times.
func TestBudgetIsSharedByAddress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := NewBudget(10, 10)
		from := func(n byte) net.Addr { return &net.TCPAddr{IP: net.IPv4(10, 0, 0, n)} }
		began := time.Now()
		var asking sync.WaitGroup
		for range 100 {
			asking.Go(func() {
				if err := b.Take(t.Context(), from(1), 1); err != nil {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		if err := b.Take(t.Context(), from(2), 1); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took > time.Second {
			t.Errorf("the second address waited %v behind the first", took)
		}
		asking.Wait()
		if took := time.Since(began); took < 9*time.Second || took > 10*time.Second {
			t.Errorf("taking 101 at 10 a second, with a burst of 10, took %v", took)
		}
	})
}

// TestBudgetForgetsEndedCalls ends the contexts of waiting calls and of the call whose turn it is.
func TestBudgetForgetsEndedCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := NewBudget(1, 1)
		errLeft := errors.New("left")
		ctx, leave := context.WithCancelCause(t.Context())
		var asking sync.WaitGroup
		for n := range byte(5) {
			asking.Go(func() {
				err := b.Take(ctx, &net.TCPAddr{IP: net.IPv4(10, 0, 0, n/2)}, 1)
				if err != nil && !errors.Is(err, errLeft) {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		leave(errLeft)
		asking.Wait()
		if b.others.free != 1 || b.others.Crowded() || len(b.others.waiting.inner) > 0 {
			t.Errorf("no connection waits: %d turns are free, connections wait: %v", b.others.free, b.others.Crowded())
		}
		time.Sleep(time.Second)
		began := time.Now()
		if err := b.Take(t.Context(), nil, 1); err != nil || time.Since(began) > 0 {
			t.Errorf("%v after %v", err, time.Since(began))
		}
	})
}
