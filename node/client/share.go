package client

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/node/exchange"
)

// share sends this client's result to the members, and calls shared when gossip announces it. It pushes
// a small result to each member together with the announcement, and gossips the announcement only after
// the pushes. Otherwise members would request bytes that are already in transit. For a result that is
// too large, or not worth the time on this client's link, it only gossips the announcement. round is
// the time in which this client made the result.
func (g *gossipReader) share(raw, payload []byte, members []identity.ID, round time.Duration, shared func()) {
	announce := func() {
		shared()
		g.publish(raw)
	}
	pushed, some := g.pusher.members(members, len(payload), round)
	if len(pushed) == 0 {
		announce()
		return
	}
	limit := g.pusher.wait(len(payload) * len(pushed))
	if some {
		limit = pushGrace // the other members wait
	}
	wait, done := g.tasks.Signal()
	g.tasks.Spawn(func(ctx context.Context) func() {
		late, took := g.push(ctx, raw, payload, pushed)
		return func() {
			g.pusher.finished(pushed, len(payload), late, took)
			done()
		}
	})
	g.tasks.Spawn(func(ctx context.Context) func() {
		ctx, cancel := g.tasks.WithTimeout(ctx, limit)
		defer cancel()
		_ = wait(ctx)
		return announce
	})
}

// push pushes this client's result to all members concurrently. It returns which of them did not
// have it after requestTimeout, and how long half of them took; 0 means that fewer than half got
// it.
func (g *gossipReader) push(ctx context.Context, raw, payload []byte, members []identity.ID) (late []bool, took time.Duration) {
	ctx, cancel := g.tasks.WithTimeout(ctx, requestTimeout)
	defer cancel()
	late = make([]bool, len(members))
	request := exchange.EncodePush(raw, payload)
	begun, half := g.tasks.Now(), int32(len(members)+1)/2
	var reached atomic.Int32
	_ = g.tasks.Each(ctx, len(members), len(members), func(ctx context.Context, i int) error {
		err := exchange.Push(ctx, g.network, members[i], request)
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
