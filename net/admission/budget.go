package admission

import (
	"context"
	"net"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
)

// memberPause is the pause after which a member no longer counts as using the budget.
const memberPause = time.Second

// Budget limits the rate at which all connections together use a resource. If the budget runs
// short, connections take turns, site by site as in Turns. Members do not wait for other clients'
// turns.
type Budget struct {
	limiter *rate.Limiter
	rest    *rate.Limiter             // additional limit of other clients while members use the budget; nil: none
	taken   atomic.Pointer[time.Time] // time of a member's newest take, with the monotonic clock; nil: none

	members, others *Turns
}

// NewBudget returns a budget of perSecond in the long term, with bursts of burst.
func NewBudget(perSecond float64, burst int) *Budget {
	return &Budget{limiter: rate.NewLimiter(rate.Limit(perSecond), burst), members: NewTurns(1), others: NewTurns(1)}
}

// NewReservedBudget is like NewBudget, but reserves most of the budget for members: while members
// use the budget, other clients get only 1/share of it.
func NewReservedBudget(perSecond float64, burst, share int) *Budget {
	b := NewBudget(perSecond, burst)
	b.rest = rate.NewLimiter(rate.Limit(perSecond/float64(share)), max(1, burst/share))
	return b
}

// Take waits until the budget has n units for a connection of a non-member. n must not exceed the
// burst. If ctx ends, Take returns the cause of ctx.
func (b *Budget) Take(ctx context.Context, remote net.Addr, n int) error {
	if err := b.others.Wait(ctx, remote); err != nil {
		return err
	}
	defer b.others.Done()
	for left := n; left > 0 && b.rest != nil && b.membersTake(); {
		piece := min(left, b.rest.Burst())
		if err := wait(ctx, b.rest, piece); err != nil {
			return err
		}
		left -= piece
	}
	return wait(ctx, b.limiter, n)
}

// TakeFirst is like Take, for a member's connection.
func (b *Budget) TakeFirst(ctx context.Context, remote net.Addr, n int) error {
	b.take()
	if err := b.members.Wait(ctx, remote); err != nil {
		return err
	}
	defer b.members.Done()
	defer b.take()
	return wait(ctx, b.limiter, n)
}

// take records that a member takes from the budget.
func (b *Budget) take() {
	now := time.Now()
	b.taken.Store(&now)
}

// membersTake reports whether members are currently using the budget.
func (b *Budget) membersTake() bool {
	taken := b.taken.Load()
	return b.members.Crowded() || taken != nil && time.Since(*taken) < memberPause
}

func wait(ctx context.Context, limiter *rate.Limiter, n int) error {
	if err := limiter.WaitN(ctx, n); err != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	} else if err != nil {
		return err
	}
	return nil
}
