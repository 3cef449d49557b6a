package client

import (
	"context"
	"encoding/binary"
	"flag"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/core/audit"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/node/auditor"
	"github.com/psyche-go/psyche/node/clienttest"
	"github.com/psyche-go/psyche/node/env"
)

// allLinks also runs the slow test cases.
var allLinks = flag.Bool("links", false, "test an accused member on all links")

// sharedLink is the network of a member with a slow link. All transfers of openings share the link
// evenly, as the streams of a real link do. A requester that gives up is sent nothing more, and
// loses the parts that it has received.
type sharedLink struct {
	env.Network
	rate float64 // bytes/s
	size float64 // size of a whole opening in bytes

	mu      sync.Mutex
	active  int
	sent    float64      // transferred bytes
	arrived atomic.Int64 // transferred parts
	given   atomic.Int64 // transfers that the requester gave up
}

// Handle implements env.Requests.
func (l *sharedLink) Handle(protocol string, maxRequest int, handle func(ctx context.Context, from identity.ID, request []byte) ([]byte, error)) {
	if protocol != auditor.OpeningProtocol {
		l.Network.Handle(protocol, maxRequest, handle)
		return
	}
	l.Network.Handle(protocol, maxRequest, func(ctx context.Context, from identity.ID, request []byte) ([]byte, error) {
		answer, err := handle(ctx, from, request)
		if err != nil || auditor.PartsIn(answer) == 0 {
			return answer, err
		}
		return answer, l.carry(ctx, auditor.PartsIn(answer))
	})
}

// carry waits for the transfer of some parts.
func (l *sharedLink) carry(ctx context.Context, parts int) error {
	l.mu.Lock()
	l.active++
	l.mu.Unlock()
	defer func() { l.mu.Lock(); l.active--; l.mu.Unlock() }()
	const dt = 20 * time.Millisecond
	for left := float64(parts) * l.size / audit.DefaultChunks; left > 0; {
		select {
		case <-ctx.Done():
			l.given.Add(1)
			return ctx.Err()
		case <-time.After(dt):
		}
		l.mu.Lock()
		left -= l.rate * dt.Seconds() / float64(l.active)
		l.sent += l.rate * dt.Seconds() / float64(l.active)
		l.mu.Unlock()
	}
	l.arrived.Add(int64(parts))
	return nil
}

// accuses makes a member accuse the given member of silence as often as the run allows.
func accuses(of identity.ID, accused *atomic.Int64) func(o *options) {
	return func(o *options) {
		backend := o.Backend
		o.Backend = &acting{backend, func(ctx context.Context, a coordinator.Action) (bool, error) {
			if p, ok := a.(coordinator.WitnessRound); ok && p.Step > 4 {
				accuse := coordinator.Accuse{Step: p.Step - 2, Client: coordinator.ClientID(of), Fault: coordinator.FaultSilent}
				if backend.Submit(ctx, accuse) == nil {
					accused.Add(1)
				}
			}
			return false, nil
		}}
	}
}

// hogs makes a member request openings of the given member all the time, many at once, until ctx
// ends. It has no turns for members that request parts of other members' openings from it.
func hogs(ctx context.Context, tasks *sync.WaitGroup, of identity.ID, step func() uint32) func(o *options) {
	return func(o *options) {
		network, me := o.Network, o.Key.ID()
		o.Network = deciding{network, func(_ uint32, request []byte) ([]byte, bool) {
			return binary.LittleEndian.AppendUint32(nil, 10_000), identity.ID(request[:32]) == me
		}}
		for i := range uint32(16) {
			tasks.Go(func() {
				for n := uint32(0); ctx.Err() == nil; n++ {
					request := make([]byte, 44)
					copy(request, of[:])
					at := step()
					at -= min(at, 2+(i+n)%8)
					for b := range 4 {
						request[32+b] = byte(at >> (8 * b))
						request[36+b], request[40+b] = 0xff, 0xff
					}
					limited, cancel := context.WithTimeout(ctx, 29*time.Second)
					_, _ = network.Request(limited, of, auditor.OpeningProtocol, request, 16<<20)
					cancel()
					time.Sleep(50 * time.Millisecond)
				}
			})
		}
	}
}

// TestAccusedOnASlowLink checks that an honest member on a slow link, which its jurors share, keeps
// its seat when a member repeatedly accuses it of silence. Openings have 1.06 MB with chunks of 64,
// and 4.25 MB with chunks of 128.
func TestAccusedOnASlowLink(t *testing.T) {
	for _, c := range []struct {
		members int
		mbit    float64
		opening float64 // bytes
		hogs    int
		always  bool // runs without -links too
	}{
		{16, 2, 1.06e6, 0, true},
		{16, 8, 4.25e6, 0, false},
		{16, 3, 1.06e6, 0, false},
		{16, 5, 1.06e6, 0, false},
		{32, 4, 1.06e6, 0, false},
		{12, 1, 1.06e6, 0, true},
		{24, 6, 4.25e6, 0, false},
		{8, 5, 1.1e6, 0, false},
		{16, 1, 0.29e6, 0, false},
		{16, 0.25, 1.06e6, 0, false},
		{24, 0.5, 4.25e6, 0, false},
		{16, 0.25, 1.06e6, 4, false},
		{16, 2, 1.06e6, 4, false},
		{9, 0.25, 1.06e6, 2, true},
	} {
		if !c.always && !*allLinks {
			continue
		}
		t.Run(fmt.Sprintf("%d members, %v Mbit per s, %v MB, %d hogs", c.members, c.mbit, c.opening/1e6, c.hogs), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, auditedConfig(uint16(c.members), 24))
				slow := clienttest.Key(1).ID()
				var link *sharedLink
				var accused atomic.Int64
				var honest []*member
				ctx, cancel := context.WithCancel(t.Context())
				var tasks sync.WaitGroup
				defer tasks.Wait()
				defer cancel()
				for i := range c.members {
					accuser := i >= c.members-1-c.hogs
					m := w.launch(i, func(o *options) {
						audited(nil)(o)
						o.trainer.Duration = 5 * time.Second
						switch {
						case i == 1:
							link = &sharedLink{Network: o.Network, rate: c.mbit * 1e6 / 8, size: c.opening}
							o.Network = link
						case i == c.members-1:
							accuses(slow, &accused)(o)
						case accuser:
							hogs(ctx, &tasks, slow, func() uint32 { return w.host.State().Progress.Step })(o)
						}
					})
					if !accuser {
						honest = append(honest, m)
					}
				}
				w.until("the end", func(s *coordinator.State) bool {
					return len(s.Authority.Ejections) > 0 || s.RunState == coordinator.Finished
				})
				s := w.host.State()
				for _, e := range s.Authority.Ejections {
					t.Errorf("ejected %s, the honest member is %s", identity.ID(e.Client).Short(), slow.Short())
				}
				if accused.Load() == 0 {
					t.Error("the accuser did not accuse")
				}
				for _, m := range honest {
					if m.id != slow {
						checkNobodyAccused(t, w, []*member{m})
					}
				}
				link.mu.Lock()
				defer link.mu.Unlock()
				t.Logf("%d accusations; %d parts arrived, %d were given up, %.1f MB sent in %d rounds; audits %v", accused.Load(), link.arrived.Load(), link.given.Load(), link.sent/1e6, s.Progress.Step, found(honest))
			})
		})
	}
}
