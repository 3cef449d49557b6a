package server

import (
	"time"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/core/coordinator"
)

// EventKind says what happened at a server.
type EventKind string

// The kinds of events.
const (
	EventConnected    EventKind = "connected"
	EventDisconnected EventKind = "disconnected"
	EventAccepted     EventKind = "accepted"   // an action
	EventRefused      EventKind = "refused"    // an action, or a connection whose key is known
	EventTransition   EventKind = "transition" // of the run state
	EventCommitted    EventKind = "committed"  // the journal, with at least one record
)

// Event is something that happened at a server, for logs and faces.
type Event struct {
	Kind   EventKind
	RunID  string           // empty for a connection that named no run of this server
	Client identity.ID      // zero for transitions
	Remote string           // address, of connections
	Action string           // name, of actions
	Code   coordinator.Code // of refused actions
	Reason string           // of refused and ended connections
	Took   time.Duration    // of what was committed
	Phase                   // of the run: as the clients see it, for connections
}

// Phase is how far a run is.
type Phase struct {
	RunState coordinator.RunState
	Epoch    uint32
	Step     uint32
}
