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

// Runtime is what a client runs on: its clock and its tasks. The one that a Node has by
// itself is the wall clock and goroutines; package sim has one in which time is virtual
// and everything happens in an order that a seed decides.
type Runtime interface {
	Now() time.Time
	WithCancel(parent context.Context) (context.Context, context.CancelFunc)
	WithTimeout(parent context.Context, d time.Duration) (context.Context, context.CancelFunc)
	// Run runs a task beside the loop and hands what it returns to the loop.
	Run(task func() (proceed func()))
	// Signal returns a wait that lasts until tell was called, or until its context is done,
	// which is an error. Wait is called inside a task, tell in the loop, once or not at all.
	Signal() (wait func(ctx context.Context) error, tell func())
	// Each calls do for every index below count, at most limit at once, inside a task. It
	// returns the first error after all have returned; the context of do ends with it.
	Each(ctx context.Context, limit, count int, do func(ctx context.Context, i int) error) error
}

// Announcements signs what a client announces and opens what its peers announced.
type Announcements interface {
	Sign(a wire.ResultAnnouncement) []byte
	// Open verifies the signature, for the run of that hash, before it reads anything. It is
	// called from any goroutine.
	Open(raw []byte, run [32]byte) (identity.ID, wire.ResultAnnouncement, error)
	// Prove makes the proof of two announcements that Open has verified that their author signed
	// two results of one batch; ok is false where they prove nothing.
	Prove(first, second []byte) (proof coordinator.Equivocation, ok bool)
}

// Draws says who does what in a round. It is a function of the round and of the run's
// configuration; package sim has one that works a round out once for all its clients.
type Draws interface {
	// Assignments returns the batches of the round; nobody modifies them.
	Assignments(r *coordinator.Round, c coordinator.Config) []assign.Assignment
	// Elected reports whether a member of the round witnesses it.
	Elected(r *coordinator.Round, c coordinator.Config, member int) bool
}

// Drawn is the Draws of packages coordinator and assign.
type Drawn struct{}

// Assignments implements Draws.
func (Drawn) Assignments(r *coordinator.Round, c coordinator.Config) []assign.Assignment {
	return r.Assignments(c)
}

// Elected implements Draws.
func (Drawn) Elected(r *coordinator.Round, c coordinator.Config, member int) bool {
	return assign.IsWitness(r.Seed, len(r.Members), int(c.WitnessNodes), member)
}

// Signed is the Announcements of package wire, for one key.
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

// Tasks starts what takes time beside the loop of a client.
type Tasks struct {
	Runtime
	Work context.Context // of everything that is started; set before anything is

	disk atomic.Int64 // tasks that wait for a disk
}

// AtDisk does what waits for a disk in a task that needs nothing else meanwhile: a client that ends does not wait
// for it as long as for other tasks, since the disk may never answer.
func (t *Tasks) AtDisk(do func() error) error {
	t.disk.Add(1)
	defer t.disk.Add(-1)
	return do()
}

// WaitForDisk returns how many tasks wait for a disk.
func (t *Tasks) WaitForDisk() int64 { return t.disk.Load() }

// Spawn runs a task beside the loop and the function it returns in the loop.
func (t *Tasks) Spawn(task func(ctx context.Context) func()) {
	t.Run(func() func() { return task(t.Work) })
}
