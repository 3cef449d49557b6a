package client

import (
	"context"
	"encoding/binary"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/node/clienttest"
	"github.com/psyche-go/psyche/node/env"
	"github.com/psyche-go/psyche/node/exchange"
	"github.com/psyche-go/psyche/record/event"
	"lukechampine.com/blake3"
)

// twisted is a network whose client changes its answers to the requests of peers.
type twisted struct {
	env.Network
	protocol string // empty for all protocols
	twist    func(ctx context.Context, answer []byte, err error) ([]byte, error)
}

func (n twisted) Handle(protocol string, limit int, handle func(ctx context.Context, from identity.ID, request []byte) ([]byte, error)) {
	n.Network.Handle(protocol, limit, func(ctx context.Context, from identity.ID, request []byte) ([]byte, error) {
		answer, err := handle(ctx, from, request)
		if n.protocol == "" || protocol == n.protocol {
			return n.twist(ctx, slices.Clone(answer), err)
		}
		return answer, err
	})
}

// later delays an answer and changes it.
func later(d time.Duration, twist func(answer []byte) []byte) func(ctx context.Context, answer []byte, err error) ([]byte, error) {
	return func(ctx context.Context, answer []byte, err error) ([]byte, error) {
		select {
		case <-time.After(d):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		if err == nil {
			answer = twist(answer)
		}
		return answer, err
	}
}

// otherSize changes the size of the first result of an answer, which no replica hash covers.
func otherSize(answer []byte) []byte {
	answer[4+4+2+80]++
	return answer
}

// largest sets the size of each result of an answer to the maximum.
func largest(answer []byte) []byte {
	for at := 0; at < len(answer); {
		count := int(binary.LittleEndian.Uint16(answer[at+8:]))
		at += 10
		for range count {
			binary.LittleEndian.PutUint32(answer[at+80:], 1<<10)
			at += 85
		}
	}
	return answer
}

func same(answer []byte) []byte { return answer }

// TestReturnDespiteFalseAnswers brings a client back into an epoch while one of the three members
// that it asks sends false or late answers of each kind. The client soon returns to that epoch, and
// trains on the right model.
func TestReturnDespiteFalseAnswers(t *testing.T) {
	const late = 4900 * time.Millisecond
	for name, test := range map[string]struct {
		protocol string
		quick    bool // rounds take 0.3 s instead of 2 s
		twist    func(ctx context.Context, answer []byte, err error) ([]byte, error)
	}{
		"a size, last":           {exchange.ResultsProtocol, false, later(time.Second, otherSize)},
		"a size, first":          {exchange.ResultsProtocol, false, later(0, otherSize)},
		"sizes, the largest":     {exchange.ResultsProtocol, true, later(0, largest)},
		"late results":           {exchange.ResultsProtocol, true, later(late, same)},
		"no results":             {exchange.ResultsProtocol, true, later(time.Hour, same)},
		"late manifest":          {exchange.ModelProtocol, true, later(late, same)},
		"no manifest":            {exchange.ModelProtocol, true, later(time.Hour, same)},
		"another manifest":       {exchange.ModelProtocol, true, later(0, func(b []byte) []byte { b[len(b)-1]++; return b })},
		"a huge manifest":        {exchange.ModelProtocol, true, later(0, func([]byte) []byte { return make([]byte, 1<<25) })},
		"everything is late":     {"", true, later(late, same)},
		"everything is too late": {"", true, later(time.Hour, same)},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				config := clienttest.Config(4)
				config.RoundsPerEpoch, config.TotalSteps = 40, 43
				w := newWorld(t, config, []byte(everyThird)...)
				change := func(i int) func(o *options) {
					return func(o *options) {
						large(o)
						o.trainer.Duration = 2 * time.Second
						if test.quick {
							o.trainer.Duration = 300 * time.Millisecond
						}
						if i == 1 {
							o.Network = twisted{o.Network, test.protocol, test.twist}
						}
					}
				}
				var members []*member
				for i := range 4 {
					members = append(members, w.launch(i, change(i)))
				}
				w.reach(10, coordinator.RoundTrain)
				members[3].crash()
				died := time.Now()
				back := w.launch(3, change(3))
				members[3] = back
				w.until("it is back", func(*coordinator.State) bool { return len(all[event.Rejoined](back)) > 0 })
				away := time.Since(died)
				finishEqual(w, members...)
				checkNobodyAccused(t, w, members)
				rejoined := all[event.Rejoined](back)
				t.Logf("back in step %d after %v", rejoined[0].Step, away)
				if len(rejoined) != 1 || rejoined[0].Epoch != 0 {
					t.Fatalf("rejoined: %+v", rejoined)
				}
				if ready := all[event.Ready](back); ready[0].Source != "peers" {
					t.Errorf("ready: %+v", ready)
				}
			})
		})
	}
}

