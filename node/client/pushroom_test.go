package client

import (
	"errors"
	"log/slog"
	"testing"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/base/quota"
	"github.com/psyche-go/psyche/core/assign"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/node/clienttest"
	"github.com/psyche-go/psyche/node/env"
	"github.com/psyche-go/psyche/node/exchange"
	"github.com/psyche-go/psyche/record/wire"
	"lukechampine.com/blake3"
	"pgregory.net/rapid"
)

// pushReader returns a gossipReader without a loop, and a map of the faults of each peer.
func pushReader(step uint32) (g *gossipReader, faults map[identity.ID]int) {
	faults = make(map[identity.ID]int)
	g = &gossipReader{
		announcements: env.Signed{Key: clienttest.Key(0)}, received: make(chan announcement, receivedRoom), log: slog.New(slog.DiscardHandler),
		waiting: quota.New(maxPushedEach, maxPushedFromAll), misbehaved: func(peer identity.ID, _ string) { faults[peer]++ },
	}
	g.run.Store(&issuer{run: clienttest.Run})
	g.step.Store(step)
	return g, faults
}

// signedPush returns a pushed result of a member, and the announcement.
func signedPush(member int, step uint32, payload []byte) []byte {
	return wire.SignAnnouncement(clienttest.Key(member), wire.ResultAnnouncement{
		Run: clienttest.Run, Step: step, Batch: assign.BatchID{Start: uint64(member), End: uint64(member) + 1},
		Size: uint32(len(payload)), Blob: blake3.Sum256(payload),
	})
}

// TestHostilePushesTakeBoundedMemory checks members that push more and larger results than this
// client's loop can take, false results, and results of other rounds.
func TestHostilePushesTakeBoundedMemory(t *testing.T) {
	payload := make([]byte, exchange.MaxPushed)
	const step = 10
	t.Run("many members", func(t *testing.T) {
		g, _ := pushReader(step)
		for member := 1; member < coordinator.MaxClients; member++ {
			raw := signedPush(member, step, payload)
			for range maxPushes {
				if err := g.pushed(clienttest.Key(member).ID(), raw, payload); err != nil {
					t.Fatal(err)
				}
			}
			if err := g.pushed(clienttest.Key(member).ID(), raw, payload); !errors.Is(err, errPushes) {
				t.Fatal("too many pushes:", err)
			}
		}
		of, total := make(map[identity.ID]int), 0
		for waiting := len(g.received); waiting > 0; waiting-- {
			a := <-g.received
			of[a.author] += len(a.payload)
			total += len(a.payload)
			g.waiting.Free(a.author, len(a.payload))
			if of[a.author] > maxPushedEach || total > maxPushedFromAll {
				t.Fatalf("%d bytes of one member wait, %d in total", of[a.author], total)
			}
		}
		if total != maxPushedFromAll || g.waiting.Used() != 0 {
			t.Errorf("%d bytes waited, then %d", total, g.waiting.Used())
		}
	})
	t.Run("one member", func(t *testing.T) {
		g, _ := pushReader(step)
		for range maxPushes {
			_ = g.pushed(clienttest.Key(1).ID(), signedPush(1, step, payload), payload)
		}
		_ = g.pushed(clienttest.Key(2).ID(), signedPush(2, step, payload), payload)
		whole := 0
		for range maxPushes + 1 {
			if a := <-g.received; a.payload != nil {
				whole++
			}
		}
		if whole != maxPushedEach/len(payload)+1 {
			t.Errorf("%d results wait", whole)
		}
	})
	t.Run("false results", func(t *testing.T) {
		g, faults := pushReader(step)
		raw := signedPush(1, step, payload)
		wrong := make([]byte, len(payload))
		wrong[0] = 1
		bad := clienttest.Key(1).ID()
		if err := g.pushed(bad, raw, wrong); !errors.Is(err, errNotIts) {
			t.Error("not the committed result:", err)
		}
		if err := g.pushed(bad, raw, payload[1:]); !errors.Is(err, errNotIts) {
			t.Error("a part of the result:", err)
		}
		if err := g.pushed(clienttest.Key(2).ID(), raw, payload); !errors.Is(err, errNotIts) {
			t.Error("result of a different member:", err)
		}
		if len(g.received) != 0 || g.waiting.Used() != 0 || faults[bad] != 2 {
			t.Errorf("%d wait, with %d bytes; faults %v", len(g.received), g.waiting.Used(), faults)
		}
	})
	t.Run("other rounds", func(t *testing.T) {
		g, faults := pushReader(step)
		for _, test := range []struct {
			step uint32
			want error
		}{{step - coordinator.StoredRounds - 1, errOtherRound}, {step - coordinator.StoredRounds, nil}, {step + 1, nil}, {step + 2, errOtherRound}, {1 << 31, errOtherRound}} {
			g.pushes = nil
			if err := g.pushed(clienttest.Key(1).ID(), signedPush(1, test.step, payload[:9]), payload[:9]); !errors.Is(err, test.want) {
				t.Errorf("step %d: %v", test.step, err)
			}
		}
		if len(g.received) != 2 || len(faults) != 0 {
			t.Errorf("%d wait, faults %v", len(g.received), faults)
		}
	})
}

// TestPushedBytesAreCounted checks the counted bytes after random pushes and turns of the loop.
func TestPushedBytesAreCounted(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g, _ := pushReader(10)
		g.received = make(chan announcement, 3)
		var waiting int64
		for range rapid.IntRange(0, 30).Draw(t, "events") {
			if rapid.Bool().Draw(t, "loop") {
				g.receiveWaiting(func(a announcement) { waiting -= int64(len(a.payload)) })
				continue
			}
			a := announcement{author: identity.ID{byte(rapid.IntRange(0, 3).Draw(t, "member"))}, payload: make([]byte, rapid.IntRange(0, 1<<20).Draw(t, "size"))}
			before, fits := len(g.received), g.waiting.Take(a.author, len(a.payload))
			if fits {
				g.waiting.Free(a.author, len(a.payload))
			}
			g.pass(a)
			if fits && len(g.received) > before {
				waiting += int64(len(a.payload))
			}
			if got := g.waiting.Used(); got != waiting {
				t.Fatalf("%d bytes are counted, %d wait", got, waiting)
			}
		}
	})
}

// TestEarlyResultsTakeBoundedMemory checks that one member cannot fill the memory for early results.
func TestEarlyResultsTakeBoundedMemory(t *testing.T) {
	var states roundStates
	early := func(member byte, size int) {
		states.keepEarly(announcement{author: identity.ID{member}, result: wire.ResultAnnouncement{Step: 5}, payload: make([]byte, size)}, 5)
	}
	for range maxEarlyEach {
		early(1, exchange.MaxPushed)
	}
	early(2, exchange.MaxPushed)
	if want := maxPushedEach + exchange.MaxPushed; states.earlyBytes != want || len(states.early) != maxEarlyEach+1 {
		t.Errorf("%d bytes of %d early results, want %d", states.earlyBytes, len(states.early), want)
	}
	if states.early[maxEarlyEach].payload == nil {
		t.Error("the second member's result is dropped")
	}
}
