package admission

import (
	"context"
	"net"
	"net/netip"
	"slices"
	"sync"

	"golang.org/x/time/rate"
)

// Budget bounds what all connections together may have of something in a second. When it runs
// short, those who wait get it in turns, one address after the other, so that many connections of
// some addresses cost the others little.
type Budget struct {
	limiter *rate.Limiter

	mu      sync.Mutex
	taken   bool // somebody has the turn
	waiting map[netip.Prefix][]chan struct{}
	turns   []netip.Prefix // of which somebody waits, the next one first
}

// NewBudget returns a budget of so much a second in the long term, and so much at once.
func NewBudget(perSecond float64, burst int) *Budget {
	return &Budget{limiter: rate.NewLimiter(rate.Limit(perSecond), burst), waiting: make(map[netip.Prefix][]chan struct{})}
}

// Take waits until there are n for a connection; n is at most the burst. The error is why ctx
// ended.
func (b *Budget) Take(ctx context.Context, remote net.Addr, n int) error {
	if err := b.waitForTurn(ctx, Network(remote)); err != nil {
		return err
	}
	defer b.pass()
	if err := b.limiter.WaitN(ctx, n); err != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	} else if err != nil {
		return err
	}
	return nil
}

// waitForTurn returns when nobody else has the turn.
func (b *Budget) waitForTurn(ctx context.Context, from netip.Prefix) error {
	b.mu.Lock()
	if !b.taken {
		b.taken = true
		b.mu.Unlock()
		return nil
	}
	turn := make(chan struct{})
	if len(b.waiting[from]) == 0 {
		b.turns = append(b.turns, from)
	}
	b.waiting[from] = append(b.waiting[from], turn)
	b.mu.Unlock()
	select {
	case <-turn:
		return nil
	case <-ctx.Done():
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if i := slices.Index(b.waiting[from], turn); i >= 0 {
		b.forget(from, i)
	} else {
		b.passTurn() // it came at the same moment
	}
	return context.Cause(ctx)
}

// forget removes one that does not wait any more. The caller holds mu.
func (b *Budget) forget(from netip.Prefix, i int) {
	if b.waiting[from] = slices.Delete(b.waiting[from], i, i+1); len(b.waiting[from]) == 0 {
		delete(b.waiting, from)
		b.turns = slices.DeleteFunc(b.turns, func(p netip.Prefix) bool { return p == from })
	}
}

func (b *Budget) pass() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.passTurn()
}

// passTurn gives the turn to the longest waiting connection of the next address. The caller holds
// mu and the turn.
func (b *Budget) passTurn() {
	if len(b.turns) == 0 {
		b.taken = false
		return
	}
	from := b.turns[0]
	turn := b.waiting[from][0]
	if b.turns = b.turns[1:]; len(b.waiting[from]) > 1 {
		b.turns = append(b.turns, from)
		b.waiting[from] = b.waiting[from][1:]
	} else {
		delete(b.waiting, from)
	}
	close(turn)
}
