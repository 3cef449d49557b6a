package client

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/node/exchange"
)

// Limits of pushed results. Pushes of one result to all members have at most maxPushedInAll bytes in
// total, which take a tenth of a second at 20 Mbit/s. Gossip announces the result pushGrace after the
// expected end of the pushes. The client expects them to take as long as its last pushes, or as long
// as at pushRate if that is longer.
const (
	maxPushedInAll = 256 << 10
	pushGrace      = 250 * time.Millisecond
	pushRate       = 125_000 // bytes per second
)

// pushPause is the number of results that this client does not push to a member after a push to it took
// longer than requestTimeout. On a link of 0.25 Mbit/s, such a push only delays the transfer that the
// member starts after the announcement.
const pushPause = 16

// pusher tracks the success of pushes. Only the loop uses it.
type pusher struct {
	paused map[identity.ID]int // number of next results that are not pushed to a member
	took   time.Duration       // time until half of the members had the newest pushed result; 0: unknown
}

// members returns the members that the next result is pushed to.
func (p *pusher) members(all []identity.ID) []identity.ID {
	reached := make([]identity.ID, 0, len(all))
	for _, id := range all {
		if p.paused[id] == 0 {
			reached = append(reached, id)
		}
	}
	for id := range p.paused {
		if p.paused[id]--; p.paused[id] == 0 {
			delete(p.paused, id)
		}
	}
	return reached
}

// finished records which members did not get a result in time.
func (p *pusher) finished(members []identity.ID, late []bool, took time.Duration) {
	p.took = took
	for i, id := range members {
		if !late[i] {
			continue
		}
		if p.paused == nil {
			p.paused = make(map[identity.ID]int)
		}
		p.paused[id] = pushPause
	}
}

// isBack ends the pause of pushes to a member that was away.
func (p *pusher) isBack(id identity.ID) { delete(p.paused, id) }

// wait returns the delay before gossip announces a result whose pushes have total bytes.
func (p *pusher) wait(total int) time.Duration {
	return pushGrace + max(time.Duration(total)*time.Second/pushRate, p.took)
}

// share sends this client's result to the members. It pushes a small result to each member together
// with the announcement, and gossips the announcement only after the pushes. Otherwise members would
// request bytes that are already in transit. For a larger result, it only gossips the announcement.
func (g *gossipReader) share(raw, payload []byte, members []identity.ID) {
	if len(payload) > exchange.MaxPushed || len(payload)*len(members) > maxPushedInAll {
		g.publish(raw)
		return
	}
	if members = g.pusher.members(members); len(members) == 0 {
		g.publish(raw)
		return
	}
	limit := g.pusher.wait(len(payload) * len(members))
	wait, done := g.tasks.Signal()
	g.tasks.Spawn(func(ctx context.Context) func() {
		late, took := g.push(ctx, raw, payload, members)
		return func() {
			g.pusher.finished(members, late, took)
			done()
		}
	})
	g.tasks.Spawn(func(ctx context.Context) func() {
		ctx, cancel := g.tasks.WithTimeout(ctx, limit)
		defer cancel()
		_ = wait(ctx)
		return func() { g.publish(raw) }
	})
}

// push pushes this client's result to all members concurrently. It returns which of them did not
// have it after requestTimeout, and how long half of them took; 0 means that fewer than half got
// it.
func (g *gossipReader) push(ctx context.Context, raw, payload []byte, members []identity.ID) (late []bool, took time.Duration) {
	ctx, cancel := g.tasks.WithTimeout(ctx, requestTimeout)
	defer cancel()
	late = make([]bool, len(members))
	begun, half := g.tasks.Now(), int32(len(members)+1)/2
	var reached atomic.Int32
	_ = g.tasks.Each(ctx, len(members), len(members), func(ctx context.Context, i int) error {
		err := exchange.Push(ctx, g.network, members[i], raw, payload)
		if err != nil {
			late[i] = errors.Is(ctx.Err(), context.DeadlineExceeded)
			g.log.Debug("cannot push this client's result", "to", members[i].Short(), "err", err)
		} else if reached.Add(1) == half {
			took = g.tasks.Now().Sub(begun)
		}
		return nil
	})
	return late, took
}