// TestHoldersAreAnybody checks that three attempts to get an intermediate checkpoint include an
// honest member. Nine hostile members of thirty also claim to hold it, and they may be anywhere in
// the list.
func TestHoldersAreAnybody(t *testing.T) {
	s := &coordinator.State{}
	for i := range 31 {
		s.Epoch.Clients = append(s.Epoch.Clients, coordinator.Client{ID: coordinator.ClientID(clienttest.Key(i).ID()), HoldsEarlier: 7})
	}
	for first := range 30 {
		hostile := make(map[identity.ID]bool)
		for i := range 9 {
			hostile[clienttest.Key(1+(first+i)%30).ID()] = true
		}
		v := newView(clienttest.Key(0), 0)
		v.state = s
		found := false
		for range 3 {
			for _, id := range v.holders(7) {
				found = found || !hostile[id]
			}
		}
		if !found {
			t.Errorf("with hostile members from the %dth on only they are asked", first)
		}
	}
}

// narrow is a network with little room for blobs. There is always room for the blobs that its
// client makes, as in package blob.
type narrow struct {
	env.Network
	room int

	mu   sync.Mutex
	held map[[32]byte]int
}

func (n *narrow) Put(data []byte) ([32]byte, error) {
	hash, err := n.Network.Put(data)
	n.mu.Lock()
	defer n.mu.Unlock()
	n.held[hash] = len(data)
	return hash, err
}

func (n *narrow) Keep(data []byte) ([32]byte, error) {
	if !n.fits(blake3.Sum256(data), len(data)) {
		return [32]byte{}, env.ErrNoRoom
	}
	return n.Put(data)
}

// fits reports whether there is room for a blob, or whether the blob is here.
func (n *narrow) fits(hash [32]byte, size int) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if _, here := n.held[hash]; here {
		return true
	}
	for _, held := range n.held {
		size += held
	}
	return size <= n.room
}

func (n *narrow) Drop(hash [32]byte) {
	n.Network.Drop(hash)
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.held, hash)
}

func (n *narrow) Fetch(ctx context.Context, hash [32]byte, size uint64, holders []identity.ID) ([]byte, error) {
	if !n.fits(hash, int(size)) {
		return nil, env.ErrNoRoom
	}
	data, err := n.Network.Fetch(ctx, hash, size, holders)
	if err == nil {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.held[hash] = len(data)
	}
	return data, err
}

// TestSharingAModelTakesNoMemoryOfResults brings a client back among members that have memory for
// the results of some rounds, but not for a model in addition. No member ends or waits for lack of
// memory.
func TestSharingAModelTakesNoMemoryOfResults(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		config := clienttest.Config(4)
		config.RoundsPerEpoch, config.TotalSteps = 40, 40
		w := newWorld(t, config, []byte(everyThird)...)
		change := func(i int) func(o *options) {
			return func(o *options) {
				large(o)
				o.trainer.Duration = 300 * time.Millisecond
				if i < 3 {
					o.ResultMemory, o.Network = 2000, &narrow{Network: o.Network, room: 6000, held: make(map[[32]byte]int)}
				}
			}
		}
		var members []*member
		for i := range 4 {
			members = append(members, w.launch(i, change(i)))
		}
		w.reach(10, coordinator.RoundTrain)
		members[3].crash()
		began := time.Now()
		members[3] = w.launch(3, change(3))
		w.until("the end", func(s *coordinator.State) bool { return s.RunState == coordinator.Finished })
		if took := time.Since(began); took > 20*time.Second {
			t.Errorf("30 rounds of 0.3 s took %v", took)
		}
		finishEqual(w, members...) // a finished member may stay for a while for members that may come back
		for _, m := range members {
			if lost := all[event.Desynchronised](m); len(lost) > 0 {
				t.Errorf("%s: got %+v; want len(lost) == 0", m.id.Short(), lost)
			}
		}
	})
}
