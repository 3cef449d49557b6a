package client

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/core/assign"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/files/data"
	"github.com/psyche-go/psyche/host/memory"
	"github.com/psyche-go/psyche/node/clienttest"
	"github.com/psyche-go/psyche/node/env"
	"github.com/psyche-go/psyche/node/memnet"
	"github.com/psyche-go/psyche/record/event"
	"github.com/psyche-go/psyche/record/wire"
)

// informer counts the proofs of two results that a client sends, and the accepted ones.
type informer struct {
	*memory.Client
	sent, accepted *atomic.Int64
}

func (i informer) Submit(ctx context.Context, a coordinator.Action) error {
	err := i.Client.Submit(ctx, a)
	if _, ok := a.(coordinator.Equivocation); ok {
		i.sent.Add(1)
		if err == nil {
			i.accepted.Add(1)
		}
	}
	return err
}

// signsTwice makes a client sign a second result of its batch from a step on.
func signsTwice(o *options, from uint32) {
	key := o.Key
	o.Network = &equivocator{Network: silent{o.Network}, key: key, second: func(a wire.ResultAnnouncement) ([]byte, bool) {
		return clienttest.Result(a.Step, a.Batch, key.ID(), [32]byte{31: byte(a.Step)}), a.Step >= from
	}}
}

// stateOf returns the state of a client in the run.
func stateOf(s *coordinator.State, id identity.ID) coordinator.ClientState {
	for _, clients := range [][]coordinator.Client{s.Epoch.Clients, s.Epoch.Exited, s.Departed} {
		if i := slices.IndexFunc(clients, func(c coordinator.Client) bool { return c.ID == coordinator.ClientID(id) }); i >= 0 {
			return clients[i].State
		}
	}
	return coordinator.Healthy
}

// TestEquivocatorIsEjected checks that a member that signs two results is ejected in the same
// round, by one action of one other member. The others end with the same model. The ejected client
// is a member again in the last epoch.
func TestEquivocatorIsEjected(t *testing.T) {
	for _, honest := range []int{3, 12} {
		t.Run(fmt.Sprint(honest), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				config := clienttest.Config(uint16(honest + 1))
				config.InitMinClients, config.TotalSteps, config.RoundsPerEpoch = uint16(honest), 20, 5
				config.GlobalBatchSizeStart, config.GlobalBatchSizeEnd = 26, 26
				w := newWorld(t, config)
				var sent, accepted atomic.Int64
				var members []*member
				launch := func(i int, twice bool) *member {
					return w.launch(i, func(o *options) {
						o.trainer.Duration = time.Second
						o.Backend = informer{o.Backend.(*memory.Client), &sent, &accepted}
						if twice {
							signsTwice(o, 2)
						}
					})
				}
				for i := range honest {
					members = append(members, launch(i, false))
				}
				bad := launch(honest, true)
				w.until("it is ejected", func(s *coordinator.State) bool { return stateOf(s, bad.id) == coordinator.Ejected })
				if s := w.host.State(); s.Progress.Step > 3 {
					t.Errorf("the client was ejected in step %d", s.Progress.Step)
				}
				if sent.Load() > 4 || accepted.Load() != 1 {
					t.Errorf("%d times sent, %d times accepted", sent.Load(), accepted.Load())
				}
				finishEqual(w, members...)
				bad.wait()
				s := w.host.State()
				for _, m := range members {
					if got := stateOf(&s, m.id); got != coordinator.Healthy {
						t.Errorf("an honest member is %v", got)
					}
					if lost := all[event.Desynchronised](m); len(lost) != 0 {
						t.Errorf("got %+v; want len(lost) == 0", lost)
					}
				}
			})
		})
	}
}

// TestRunWaitsForTheEjected checks that an epoch that needs all clients does not begin without the
// ejected client until a further client joins.
func TestRunWaitsForTheEjected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, clienttest.Config(4))
		members := []*member{w.launch(0, nil), w.launch(1, nil), w.launch(2, nil)}
		bad := w.launch(3, func(o *options) { signsTwice(o, 1) })
		w.until("the run waits", func(s *coordinator.State) bool {
			return s.RunState == coordinator.WaitingForMembers && s.Progress.Epoch == 1
		})
		time.Sleep(time.Minute)
		if s := w.host.State(); s.RunState != coordinator.WaitingForMembers || s.IsPending(coordinator.ClientID(bad.id)) {
			t.Errorf("%v with %d pending", s.RunState, len(s.Pending))
		}
		bad.cancel()
		<-bad.done
		finishEqual(w, append(members, w.launch(4, nil))...)
	})
}

