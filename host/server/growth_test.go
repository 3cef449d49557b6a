package server

import (
	"net"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/psyche-go/psyche/core/coordinator"
)

// TestJournalGrowsSlowly lets many keys of one address join and leave as fast as possible. It
// checks that the journal grows slowly in the long run, and that a client from a different address
// joins at once.
func TestJournalGrowsSlowly(t *testing.T) {
	const keys, mostPerSecond = 40, 1000
	dir := t.TempDir()
	size := func() int64 {
		info, err := os.Stat(JournalPath(dir, hostileRun))
		if err != nil {
			t.Fatal(err)
		}
		return info.Size()
	}
	bubbleOfAddresses(t, func(o *Options) { o.SaveStateDir, o.JoinsAtOnce = dir, keys }, func(t *testing.T, connectFrom func(net.Addr) *peer) {
		from := func(n byte) net.Addr { return &net.TCPAddr{IP: net.IPv4(10, 0, 0, n)} }
		end := time.Now().Add(2 * time.Minute)
		var churn sync.WaitGroup
		for n := range byte(keys) {
			p := connectFrom(from(1)).enter(1 + n)
			churn.Go(func() {
				for time.Now().Before(end) {
					p.submit(coordinator.Join{Holds: [32]byte{1}})
					p.submit(coordinator.Join{})
					p.submit(coordinator.Withdraw{Client: coordinator.ClientID(p.key.ID())})
				}
			})
		}
		time.Sleep(time.Minute) // the initial burst is over
		before, began := size(), time.Now()
		other := connectFrom(from(2)).enter(100)
		asked := time.Now()
		other.submit(coordinator.Join{})
		if took := time.Since(asked); took > 2*time.Second {
			t.Errorf("a client from another address joined after %v", took)
		}
		go other.alive()
		time.Sleep(time.Minute - time.Second)
		grown := float64(size()-before) / time.Since(began).Seconds()
		t.Logf("the journal grows by %.0f bytes a second", grown)
		if grown > mostPerSecond {
			t.Errorf("the journal grows by %.0f bytes a second, want at most %d", grown, mostPerSecond)
		}
		churn.Wait()
	})
}
