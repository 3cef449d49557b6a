package client

import (
	"context"
	"time"

	"github.com/psyche-go/psyche/assign"
	"github.com/psyche-go/psyche/coordinator"
	"github.com/psyche-go/psyche/identity"
	"github.com/psyche-go/psyche/wire"
	"golang.org/x/sync/errgroup"
)

// Runtime is what a client runs on: its clock and its tasks. The one that a Node has by
// itself is the wall clock and goroutines; package sim has one in which time is virtual
// and everything happens in an order that a seed decides.
type Runtime interface {
	Now() time.Time
	WithCancel(parent context.Context) (context.Context, context.CancelFunc)
	WithTimeout(parent context.Context, d time.Duration) (context.Context, context.CancelFunc)
	// Run runs a task beside the loop and hands what it returns to the loop.
	Run(task func() (proceed func()))
	// Each calls do for every index below count, at most limit at once, inside a task. It
	// returns the first error after all have returned; the context of do ends with it.
	Each(ctx context.Context, limit, count int, do func(ctx context.Context, i int) error) error
}

// Announcements signs what a client announces and opens what its peers announced.
type Announcements interface {
	Sign(a wire.ResultAnnouncement) []byte
	// Open verifies the signature first. It is called from any goroutine.
	Open(raw []byte) (identity.ID, wire.ResultAnnouncement, error)
}

// Draws says who does what in a round. It is a function of the round and of the run's
// configuration; package sim has one that works a round out once for all its clients.
type Draws interface {
	// Assignments returns the batches of the round; nobody modifies them.
	Assignments(r *coordinator.Round, c coordinator.Config) []assign.Assignment
	// Elected reports whether a member of the round witnesses it.
	Elected(r *coordinator.Round, c coordinator.Config, member int) bool
}

// drawn is the Draws of packages coordinator and assign.
type drawn struct{}

func (drawn) Assignments(r *coordinator.Round, c coordinator.Config) []assign.Assignment {
	return r.Assignments(c)
}

func (drawn) Elected(r *coordinator.Round, c coordinator.Config, member int) bool {
	return assign.IsWitness(r.Seed, len(r.Members), int(c.WitnessNodes), member)
}

// goroutines is the Runtime of a Node that runs by itself.
type goroutines struct{ node *Node }

func (goroutines) Now() time.Time { return time.Now() }

func (goroutines) WithCancel(parent context.Context) (context.Context, context.CancelFunc) {
	return context.WithCancel(parent)
}

func (goroutines) WithTimeout(parent context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(parent, d)
}

func (g goroutines) Run(task func() (proceed func())) {
	g.node.tasks.Go(func() { g.node.post(task()) })
}

func (goroutines) Each(ctx context.Context, limit, count int, do func(ctx context.Context, i int) error) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(limit)
	for i := range count {
		group.Go(func() error { return do(ctx, i) })
	}
	return group.Wait()
}

// signed is the Announcements of package wire.
type signed struct{ *Options }

func (s signed) Sign(a wire.ResultAnnouncement) []byte { return wire.SignAnnouncement(s.Key, a) }

func (s signed) Open(raw []byte) (identity.ID, wire.ResultAnnouncement, error) {
	return wire.OpenAnnouncement(raw, s.RunID)
}
