package solana

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/psyche-go/psyche/chain/transaction"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/record/follow"
	"github.com/psyche-go/psyche/record/wire"
)

// isDone reports whether a refusal means that the action was already applied.
func isDone(err error) bool {
	return errors.Is(err, coordinator.ErrStaleNonce) || errors.Is(err, coordinator.ErrDuplicate)
}

// Submit sends an action and waits until it is on the chain; see package backend. It refuses
// actions that the rules refuse in the known state, at no cost. If only a grant admits the key of a
// Join, Submit first sends an Admit.
func (c *Client) Submit(ctx context.Context, a coordinator.Action) error {
	if _, joins := a.(coordinator.Join); joins {
		if err := c.enter(ctx); err != nil {
			return fmt.Errorf("submit %s: admission by a grant: %w", follow.ActionName(a), err)
		}
	}
	if err := c.submit(ctx, a); err != nil {
		return fmt.Errorf("submit %s: %w", follow.ActionName(a), err)
	}
	return nil
}

func (c *Client) submit(ctx context.Context, a coordinator.Action) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stop := context.AfterFunc(c.ctx, func() { cancel(context.Cause(c.ctx)) })
	defer stop()
	if err := context.Cause(c.ctx); err != nil {
		return err
	}
	// Goroutines that wait to send into a channel do so in order.
	select {
	case c.turn <- struct{}{}:
		defer func() { <-c.turn }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if err := context.Cause(ctx); err != nil {
		return err
	}
	id := coordinator.ClientID(c.key)
	state, nonce := c.mirror()
	if err := state.Apply(id, nonce, a); err != nil {
		return err
	}
	o, err := c.orderOf(ctx, &state, nonce, a)
	if err != nil {
		return err
	}
	o.landed = func() bool { return c.nonceOf(id) == nonce }
	o.changed = c.onChange
	slot, err := c.deliver(ctx, o)
	poke(c.wake)
	if err != nil {
		return err
	}
	c.mu.Lock()
	c.own = append(c.own, ownAction{nonce, slot, a})
	if len(c.own) > maxOwn {
		c.own = slices.Delete(c.own, 0, 1)
	}
	c.mu.Unlock()
	return nil
}

// mirror returns the state with all accepted actions of this client, and the next nonce. If a later
// state lacks such an action, the action was rolled back.
func (c *Client) mirror() (coordinator.State, uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	state := c.view.state.Clone()
	id := coordinator.ClientID(c.key)
	c.own = slices.DeleteFunc(c.own, func(own ownAction) bool { return own.slot <= c.view.slot })
	for _, own := range c.own {
		_ = state.Apply(id, own.nonce, own.action) // refused if the state already has it
	}
	c.nonce++
	return state, c.nonce
}

// nonceOf returns the newest nonce of a key in the agreed state.
func (c *Client) nonceOf(id coordinator.ClientID) uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return lastNonce(c.view.state, id)
}

// orderOf makes the instructions of an action. An action that makes a tick due includes the tick,
// which saves a signature. state includes the action.
func (c *Client) orderOf(ctx context.Context, state *coordinator.State, nonce uint64, a coordinator.Action) (order, error) {
	encoded := wire.AppendAction(nil, a)
	o := order{name: fmt.Sprintf("%T", a), units: actUnits}
	if _, large := a.(coordinator.UpdateConfig); large {
		if err := c.stage(ctx, c.program, c.run, encoded[1:]); err != nil {
			return order{}, fmt.Errorf("stage the configuration: %w", err)
		}
		o.instructions = []transaction.Instruction{c.program.ActStaged(c.run, c.key, nonce, encoded[0], encoded[1:])}
		return o, nil
	}
	o.instructions = []transaction.Instruction{c.program.Act(c.run, c.key, nonce, encoded)}
	switch a := a.(type) {
	case coordinator.Equivocation:
		o.instructions = c.program.ActProven(c.run, c.key, nonce, encoded)
	case coordinator.Admit:
		o.instructions = []transaction.Instruction{c.program.ActGranted(c.run, c.key, transaction.PublicKey(a.Grant), nonce, encoded)}
	}
	c.mu.Lock()
	now := time.Now()
	armed, slot := c.view.armed, c.clock.slot(now)
	ticks := tickPlan(state, c.clock.now(now), armed, slot)
	c.mu.Unlock()
	if ticks == 0 && endsPhase(a) && c.priceFor(ctx, &o, 0) == 0 {
		ticks = 1
	}
	with := c.withTicks(o, ticks)
	if _, err := transaction.Compile(c.key, transaction.Hash{}, append([]transaction.Instruction{
		transaction.ComputeUnitLimit(0), transaction.ComputeUnitPrice(0),
	}, with.instructions...)...); err == nil {
		return with, nil
	}
	return o, nil
}

// endsPhase reports whether all members send an action of this kind at about the same time, so that
// the last action ends the phase. The members do not know which action is last. Therefore every
// member includes a tick. While no transaction pays a price for compute units, a futile tick is
// free.
func endsPhase(a coordinator.Action) bool {
	switch a.(type) {
	case coordinator.Ready, coordinator.WitnessRound, coordinator.ReportCheckpoint:
		return true
	}
	return false
}

// withTicks appends ticks to an order.
func (c *Client) withTicks(o order, ticks int) order {
	o.instructions = slices.Clone(o.instructions)
	units := c.unitsOfTick()
	for range ticks {
		o.instructions = append(o.instructions, c.program.Tick(c.run, nil))
		o.units = min(o.units+units, maxUnits)
	}
	return o
}

// unitsOfTick returns the compute limit of a tick.
func (c *Client) unitsOfTick() uint32 {
	c.mu.Lock()
	defer c.mu.Unlock()
	if config := c.view.state.Config; config.SharesBySpeed || config.RetryLost {
		return shareUnits
	}
	return tickUnits
}
