package server

import (
	"context"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/psyche-go/psyche/net/frame"
)

// TestLoadOfLogFromManySites measures how long a member needs to receive a log of 67 MiB, alone and
// while -load.observers of different sites read it slowly. The clock is virtual, so other work on
// the machine does not matter. With 64 and with 1,000 observers, at 1 MiB/s, the member needed 9.7
// s instead of 7.4 s.
func TestLoadOfLogFromManySites(t *testing.T) {
	if *loadObservers < 1000 {
		t.Skip("make load runs it")
	}
	dir := t.TempDir()
	h := makeHistory(t, dir, 8, 8600)
	want, size := int(h.store.log.Head().Index)-2, h.store.journal.Size()
	if err := h.store.close(); err != nil {
		t.Fatal(err)
	}
	t.Logf("journal %d KiB", size>>10)
	member := catcher{joinKey(1), frame.RoleParticipant, -1, address(false, 9, 9), true}
	for _, n := range []int{64, *loadObservers} {
		for _, rate := range []int64{1 << 20} { // at the default rate of 8 MiB/s, the burst would contain the whole log
			bubbleOfAddresses(t, func(o *Options) {
				o.Runs, o.SaveStateDir, o.LogBytesPerSecond = nil, dir, float64(rate)
				o.MaxUnknown = 1100
				o.Now = func() uint64 { return h.now }
			}, func(t *testing.T, connect func(net.Addr) *peer) {
				connectFrom := inTurn(connect)
				ctx, cancel := context.WithCancel(t.Context())
				measure := func() time.Duration {
					began := time.Now()
					records, err := member.run(ctx, connectFrom)
					if err != nil || records < want {
						t.Errorf("%d records of %d, %v", records, want, err)
					}
					return time.Since(began)
				}
				alone := measure()
				time.Sleep(20 * time.Second)
				var running sync.WaitGroup
				c := &crowd{size: n, rate: 70 << 10, from: func(n int) net.Addr { return address(false, 1, n) }}
				c.start(ctx, connectFrom, &running)
				time.Sleep(10 * time.Second)
				crowded := measure()
				cancel()
				running.Wait()
				synctest.Wait()
				t.Logf("%d observers, %d KiB/s: alone %v, crowded %v: %.2f", n, rate>>10, alone, crowded, crowded.Seconds()/alone.Seconds())
				if crowded > 2*alone {
					t.Error("want at most twice the time")
				}
			})
		}
	}
}
