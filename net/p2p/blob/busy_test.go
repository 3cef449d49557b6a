package blob

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"sync/atomic"
	"testing"
	"time"

	"lukechampine.com/blake3"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/net/p2p"
	"github.com/psyche-go/psyche/net/p2p/p2ptest"
)

// hog opens the maximum number of streams of one member to a holder and sends the request on each.
// If answered is set, it reads one byte of the first answer only, because all streams share the
// limit of unread bytes of their connection.
func hog(t *testing.T, from, holder *p2p.Node, bulk bool, request []byte, answered bool) {
	t.Helper()
	open := from.OpenStream
	if bulk {
		open = from.OpenBulk
	}
	for i := range servesPerPeer {
		s, err := open(testContext(t), holder.ID(), Protocol)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.Reset() })
		if _, err := s.Write(request); err != nil {
			t.Fatal(err)
		}
		if !answered || i > 0 {
			continue
		}
		if _, err := io.ReadFull(s, make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
	}
}

// TestHogsDoNotLockOutAMember checks that four members that take all slots of a holder and leave
// them idle do not lock out an honest member. The honest member does not blame the holder.
func TestHogsDoNotLockOutAMember(t *testing.T) {
	large, small := payload(maxRange), payload(8)
	hash := Hash(blake3.Sum256(large))
	ask := request{hash, 0, maxRange}.encode()
	tests := []struct {
		name     string
		bulk     bool
		request  []byte
		answered bool
	}{
		{"one byte of a request", false, ask[:1], false},
		{"one byte of a request on bulk connections", true, ask[:1], false},
		{"one byte of an answer", false, ask, true},
		{"one byte of an answer on bulk connections", true, ask, true},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			holder, honest := p2ptest.Node(t, "holder"), p2ptest.Node(t, "honest")
			members := []*p2p.Node{holder, honest}
			for i := range servesTotal / servesPerPeer {
				members = append(members, p2ptest.Node(t, fmt.Sprint("hog ", i)))
			}
			p2ptest.Connect(t, members...)
			Serve(holder, holding(large, small))
			for _, from := range members[2:] {
				hog(t, from, holder, test.bulk, test.request, test.answered)
			}
			time.Sleep(200 * time.Millisecond) // until the streams have arrived
			for _, data := range [][]byte{small, large} {
				got, err := Fetch(testContext(t), honest, NewStore(1<<30), blake3.Sum256(data), uint64(len(data)), p2ptest.IDs(holder))
				if err != nil || !bytes.Equal(got, data) {
					t.Fatalf("got %d of %d bytes, %v", len(got), len(data), err)
				}
			}
			if score := honest.Score(holder.ID()); score != 0 {
				t.Errorf("score of the holder: %v", score)
			}
		})
	}
}

// TestSlotsAreMoreThanAThird checks that a third of the members of the largest run cannot fill all
// slots with one slot each.
func TestSlotsAreMoreThanAThird(t *testing.T) {
	if servesTotal <= 256/3 {
		t.Errorf("%d slots", servesTotal)
	}
}

// TestBusyHolderIsAskedAgain checks that a holder without a free slot is asked again, on both kinds
// of connections.
func TestBusyHolderIsAskedAgain(t *testing.T) {
	t.Parallel()
	for _, size := range []int{groupSize, 4 * bulkSize} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			t.Parallel()
			nodes := p2ptest.New(t, "holder", "a")
			data := payload(size)
			never := p2p.StreamLimits{PerPeer: 0, Total: 1, Timeout: p2ptest.Wait}
			nodes[0].HandleBulk(Protocol, never, func(context.Context, identity.ID, p2p.Stream) error { return nil })
			timer := time.AfterFunc(3500*time.Millisecond, func() { Serve(nodes[0], holding(data)) })
			defer timer.Stop()
			got, err := Fetch(testContext(t), nodes[1], NewStore(1<<30), blake3.Sum256(data), uint64(size), p2ptest.IDs(nodes[0]))
			if err != nil || !bytes.Equal(got, data) {
				t.Errorf("got %d of %d bytes, %v", len(got), size, err)
			}
			if score := nodes[1].Score(nodes[0].ID()); score != 0 {
				t.Errorf("score of the holder: %v", score)
			}
		})
	}
}

// TestRepeatedHangingUpIsAFailure checks that closing the stream counts as busy only a few times.
// After that the holder is asked in a way that lets it report busy, and an answer without that
// report is a failure.
func TestRepeatedHangingUpIsAFailure(t *testing.T) {
	t.Parallel()
	nodes := p2ptest.New(t, "holder", "a")
	var asked atomic.Int64
	limits := p2p.StreamLimits{PerPeer: servesPerPeer, Total: servesTotal, Timeout: p2ptest.Wait, Request: requestSize}
	nodes[0].HandleBulk(Protocol, limits, func(context.Context, identity.ID, p2p.Stream) error {
		asked.Add(1)
		return errors.New("no answer")
	})
	data := payload(4 * bulkSize)
	_, err := Fetch(testContext(t), nodes[1], NewStore(1<<30), blake3.Sum256(data), uint64(len(data)), p2ptest.IDs(nodes[0]))
	if failed, ok := errors.AsType[*fetchError](err); !ok || len(failed.Failures) != 1 {
		t.Errorf("error %v", err)
	}
	if got := asked.Load(); got != maxHangUps+maxStrikes {
		t.Errorf("asked %d times, want %d", got, maxHangUps+maxStrikes)
	}
}
