package client

import (
	"context"
	"encoding/binary"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/base/quota"
	"github.com/psyche-go/psyche/core/assign"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/node/clienttest"
	"github.com/psyche-go/psyche/node/env"
	"github.com/psyche-go/psyche/node/exchange"
	"github.com/psyche-go/psyche/record/event"
	"github.com/psyche-go/psyche/record/wire"
)

// TestLostGossip drops messages. It checks that announcements are repeated and requested.
func TestLostGossip(t *testing.T) {
	tests := map[string]func(n int64) bool{
		"every second message": func(n int64) bool { return n%2 == 0 },
		"every message":        func(int64) bool { return true },
	}
	for name, drop := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, clienttest.Config(3))
				var count atomic.Int64
				w.hub.DropGossip = func(identity.ID, identity.ID, []byte) bool { return drop(count.Add(1)) }
				a, b, c := w.launch(0, nil), w.launch(1, nil), w.launch(2, nil)
				finishEqual(w, a, b, c)
				for _, applied := range all[event.Applied](b) {
					if applied.Counted != 3 {
						t.Errorf("step %d: %d results counted", applied.Step, applied.Counted)
					}
				}
			})
		})
	}
}

// TestLostLink cuts the link between two clients. They get each other's results from the third.
func TestLostLink(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, clienttest.Config(3))
		one, other := clienttest.Key(0).ID(), clienttest.Key(1).ID()
		cut := func(from, to identity.ID) bool { return from == one && to == other || from == other && to == one }
		w.hub.DropLink = cut
		w.hub.DropGossip = func(from, to identity.ID, _ []byte) bool { return cut(from, to) }
		a, b, c := w.launch(0, nil), w.launch(1, nil), w.launch(2, nil)
		finishEqual(w, a, b, c)
	})
}

// slowPusher is a network whose pushes take longer than the pause between repairs of gossip.
type slowPusher struct {
	env.Network
	mu      sync.Mutex
	pushing map[string]bool // announcements of results that are being pushed
	early   int             // announcements by gossip meanwhile
}

func (p *slowPusher) set(raw []byte, pushing bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.pushing[string(raw)] = pushing
}

func (p *slowPusher) Request(ctx context.Context, to identity.ID, name string, request []byte, most int) ([]byte, error) {
	if name == exchange.PushProtocol {
		raw := request[2 : 2+binary.LittleEndian.Uint16(request)]
		p.set(raw, true)
		time.Sleep(1500 * time.Millisecond)
		p.set(raw, false)
	}
	return p.Network.Request(ctx, to, name, request, most)
}

func (p *slowPusher) Publish(ctx context.Context, message []byte) error {
	p.mu.Lock()
	if p.pushing[string(message)] {
		p.early++
	}
	p.mu.Unlock()
	return p.Network.Publish(ctx, message)
}

// TestRepairWaitsForPushes checks that the repair of gossip does not announce a result that is being
// pushed. Members would fetch what is already in transit.
func TestRepairWaitsForPushes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, clienttest.Config(3))
		pusher := &slowPusher{pushing: make(map[string]bool)}
		a, b := w.launch(0, nil), w.launch(1, nil)
		c := w.launch(2, func(o *options) {
			pusher.Network, o.Network = o.Network, pusher
			o.prepare = func(n *Node) { n.gossip.pusher.took = 2 * time.Second }
		})
		finishEqual(w, a, b, c)
		if pusher.early != 0 || len(pusher.pushing) == 0 {
			t.Errorf("%d of %d results were announced while they were pushed", pusher.early, len(pusher.pushing))
		}
	})
}

// doubleSizer is a network that announces its client's results a second time, with a wrong size.
type doubleSizer struct {
	env.Network
	key   identity.Key
	wrong uint32
}

func (d *doubleSizer) Publish(ctx context.Context, message []byte) error {
	_, a, err := wire.OpenAnnouncement(message, clienttest.Run)
	if err != nil {
		return err
	}
	a.Size = d.wrong
	return errors.Join(d.Network.Publish(ctx, message), d.Network.Publish(ctx, wire.SignAnnouncement(d.key, a)))
}

// TestResultOfTwoSizes checks a trainer that announces a wrong size of its result to one client.
// The result counts, because the others hold it, and this client still gets it.
func TestResultOfTwoSizes(t *testing.T) {
	for _, wrong := range []uint32{83, 1 << 20} { // too small to fetch; larger than any result
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, clienttest.Config(4))
			bad, victim := clienttest.Key(3), clienttest.Key(0).ID()
			w.hub.DropGossip = func(from, to identity.ID, message []byte) bool {
				_, a, err := wire.OpenAnnouncement(message, clienttest.Run)
				return err != nil || from == bad.ID() && (to == victim) != (a.Size == wrong)
			}
			a, b, c := w.launch(0, nil), w.launch(1, nil), w.launch(2, nil)
			d := w.launch(3, func(o *options) { o.Network = &doubleSizer{silent{o.Network}, bad, wrong} })
			finishEqual(w, a, b, c, d)
			if lost := all[event.Desynchronised](a); len(lost) > 0 {
				t.Errorf("wrong size %d: desynchronised: %+v", wrong, lost)
			}
			for _, applied := range all[event.Applied](a) {
				if applied.Counted != 4 {
					t.Errorf("wrong size %d: step %d: %d results counted", wrong, applied.Step, applied.Counted)
				}
			}
		})
	}
}

