package client

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/node/clienttest"
	"github.com/psyche-go/psyche/node/env"
	"github.com/psyche-go/psyche/node/exchange"
)

// pushLink is a network on which all pushes share the uplink evenly. Members may have slow
// downlinks.
type pushLink struct {
	env.Network
	rate float64                 // of the uplink, in bytes/s
	slow map[identity.ID]float64 // downlinks of members, in bytes/s

	mu        sync.Mutex
	active    int
	begun     int     // number of pushes
	sent      float64 // bytes
	published time.Time
	announced int // number of announced results
}

func (l *pushLink) Request(ctx context.Context, to identity.ID, _ string, request []byte, _ int) ([]byte, error) {
	l.mu.Lock()
	l.active++
	l.begun++
	l.mu.Unlock()
	defer func() { l.mu.Lock(); l.active--; l.mu.Unlock() }()
	const dt = 10 * time.Millisecond
	for left := float64(len(request)); left > 0; {
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(dt):
		}
		l.mu.Lock()
		rate := l.rate / float64(l.active)
		if own, ok := l.slow[to]; ok {
			rate = min(rate, own)
		}
		left -= rate * dt.Seconds()
		l.sent += rate * dt.Seconds()
		l.mu.Unlock()
	}
	return nil, nil
}

func (l *pushLink) Publish(context.Context, []byte) error {
	l.published = time.Now()
	return nil
}

// share makes a gossipReader share a result, and waits until all transfers have ended. It returns
// the number of pushes that began, the number of pushed bytes, and the time until gossip announced
// the result.
func (l *pushLink) share(g *gossipReader, posts chan func(), size int, members []identity.ID) (pushes int, sent float64, announced time.Duration) {
	l.begun, l.sent = 0, 0
	begun := time.Now()
	g.share([]byte("announcement"), make([]byte, size), members, time.Second, func() { l.announced++ })
	for {
		select {
		case proceed := <-posts:
			proceed()
		case <-time.After(20 * time.Second):
			return l.begun, l.sent, l.published.Sub(begun)
		}
	}
}

// TestPushesOnSlowLinks shares results over fast and slow links. A push that cannot finish in time
// is not started again soon, and gossip announces the result at once. Gossip does not announce a
// result that is arriving. Large results are pushed to all members only if this takes at most a quarter
// of the time in which they are made.
func TestPushesOnSlowLinks(t *testing.T) {
	const slow = 250_000 / 8 // bytes/s
	var members []identity.ID
	for i := range 15 {
		members = append(members, clienttest.Key(i+1).ID())
	}
	const large = 470_000 // bytes of a result of configs/quickstart
	for _, test := range []struct {
		name        string
		members     int // 0: all
		rate        float64
		downlink    float64 // of the first member; 0: no limit
		size        int
		pushes      [3]int        // started pushes for the first, the second and the last result
		least, most time.Duration // until gossip announces the second and the later results
	}{
		{name: "fast", rate: 10e6, size: 17_000, pushes: [3]int{15, 15, 15}, most: 100 * time.Millisecond},
		{name: "slow, small results", rate: slow, size: 4_000, pushes: [3]int{15, 15, 15}, least: 1900 * time.Millisecond, most: 2500 * time.Millisecond},
		{name: "slow", rate: slow, size: 17_000, pushes: [3]int{15, 0, 15}},
		{name: "a member on a slow link", rate: 10e6, downlink: 2000, size: 17_000, pushes: [3]int{15, 14, 15}, most: 100 * time.Millisecond},
		{name: "large results, 100 Mbit/s", members: 2, rate: 12.5e6, size: large, pushes: [3]int{2, 2, 2}, least: 70 * time.Millisecond, most: 100 * time.Millisecond},
		{name: "large results, 20 Mbit/s", members: 2, rate: 2.5e6, size: large, pushes: [3]int{2, 0, 2}},
		{name: "large results, 0.25 Mbit/s", members: 2, rate: slow, size: large, pushes: [3]int{2, 0, 0}},
		{name: "large results, 15 members at 100 Mbit/s", rate: 12.5e6, size: large, pushes: [3]int{4, 0, 4}},
		{name: "large results, 15 members at 1 Gbit/s", rate: 125e6, size: large, pushes: [3]int{4, 15, 15}, most: 200 * time.Millisecond},
		{name: "large results, a member on a slow link", members: 4, rate: 125e6, downlink: 2000, size: large, pushes: [3]int{4, 3, 4}, most: 100 * time.Millisecond},
		{name: "too large", rate: 125e6, size: exchange.MaxPushed + 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				members := members
				if test.members > 0 {
					members = members[:test.members]
				}
				link := &pushLink{rate: test.rate, slow: map[identity.ID]float64{}}
				if test.downlink > 0 {
					link.slow[members[0]] = test.downlink
				}
				tasks := &env.Tasks{Work: t.Context()}
				runtime := newGoroutines(tasks)
				tasks.Runtime = runtime
				g := &gossipReader{tasks: tasks, network: link, log: slog.New(slog.DiscardHandler)}
				var begun []int
				var at []time.Duration
				for range pushPause + 2 {
					pushes, _, announced := link.share(g, runtime.posts, test.size, members)
					begun, at = append(begun, pushes), append(at, announced)
				}
				got := [3]int{begun[0], begun[1], begun[pushPause+1]}
				if later := at[1 : pushPause+1]; got != test.pushes || slices.Min(later) < test.least || slices.Max(later) > test.most {
					t.Errorf("pushes %v, announced after %v", begun, at)
				}
				if link.announced != pushPause+2 {
					t.Errorf("%d of %d results are announced", link.announced, pushPause+2)
				}
			})
		})
	}
}

// TestPushesAreTriedLessOften checks that a client on a slow link tries large pushes ever less often, and as
// often as before once they are fast.
func TestPushesAreTriedLessOften(t *testing.T) {
	const size = 470_000
	members := []identity.ID{clienttest.Key(1).ID(), clienttest.Key(2).ID()}
	var p pusher
	took, late := requestTimeout, make([]bool, len(members))
	result := func() bool {
		reached, _ := p.members(members, size, 10*time.Second)
		if len(reached) > 0 {
			p.finished(reached, size, late, took)
		}
		return len(reached) > 0
	}
	var tries []int
	for n := range 500 {
		if result() {
			tries = append(tries, n)
		}
	}
	if want := []int{0, 17, 50, 115, 244}; !slices.Equal(tries, want) {
		t.Errorf("tried for the results %v, want %v", tries, want)
	}
	took = 10 * time.Millisecond
	for range 2 * pushPause << maxPushPauses {
		result()
	}
	if !result() || p.pauses != 0 {
		t.Errorf("results are not pushed on a fast link, after %d pauses", p.pauses)
	}
}

// TestRefusingMembersDoNotPreventPushes checks that members that refuse all pushes at once prevent the
// measurement of the time only until other members are tried.
func TestRefusingMembersDoNotPreventPushes(t *testing.T) {
	const size, refusing = 470_000, 4
	var members []identity.ID
	for i := range 15 {
		members = append(members, clienttest.Key(i+1).ID())
	}
	var p pusher
	for result := range 3 {
		reached, some := p.members(members, size, 10*time.Second)
		if len(reached) == len(members) && !some && result > 0 {
			return
		}
		took := 50 * time.Millisecond
		if slices.Contains(members[:refusing], reached[0]) {
			took = 0
		}
		p.finished(reached, size, make([]bool, len(reached)), took)
	}
	t.Error("results are not pushed to all members")
}
