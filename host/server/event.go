package server

import (
	"time"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/core/coordinator"
)

// EventKind is the kind of an Event.
type EventKind string

// The kinds of events.
const (
	EventConnected    EventKind = "connected"
	EventDisconnected EventKind = "disconnected"
	EventAccepted     EventKind = "accepted"   // an action
	EventRefused      EventKind = "refused"    // an action, or a connection with a known key
	EventTransition   EventKind = "transition" // of the run state
	EventCommitted    EventKind = "committed"  // the journal, with at least one record
)

// Event is an event of a server, for logs and user interfaces.
type Event struct {
	Kind   EventKind
	RunID  string           // empty for a connection that named no run of this server
	Client identity.ID      // zero for transitions
	Remote string           // address; for connections
	Action string           // name; for actions
	Code   coordinator.Code // for refused actions
	Reason string           // for refused and ended connections
	Took   time.Duration    // duration of the commit
	Phase                   // of the run; for connections, as clients see it
}

// Phase is the progress of a run.
type Phase struct {
	RunState coordinator.RunState
	Epoch    uint32
	Step     uint32
}