// TestGossipOutOfTime passes a client an announcement before it has seen the run, an announcement
// of an old round, an announcement of a different run with the same name, and a head of that run's
// log. No peer is blamed for them, because honest members may forward them, and hostile members may
// keep and replay them.
func TestGossipOutOfTime(t *testing.T) {
	g := &gossipReader{
		announcements: env.Signed{Key: clienttest.Key(1)}, received: make(chan announcement, 1), log: slog.New(slog.DiscardHandler), waiting: quota.New(maxPushedEach, maxPushedFromAll),
		misbehaved: func(_ identity.ID, detail string) { t.Error(detail) },
	}
	author := clienttest.Key(1)
	message := wire.SignAnnouncement(author, wire.ResultAnnouncement{Run: clienttest.Run, Step: 1, Batch: assign.BatchID{End: 1}, Size: 1})
	if err := g.listen(author.ID(), message); !errors.Is(err, env.ErrUnasked) {
		t.Errorf("before the run was seen: %v", err)
	}
	g.run.Store(&issuer{run: clienttest.Run})
	g.step.Store(1 + coordinator.StoredRounds)
	if err := g.listen(author.ID(), message); err != nil || len(g.received) != 1 {
		t.Errorf("in time: %v", err)
	}
	g.step.Add(1)
	if err := g.listen(author.ID(), message); !errors.Is(err, env.ErrUnasked) || len(g.received) != 1 {
		t.Errorf("long over: %v", err)
	}
	message = wire.SignAnnouncement(author, wire.ResultAnnouncement{Run: [32]byte{1}, Step: g.step.Load(), Batch: assign.BatchID{End: 1}, Size: 1})
	if err := g.listen(author.ID(), message); !errors.Is(err, env.ErrUnasked) {
		t.Errorf("of a different run: %v", err)
	}
	if err := g.pushed(author.ID(), message, []byte{1}); !errors.Is(err, env.ErrUnasked) {
		t.Errorf("pushed, of a different run: %v", err)
	}
	g.run.Store(&issuer{run: clienttest.Run, host: author.ID(), known: make(map[uint32]wire.Head)})
	head := wire.Head{Index: 1, Step: g.step.Load()}
	if err := g.listen(author.ID(), head.Sign(author, [32]byte{1}).AppendTo(nil)); !errors.Is(err, env.ErrUnasked) {
		t.Errorf("head of a different run: %v", err)
	}
	<-g.received
	if err := g.listen(author.ID(), head.Sign(author, clienttest.Run).AppendTo(nil)); err != nil || len(g.received) != 1 {
		t.Errorf("head of this run: %v", err)
	}
}

// slowFetcher is a network on which fetches take long. It counts requests for announcements.
type slowFetcher struct {
	env.Network
	takes time.Duration
	asked atomic.Int64
}

func (s *slowFetcher) Fetch(ctx context.Context, hash [32]byte, size uint64, holders []identity.ID) ([]byte, error) {
	if len(holders) > 0 {
		select {
		case <-time.After(s.takes):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return s.Network.Fetch(ctx, hash, size, holders)
}

func (s *slowFetcher) Request(ctx context.Context, to identity.ID, protocol string, request []byte, maxResponse int) ([]byte, error) {
	if protocol == exchange.RoundProtocol {
		s.asked.Add(1)
	}
	return s.Network.Request(ctx, to, protocol, request, maxResponse)
}

// TestNothingIsAskedForThatArrives checks that a member that knows which results count, and is
// still receiving them, does not request announcements. The answers would share its link with the
// results.
func TestNothingIsAskedForThatArrives(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		config := clienttest.Config(4)
		w := newWorld(t, config)
		slow := &slowFetcher{takes: 3 * time.Second}
		var members []*member
		for i := range 4 {
			members = append(members, w.launch(i, func(o *options) {
				if slow.Network = o.Network; i == 3 {
					o.Network = slow
				} else {
					o.Network = silent{o.Network}
				}
			}))
		}
		finishEqual(w, members...)
		if asked := slow.asked.Load(); asked > 3*int64(config.TotalSteps) {
			t.Errorf("asked %d times in %d rounds", asked, config.TotalSteps)
		}
	})
}
