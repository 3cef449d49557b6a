package core

import (
	"time"

	"github.com/psyche-go/psyche/core/coordinator"
)

// Reason is the reason why a client with a seat is idle.
type Reason uint8

const (
	NotWaiting Reason = iota
	ForMembers        // the run needs more clients
	ForHolder         // no connected client has the run's model, and newcomers cannot continue without it
	ForModel          // as ForHolder; after a time, the run continues from an older model
	ForResume         // the run is paused
	ForEpoch          // the client becomes a member in the next epoch
)

// Waiting means that a client with a seat is idle. It is reported when it changes.
type Waiting struct {
	Reason     Reason
	Have, Want int    // members
	Model      uint32 // step of the run's model
	Until      uint64 // Unix time in milliseconds; 0: unknown
}

func (Waiting) report() {}

// waitingPause is the minimum time between two reports about waiting, however fast clients come
// and go.
const waitingPause = time.Second

// waiting decides when to report that the client is idle.
type waiting struct {
	newest Waiting // reported last
	at     time.Time
}

// look reports what the client waits for, if that has changed. The report about joining comes first.
func (w *waiting) look(c *common) {
	if c.Actions.isFlying(joinKind) {
		return
	}
	switch next := c.waitsFor(); {
	case next == w.newest:
	case next.Reason == NotWaiting:
		w.newest = next
	case c.now.Sub(w.at) >= waitingPause:
		w.newest, w.at = next, c.now
		c.report(next)
	}
}

// waitsFor returns the reason for which the client is idle.
func (c *common) waitsFor() Waiting {
	s := c.state
	if !c.isMember() && c.waits() == nil {
		return Waiting{}
	}
	switch s.RunState {
	case coordinator.WaitingForMembers:
		if have, want := len(s.Pending), int(s.Config.InitMinClients); have < want {
			return Waiting{Reason: ForMembers, Have: have, Want: want}
		}
		if s.WaitsForMember() {
			return Waiting{Reason: ForHolder, Model: s.Model.Checkpoint.Step}
		}
		if until := s.AwaitsModelUntil(); until > 0 {
			return Waiting{Reason: ForModel, Model: s.Model.Checkpoint.Step, Until: until}
		}
	case coordinator.Paused:
		return Waiting{Reason: ForResume}
	case coordinator.Warmup, coordinator.RoundTrain, coordinator.RoundWitness, coordinator.Cooldown:
		if !c.isMember() {
			return Waiting{Reason: ForEpoch, Until: c.epochEnd()}
		}
	}
	return Waiting{}
}

// epochEnd returns the time after which the running epoch has two more rounds, or 0 if a number of
// rounds ends the epoch.
func (c *common) epochEnd() uint64 {
	if c.state.Config.EpochTime == 0 {
		return 0
	}
	return c.state.Epoch.StartTime + c.state.Config.EpochTime
}
