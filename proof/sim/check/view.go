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

// Run is the fixed data about a run for a Checker.
type Run struct {
	View
	Plan     *scenario.Plan
	Cast     *cast.Cast
	Registry *signatures.Registry
	Redo     func(s *coordinator.State, r follow.Record) error // applies a record to a state
}

// View is a Checker's view of a running run.
type View interface {
	Now() int64           // virtual time
	Healed() bool         // faults have stopped
	Forked() bool         // the host shows two histories
	Client(i int) Client  // a running client, or nil
	HasEnded(i int) bool  // it runs, and its node has left the run
	End()                 // the run is over
	Violate(v *Violation) // an assertion is violated
	Note(kind byte, a, b uint64, text func() string)
}

// Client is a Checker's view of a running client.
type Client interface {
	Member() *cast.Member
	Replica() (hash [32]byte, step uint32, ok bool)
	Model() (digest [32]byte, step uint32, ok bool)
}

// Host is a Checker's view of the host of its history.
type Host interface {
	State() *coordinator.State   // current state
	Base() *coordinator.State    // state on the disk
	Start(step uint32) wire.Head // of the log at the start of a round
	Log() *follow.Follower
	Connected(i int) bool
	Holds() bool // it has recently started and waits for clients to reconnect
	Idle() bool  // it runs, and is not writing
	// Replay reads the disk.
	Replay() (log *follow.Follower, actions []disk.Signature, err error)
}
