package blob

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/net/p2p"
	"github.com/psyche-go/psyche/net/p2p/p2ptest"
)

// trial describes an attempt: the times since it began, since the request was sent (0 if not yet)
// and since its first bytes arrived, and the number of bytes received.
type trial struct {
	holder               *holderState
	begun, asked, coming time.Duration
	seen                 uint64
}

// watched makes a download check its attempts once. It returns the reason for which each attempt
// was cancelled, or nil if the attempt continues.
func watched(node *p2p.Node, pending []span, holders []*holderState, trials ...trial) (why []error) {
	d := &download{
		node: node, s: NewStore(1 << 20), into: &partial{}, pending: pending, holders: holders,
		active: make(map[*attempt]struct{}),
	}
	d.s.holders.wait = time.Millisecond
	now := time.Now()
	var ends []context.Context
	for _, h := range holders {
		h.active = 0
	}
	for _, t := range trials {
		ctx, cancel := context.WithCancelCause(context.Background())
		a := &attempt{
			holder: t.holder, span: span{0, maxRange}, cancel: cancel, seen: t.seen,
			started: now.Add(-t.begun), moved: now, first: now.Add(-t.coming),
		}
		a.done.Store(t.seen)
		if t.asked > 0 {
			a.requestedAfter.Store(int64(t.begun - t.asked))
		}
		t.holder.active++
		d.active[a] = struct{}{}
		ends = append(ends, ctx)
	}
	d.watch()
	for _, ctx := range ends {
		why = append(why, context.Cause(ctx))
	}
	return why
}

// TestOnlySlowerAttemptsLoseTheirRange checks which attempts lose their range. A holder that sends
// only a few bytes a second loses its range to a holder that was briefly silent, but only once, so
// that a fetch ends. A silent holder loses its range even to a slow holder. No holder counts as
// stalled before the request is sent.
func TestOnlySlowerAttemptsLoseTheirRange(t *testing.T) {
	const ms = time.Millisecond
	node := p2ptest.Node(t, "joiner")
	more := []span{{maxRange, maxRange}}
	late := func(slow, silent, out bool) *holderState {
		return &holderState{id: identity.ID{1}, slow: slow, silent: silent, out: out}
	}
	for _, test := range []struct {
		name    string
		pending []span
		other   *holderState
		slow    bool // whether the asked holder counts as slow
		trial   trial
		want    error
	}{
		{"sends little, the other was silent", nil, late(false, true, false), false, trial{begun: 2000 * ms, asked: 2000 * ms, coming: 1500 * ms, seen: groupSize}, errPreempted},
		{"the same with more to fetch", more, late(false, true, false), false, trial{begun: 2000 * ms, asked: 2000 * ms, coming: 1500 * ms, seen: groupSize}, errPreempted},
		{"the other was slow", more, late(true, false, false), false, trial{begun: 2000 * ms, asked: 2000 * ms, coming: 1500 * ms, seen: groupSize}, errPreempted},
		{"the asked holder is slow already", more, late(false, true, false), true, trial{begun: 2000 * ms, asked: 2000 * ms, coming: 1500 * ms, seen: groupSize}, nil},
		{"the other is out", nil, late(false, true, true), false, trial{begun: 2000 * ms, asked: 2000 * ms, coming: 1500 * ms, seen: groupSize}, nil},
		{"sends enough", nil, late(false, true, false), false, trial{begun: 2000 * ms, asked: 2000 * ms, coming: 1500 * ms, seen: 8 * groupSize}, nil},
		{"is silent beside a slow one", nil, late(true, false, false), false, trial{begun: 900 * ms, asked: 600 * ms}, errPreempted},
		{"is silent beside a silent one", nil, late(false, true, false), false, trial{begun: 900 * ms, asked: 600 * ms}, nil},
		{"was silent, and may take its time", nil, late(false, false, false), true, trial{begun: 4500 * ms, asked: 2500 * ms}, nil},
		{"is not asked yet", nil, late(false, false, false), false, trial{begun: 900 * ms}, nil},
		{"cannot be asked", nil, late(false, false, false), false, trial{begun: 3500 * ms}, errSlow},
	} {
		test.trial.holder = &holderState{id: identity.ID{2}, slow: test.slow}
		why := watched(node, test.pending, []*holderState{test.trial.holder, test.other}, test.trial)
		if !errors.Is(why[0], test.want) || (why[0] == nil) != (test.want == nil) {
			t.Errorf("%s: %v, want %v", test.name, why[0], test.want)
		}
	}
	h := &holderState{id: identity.ID{2}}
	why := watched(node, nil, []*holderState{h, late(false, true, false)},
		trial{h, 2000 * ms, 2000 * ms, 1500 * ms, groupSize}, trial{h, 100 * ms, 100 * ms, 50 * ms, groupSize})
	if !errors.Is(why[0], errPreempted) || !errors.Is(why[1], errPreempted) {
		t.Errorf("the holder keeps its other range: %v", why)
	}
}

// TestSilenceClearsTheMeasuredRate checks that a silence clears the measured rate of a fast holder,
// which may have gone.
func TestSilenceClearsTheMeasuredRate(t *testing.T) {
	var b book
	node, id := p2ptest.Node(t, "joiner"), identity.ID{1}
	for _, test := range []struct {
		delivery
		known bool
	}{
		{delivery{bytes: 1 << 20, took: time.Second}, true},
		{delivery{took: 2 * time.Second, silent: true}, false},
		{delivery{bytes: 1 << 20, took: time.Second}, true},
	} {
		b.acquire(node, id)
		b.release(node, id, test.delivery)
		if rate := b.rate(id); (rate > 0) != test.known {
			t.Errorf("after %+v: rate %v", test.delivery, rate)
		}
	}
}

// TestConnectingCountsAsAnswerTime checks that connecting counts as a part of the answer time if a
// range needs no separate connection.
func TestConnectingCountsAsAnswerTime(t *testing.T) {
	joiner := p2ptest.Node(t, "joiner")
	silent, err := net.ListenPacket("udp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = silent.Close() })
	gone := p2ptest.Key("gone").ID()
	joiner.SetMembers([]p2p.Peer{{ID: gone, Addrs: []string{"/ip4/127.0.0.1/udp/" + port(silent) + "/quic-v1"}}})
	for size, want := range map[uint64]bool{groupSize: true, bulkSize: false} {
		asked := false
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		from := source{node: joiner, holder: gone, bulk: size >= bulkSize, asked: func() { asked = true }}
		err := from.read(ctx, size, span{0, size}, nil, nil)
		cancel()
		if err == nil || asked != want {
			t.Errorf("%d bytes: asked: %v, %v", size, asked, err)
		}
	}
}

func port(c net.PacketConn) string {
	_, port, _ := net.SplitHostPort(c.LocalAddr().String())
	return port
}
