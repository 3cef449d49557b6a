package env

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/core/assign"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/record/wire"
)

// Runtime provides the clock and the tasks of a client. The default Runtime of a Node uses the wall
// clock and goroutines. Package sim has one with virtual time and an order of events that a seed
// determines.
type Runtime interface {
	Now() time.Time
	WithCancel(parent context.Context) (context.Context, context.CancelFunc)
	WithTimeout(parent context.Context, d time.Duration) (context.Context, context.CancelFunc)
	// Run runs a task concurrently with the loop and passes the returned function to the loop.
	Run(task func() (proceed func()))
	// Signal returns two functions. wait blocks until tell is called, or returns an error if ctx is
	// done first; tasks call it. The loop calls tell, at most once.
	Signal() (wait func(ctx context.Context) error, tell func())
	// Each calls do for every index below count, with at most limit calls at the same time. Only
	// tasks call Each. It returns the first error after all calls have returned. The context of do
	// ends with the first error.
	Each(ctx context.Context, limit, count int, do func(ctx context.Context, i int) error) error
}

// Announcements signs this client's announcements, and verifies and decodes its peers'
// announcements.
type Announcements interface {
	Sign(a wire.ResultAnnouncement) []byte
	// Open verifies the signature for the run with that hash before it decodes anything. It is
	// called from any goroutine.
	Open(raw []byte, run [32]byte) (identity.ID, wire.ResultAnnouncement, error)
	// Prove returns the proof that the author of two announcements, which Open has verified, signed
	// two results of one batch. ok is false if they prove nothing.
	Prove(first, second []byte) (proof coordinator.Equivocation, ok bool)
}

// Draws determines the roles in a round. It is a function of the round and of the run's
// configuration. Package sim has an implementation that computes the roles of a round once for all
// simulated clients.
type Draws interface {
	// Assignments returns the batches of the round. The caller must not modify them.
	Assignments(r *coordinator.Round, c coordinator.Config) []assign.Assignment
	// Elected reports whether a member of the round is a witness of it.
	Elected(r *coordinator.Round, c coordinator.Config, member int) bool
}

// Drawn is the implementation of Draws with packages coordinator and assign.
type Drawn struct{}

// Assignments implements Draws.
func (Drawn) Assignments(r *coordinator.Round, c coordinator.Config) []assign.Assignment {
	return r.Assignments(c)
}

// Elected implements Draws.
func (Drawn) Elected(r *coordinator.Round, c coordinator.Config, member int) bool {
	return assign.IsWitness(r.Seed, len(r.Members), int(c.WitnessNodes), member)
}

// Signed is the implementation of Announcements with package wire, for one key.
type Signed struct{ Key identity.Key }

// Sign implements Announcements.
func (s Signed) Sign(a wire.ResultAnnouncement) []byte { return wire.SignAnnouncement(s.Key, a) }

// Open implements Announcements.
func (Signed) Open(raw []byte, run [32]byte) (identity.ID, wire.ResultAnnouncement, error) {
	return wire.OpenAnnouncement(raw, run)
}

// Prove implements Announcements.
func (Signed) Prove(first, second []byte) (coordinator.Equivocation, bool) {
	return wire.NewEquivocation(first, second)
}

// Tasks starts slow work of a client concurrently with its loop.
type Tasks struct {
	Runtime
	Work context.Context // context of all tasks; set before the first one

	disk atomic.Int64 // number of tasks that are waiting for a disk
}

// AtDisk runs do inside a task and records that this task only waits for a disk. A client that shuts
// down does not wait long for such a task, because the disk may never answer.
func (t *Tasks) AtDisk(do func() error) error {
	t.disk.Add(1)
	defer t.disk.Add(-1)
	return do()
}

// WaitForDisk returns the number of tasks that are waiting for a disk.
func (t *Tasks) WaitForDisk() int64 { return t.disk.Load() }

// Spawn runs a task concurrently with the loop. The loop then runs the function that the task
// returned.
func (t *Tasks) Spawn(task func(ctx context.Context) func()) {
	t.Run(func() func() { return task(t.Work) })
}