// TestTurns checks that one of the members with the same proof acts first, and that the turns of
// all members come soon.
func TestTurns(t *testing.T) {
	round := &coordinator.Round{Seed: 5}
	for i := range coordinator.MaxClients {
		round.Members = append(round.Members, coordinator.ClientID(clienttest.Numbered(1, i, 0)))
	}
	turns := make(map[time.Duration]int)
	for _, id := range append(slices.Clone(round.Members), coordinator.ClientID{1}) {
		turns[turnOf(round, id)]++
	}
	for turn, want := range []int{1, 3, 12, 48, 192, 1} {
		if got := turns[time.Duration(turn)*turnPause]; got != want {
			t.Errorf("turn %d has %d clients, want %d", turn, got, want)
		}
	}
	first := func(seed uint64) (id coordinator.ClientID) {
		round.Seed = seed
		return round.Members[slices.IndexFunc(round.Members, func(id coordinator.ClientID) bool { return turnOf(round, id) == 0 })]
	}
	if first(1) == first(2) && first(2) == first(3) {
		t.Error("the same member is first in all rounds")
	}
}

// otherData changes the data of a batch, and so its result.
type otherData struct{ clienttest.Data }

func (d otherData) Batch(ctx context.Context, id assign.BatchID) (data.Batch, error) {
	b, err := d.Data.Batch(ctx, id)
	for _, s := range b.Sequences {
		s[0]++
	}
	return b, err
}

// observed wraps a network and calls published after each announcement.
type observed struct {
	env.Network
	published func()
}

func (t observed) Publish(ctx context.Context, message []byte) error {
	defer t.published()
	return t.Network.Publish(ctx, message)
}

// signs calls before for each result before it is signed.
type signs struct {
	env.Announcements
	before func(step uint32)
}

func (s signs) Sign(a wire.ResultAnnouncement) []byte {
	s.before(a.Step)
	return s.Announcements.Sign(a)
}

// TestKilledClientIsNotEjected kills an honest client in every part of its work on a step. It starts
// the client again with different data while the round still runs and the client still has its seat,
// so that the client could sign a different result of the same batch. With or without its signing
// record, no member ever has two results of one step from this client.
func TestKilledClientIsNotEjected(t *testing.T) {
	const step = 2
	moments := []string{"training", "signing", "announcing"}
	for after := time.Duration(0); after <= 1500*time.Millisecond; after += 150 * time.Millisecond {
		moments = append(moments, after.String())
	}
	for _, moment := range moments {
		for _, saves := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, folder %t", moment, saves), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { killedAt(t, moment, step, saves) })
			})
		}
	}
}

func killedAt(t *testing.T, moment string, step uint32, saves bool) {
	w := newWorld(t, clienttest.Config(3))
	slow := func(o *options) { o.trainer.Duration = 4 * time.Second }
	a, b := w.launch(0, slow), w.launch(1, slow)
	mu, counts := &sync.Mutex{}, make(map[uint32]map[[32]byte]bool)
	folder := filepath.Join(w.dir, "saved")
	quick := func(o *options) {
		o.trainer.Duration = 500 * time.Millisecond
		o.Announcements = signed{o.Announcements, mu, counts}
		if saves {
			o.CheckpointDir = folder
		}
	}
	killed := make(chan struct{})
	first := w.launch(2, func(o *options) {
		o.Announcements = env.Signed{Key: o.Key}
		quick(o)
		network, host := o.Network.(*memnet.Node), o.Backend.(*memory.Client)
		kill := sync.OnceFunc(func() { network.Close(); host.Cut(); close(killed) })
		at := func(when string, now uint32) {
			if after, err := time.ParseDuration(moment); err == nil && now == step {
				time.AfterFunc(after, kill)
			} else if when == moment && now == step {
				kill()
			}
		}
		o.trainer.OnTrain = func(now uint32, _ assign.BatchID) { at("training", now) }
		o.Announcements = signs{o.Announcements, func(now uint32) { at("signing", now) }}
		o.Network = observed{o.Network, func() {
			mu.Lock()
			_, announced := counts[step]
			mu.Unlock()
			if announced {
				at("announcing", step)
			}
		}}
	})
	<-killed
	<-first.done
	second := w.launch(2, func(o *options) {
		o.Announcements = env.Signed{Key: o.Key}
		o.Data = otherData{}
		quick(o)
	})
	w.until("the end", func(s *coordinator.State) bool {
		if got := stateOf(s, second.id); got == coordinator.Ejected {
			t.Fatalf("the client was ejected in step %d", s.Progress.Step)
		}
		return s.RunState == coordinator.Finished
	})
	finishEqual(w, a, b, second)
	for _, m := range []*member{a, b} {
		if found := all[event.Equivocation](m); len(found) != 0 {
			t.Errorf("a peer has two results: %+v", found)
		}
	}
	for step, blobs := range counts {
		if len(blobs) > 1 {
			t.Errorf("%d results of step %d are signed", len(blobs), step)
		}
	}
	again := 0
	for _, e := range all[event.ResultSent](second) {
		again = max(again, int(e.Step))
	}
	if again == 0 {
		t.Error("the client never signed again, so little was tested")
	}
}
