package solana

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/psyche-go/psyche/chain/rpc"
	"github.com/psyche-go/psyche/core/coordinator"
)

// tickRepeats is how often a tick is resent before another tick is sent.
const tickRepeats = 4

// tick pays for ticks in this client's turn, and when earlier clients missed their turns.
func (c *Client) tick() {
	var l lookout
	for c.ctx.Err() == nil {
		v, changed := c.now()
		v.since = l.since(&v)
		r, ok := rank(v.state, coordinator.ClientID(c.key), v.claim.sequence)
		var at time.Time
		if ok {
			jitter := time.Duration(rand.Int64N(int64(c.pace.Turn)/4 + 1))
			if r == 0 {
				jitter = 0
			}
			c.mu.Lock()
			at, ok = nextTick(&v, c.clock, r, time.Now(), c.pace, jitter)
			c.mu.Unlock()
		}
		if !c.sleep(l.at(&v, at), ok, changed) {
			continue // the view changed, or the client ends
		}
		ticks, wait, looked := c.peek(&v)
		if !l.note(&v, r, looked, time.Now(), wait) {
			continue
		}
		if ticks > 0 {
			l.again = time.Now().Add(tickRepeats * c.pace.Repeat)
			c.running.Go(func() { c.sendTick(v, ticks, r == 0) })
		}
	}
}

// sleep waits until at, if ok, or until a change. It reports whether at came first.
func (c *Client) sleep(at time.Time, ok bool, changed <-chan struct{}) bool {
	var alarm <-chan time.Time
	if ok {
		timer := time.NewTimer(time.Until(at))
		defer timer.Stop()
		alarm = timer.C
	}
	select {
	case <-alarm:
		return true
	case <-changed:
	case <-c.ctx.Done():
	}
	return false
}

// peek reads the newest processed state of the endpoints and returns the number of useful ticks.
// The processed state is the first to show a tick that another client has just sent. If ticks is 0,
// wait is the time until the next call. looked is false if no endpoint answers.
func (c *Client) peek(v *view) (ticks int, wait time.Duration, looked bool) {
	ctx, cancel := context.WithTimeout(c.ctx, c.pace.Repeat)
	defer cancel()
	wait = c.pace.Status
	for _, e := range c.trusted(0) {
		if e.Resting() {
			continue
		}
		o := c.lookAt(ctx, slices.Index(c.pool.Endpoints(), e), true, rpc.Processed)
		if o.sighting == nil || o.sample == nil || o.sighting.sequence < v.claim.sequence {
			continue // it is behind, so its armed slot is outdated
		}
		if o.sighting.claim != v.claim {
			poke(c.wake)
			return 0, wait, true
		}
		if o.sighting.armed != v.armed {
			poke(c.wake)
			if o.sighting.armed < v.armed || v.armed != 0 {
				continue
			}
			return 0, wait, true
		}
		return tickPlan(v.state, o.sample.unix, v.armed, o.sample.slot), wait, true
	}
	return 0, wait, false
}

// sendTick sends ticks until the state changes.
func (c *Client) sendTick(v view, ticks int, inTurn bool) {
	o := c.withTicks(order{name: "tick", ticks: true, inTurn: inTurn}, ticks)
	o.instructions[0] = c.program.Tick(c.run, salt())
	o.pointless = func() bool {
		now, _ := c.now()
		return now.claim != v.claim || now.armed != v.armed
	}
	o.changed = c.onChange
	err := c.bring(c.ctx, o)
	if err != nil && c.ctx.Err() == nil && !o.pointless() {
		c.logger.Warn("cannot advance the run", "error", err)
	}
	poke(c.wake)
}

// Tick pays for ticks until nothing is due any more, independently of turns. It is for authorities
// of a run without participants.
func (c *Client) Tick(ctx context.Context) error {
	for {
		v, changed := c.now()
		if c.isBehind() {
			poke(c.wake)
		} else {
			ticks, _, _ := c.peek(&v)
			if ticks == 0 && !c.isDue(&v) {
				return nil
			}
			if err := c.tickNow(ctx, ticks); err != nil {
				return fmt.Errorf("tick: %w", err)
			}
		}
		timer := time.NewTimer(c.pace.Fetch)
		select {
		case <-timer.C:
		case <-changed:
		case <-ctx.Done():
		case <-c.ctx.Done():
		}
		timer.Stop()
		if err := errors.Join(context.Cause(ctx), context.Cause(c.ctx)); err != nil {
			return fmt.Errorf("tick: %w", err)
		}
	}
}

// isBehind reports whether the known state may lack an action of this client that landed.
func (c *Client) isBehind() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.ContainsFunc(c.own, func(own ownAction) bool { return own.slot > c.view.slot })
}

// isDue reports whether a tick is due, including a tick that waits for its draw.
func (c *Client) isDue(v *view) bool {
	now := notBefore(v.state, c.chainTime(time.Now()))
	due, ok := v.state.Due(now)
	return ok && due <= now
}

// tickNow sends ticks, if any.
func (c *Client) tickNow(ctx context.Context, ticks int) error {
	if ticks == 0 {
		return nil
	}
	o := c.withTicks(order{name: "tick", ticks: true}, ticks)
	o.instructions[0] = c.program.Tick(c.run, salt())
	o.changed = c.onChange
	poke(c.wake)
	return c.bring(ctx, o)
}
