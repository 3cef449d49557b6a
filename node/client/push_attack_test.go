package client

import (
	"bytes"
	"context"
	"encoding/binary"
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
	"github.com/psyche-go/psyche/record/wire"
	"lukechampine.com/blake3"
)

// hostilePusher is a network that pushes its client's results in every forbidden way.
type hostilePusher struct {
	env.Network
	key  identity.Key
	twos uint32 // step from which on two results of a batch are pushed

	mu     sync.Mutex
	pushes int
	before []byte // an earlier push
	theirs []byte // a push of a different member
}

// Handle records the pushes of other members.
func (h *hostilePusher) Handle(name string, most int, handle func(context.Context, identity.ID, []byte) ([]byte, error)) {
	h.Network.Handle(name, most, func(ctx context.Context, from identity.ID, request []byte) ([]byte, error) {
		if name == exchange.PushProtocol {
			h.mu.Lock()
			h.theirs = bytes.Clone(request)
			h.mu.Unlock()
		}
		return handle(ctx, from, request)
	})
}

func (h *hostilePusher) Request(ctx context.Context, to identity.ID, name string, request []byte, most int) ([]byte, error) {
	if name != exchange.PushProtocol {
		return h.Network.Request(ctx, to, name, request, most)
	}
	h.mu.Lock()
	h.pushes++
	kind, before, theirs := h.pushes%7, h.before, h.theirs
	h.before = bytes.Clone(request)
	h.mu.Unlock()
	size := 2 + int(binary.LittleEndian.Uint16(request))
	var sent [][]byte
	switch kind {
	case 0: // sends nothing
	case 1: // sends false bytes
		wrong := bytes.Clone(request)
		wrong[len(wrong)-1]++
		sent = append(sent, wrong)
	case 2: // repeats an earlier push
		sent = append(sent, before)
	case 3: // repeats a different member's push
		sent = append(sent, theirs)
	case 4: // exceeds the number of pushes
		for range 3 * maxPushes {
			sent = append(sent, request)
		}
	case 5: // late, while the round is being decided
		time.Sleep(2 * time.Second)
		sent = append(sent, request)
	case 6: // a second result of the batch, or a result of a round that has not begun
		_, a, err := wire.OpenAnnouncement(request[2:size], clienttest.Run)
		if err != nil {
			panic(err)
		}
		payload := bytes.Clone(request[size:])
		if a.Step < h.twos {
			a.Step++
		} else {
			payload[len(payload)-1]++
		}
		a.Blob = blake3.Sum256(payload)
		raw := wire.SignAnnouncement(h.key, a)
		sent = append(sent, append(append(binary.LittleEndian.AppendUint16(nil, uint16(len(raw))), raw...), payload...))
	}
	for _, push := range sent {
		if len(push) > 0 {
			_, _ = h.Network.Request(ctx, to, name, push, most)
		}
	}
	return nil, nil
}

// TestHostilePushes checks a member, one of six, that pushes its results to only some members, with
// false bytes, late, repeatedly and for other rounds. It also pushes results of other members. No
// other member is late, loses its seat or its model, or forgets any of its results.
func TestHostilePushes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const rounds = 24
		config := clienttest.Config(6)
		config.TotalSteps, config.RoundsPerEpoch = rounds, rounds
		w := newWorld(t, config)
		var members []*member
		var mu sync.Mutex
		misbehaved := make(map[identity.ID]int)
		for i := range 6 {
			members = append(members, w.launch(i, func(o *options) {
				o.trainer.Duration = time.Duration(i+1) * 100 * time.Millisecond
				o.Backend = far{o.Backend, 200 * time.Millisecond}
				o.Misbehaved = func(peer identity.ID, _ string) {
					mu.Lock()
					defer mu.Unlock()
					misbehaved[peer]++
				}
				if i == 5 {
					o.Network = &hostilePusher{Network: o.Network, key: clienttest.Key(5), twos: 12}
				}
			}))
		}
		honest := members[:5]
		w.until("nearly all rounds", func(s *coordinator.State) bool { return s.Progress.Step == rounds-1 })
		s := w.host.State()
		for i, m := range honest {
			if me, ok := s.Member(coordinator.ClientID(m.id)); !ok || me.State != coordinator.Healthy || me.Lateness != coordinator.OnTime {
				t.Errorf("client %d: %+v", i, me)
			}
		}
		finishEqual(w, honest...)
		for i, m := range honest {
			if lost := all[event.Desynchronised](m); len(lost) != 0 {
				t.Errorf("client %d: %+v", i, lost)
			}
			if m.trainer.Momentum() != rounds || len(all[event.Applied](m)) != rounds {
				t.Errorf("client %d: %d own results count, %d rounds are applied", i, m.trainer.Momentum(), len(all[event.Applied](m)))
			}
		}
		if bad := members[5].id; misbehaved[bad] == 0 || len(misbehaved) > 1 {
			t.Errorf("misbehaved: %v, want %s only", misbehaved, bad.Short())
		}
		members[5].cancel()
		members[5].wait()
	})
}
