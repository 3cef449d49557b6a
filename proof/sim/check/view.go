package check

import (
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/proof/sim/cast"
	"github.com/psyche-go/psyche/proof/sim/disk"
	"github.com/psyche-go/psyche/proof/sim/scenario"
	"github.com/psyche-go/psyche/proof/sim/signatures"
	"github.com/psyche-go/psyche/record/follow"
	"github.com/psyche-go/psyche/record/wire"
)

// Run is what a checker knows of its run beside what it is told of it.
type Run struct {
	View
	Plan     *scenario.Plan
	Cast     *cast.Cast
	Registry *signatures.Registry
	Redo     func(s *coordinator.State, r follow.Record) error // does to a state what a record did
}

// View is what a checker sees of a run as it goes on.
type View interface {
	Now() int64           // virtual time
	Healed() bool         // faults have stopped
	Forked() bool         // the host shows two histories
	Client(i int) Client  // one that runs; nil: it does not
	HasEnded(i int) bool  // it runs, and its node has left the run
	End()                 // the run is over
	Violate(v *Violation) // an assertion is broken
	Note(kind byte, a, b uint64, text func() string)
}

// Client is what a checker sees of a client that runs.
type Client interface {
	Member() *cast.Member
	Replica() (hash [32]byte, step uint32, ok bool)
	Model() (digest [32]byte, step uint32, ok bool)
}

// Host is what a checker sees of the host whose history it checks.
type Host interface {
	State() *coordinator.State   // as it is
	Base() *coordinator.State    // as the disk has it
	Records() uint64             // number of the newest in the log
	Start(step uint32) wire.Head // of the log at the start of a round
	Connected(i int) bool
	Holds() bool                                                         // it has started lately and waits for clients to be back
	Idle() bool                                                          // it runs, and writes nothing
	Replay() (log *follow.Follower, actions []disk.Signature, err error) // of what the disk has
}
