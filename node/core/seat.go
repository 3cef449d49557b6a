package core

import (
	"bytes"
	"fmt"
	"slices"
	"time"

	"github.com/psyche-go/psyche/core/coordinator"
)

// Events of the seat.
type (
	// Began is the first event after the first Seen. Secret is the secret of the commitments of the member.
	Began struct{ Secret [32]byte }

	// Look compares the member's seat with the models that it has. The caller repeats it after every
	// other event.
	Look struct {
		Trainer
		Replica *Replica // nil: none
	}

	// Checked is the result of a Check.
	Checked struct {
		ID        ID
		Err       error
		Cancelled bool
	}

	// Prepared means that a member has a replica of the epoch that Warmup prepares.
	Prepared struct {
		Batch, Tokens bool // the batch of a rehearsal is known; its tokens are here
	}

	// Entered means that the member got a replica of the running epoch.
	Entered struct{}

	// Lost means that the member has lost its replica, or its model.
	Lost struct{}

	// Left means that nothing is left to do before the member withdraws.
	Left struct{}
)

// Reports about the seat.
type (
	// Joined means that the host accepted a Join.
	Joined struct{ Epoch uint32 }

	// IsReady means that the host accepted a Ready.
	IsReady struct{ Epoch uint32 }

	// Returned means that the member is back in an epoch. Asked means that the host accepted a Return.
	Returned struct {
		Epoch uint32
		Asked bool
	}
)

func (Began) event()    {}
func (Look) event()     {}
func (Checked) event()  {}
func (Prepared) event() {}
func (Entered) event()  {}
func (Lost) event()     {}
func (Left) event()     {}

func (Joined) report()   {}
func (IsReady) report()  {}
func (Returned) report() {}

// seat decides when a client asks for a seat, fills it, takes it back and gives it up.
type seat struct {
	asked      bool                   // this process has asked for a seat, with a Join or a Return
	again      bool                   // the next entry is a return: the model was lost, or the process restarted
	joinedWith coordinator.Checkpoint // the run's checkpoint at the newest accepted Join
	acked      time.Time              // when the newest accepted Join was sent, until a state shows it
	check      *check                 // newest check; nil: none yet
	missing    missing                // the run's newest model, while it is not available

	joining joining // newest submitted Join
	returns bool    // value of again when the newest Return was submitted
}

// joining describes a submitted Join.
type joining struct {
	sent time.Time
	of   coordinator.Checkpoint // the run's checkpoint at that time
}

// check is a check for a definition of the run.
type check struct {
	id         ID
	definition []byte
	fromPeers  bool // the model was to come from members; checked again if the run falls back to its initial one
	passed     bool
}

// begin determines whether the run knew this client before.
func (s *seat) begin(c *common) {
	s.again = find(c.state.Epoch.Clients, c.ID) != nil || find(c.state.Epoch.Exited, c.ID) != nil || c.waits() != nil
}

// look joins if the client has no seat, or has a seat that it cannot fill. In the latter case, joining
// gives that seat up and asks for one in the next epoch.
func (s *seat) look(c *common, r *returning, e Look) {
	if c.Leave.Begun() {
		return
	}
	waits := c.waits()
	if waits != nil {
		if s.acked = (time.Time{}); s.fills(c, e, waits) {
			return
		}
	} else if !s.needed(c, r, e) {
		return
	}
	if s.missing.awaits(c, e.Held != nil || e.Replica != nil) {
		if waits != nil && waits.HoldsModel { // the run relies on a model that this client lost when it was killed
			leave := coordinator.Withdraw{Client: c.ID}
			c.submit(withdrawKind, leave, leave)
		}
		return
	}
	if c.now.Sub(s.acked) < SubmitTimeout || !s.checked(c) {
		return
	}
	s.join(c)
}

// fills reports whether a client that waits for the next epoch can keep its seat.
func (s *seat) fills(c *common, e Look, waits *coordinator.Client) bool {
	run := c.state.Model.Checkpoint
	// The coordinator relies on pending clients that claimed to hold the model. The held model may be
	// from an epoch that was rolled back, so that the run does not continue from it.
	held := e.Held != nil && !run.FromPeers()
	if waits.HoldsModel && !held && e.Replica == nil && !c.Holdings.Checkpoint(c.state) {
		return false
	}
	// The run may have recorded a newer model of this client since it joined.
	if !waits.HoldsModel && s.joinedWith != run && c.Holdings.Newest(c.state).Step > waits.HoldsEarlier {
		return false
	}
	return c.commitments.opens(waits, c.state.Progress.Epoch)
}

// needed reports whether a client that does not wait for the next epoch needs a seat.
func (s *seat) needed(c *common, r *returning, e Look) bool {
	member := c.isMember()
	switch c.state.RunState {
	case coordinator.Finished, coordinator.Uninitialized:
		return false
	case coordinator.Warmup:
		me, ok := c.state.Member(c.ID) // a member fetches the model, even after a restart
		return !ok || !member || !c.commitments.opens(me, c.state.Progress.Epoch)
	case coordinator.WaitingForMembers, coordinator.Paused:
		return true
	case coordinator.Cooldown: // the run would wait for a client that cannot report the epoch's model
		return !member || e.Replica == nil && (e.Held == nil || e.Held.Step != c.state.Progress.Step-1)
	}
	if !member {
		return !r.maySit(c, e.Replica)
	}
	return e.Replica == nil && !e.loaded(c) && !r.possible(c)
}

// checked reports whether a check has shown that this client can do its part in the run's current
// definition, and starts the check if necessary. The client is checked before it joins, because the
// other members would wait for a client that cannot do its part.
func (s *seat) checked(c *common) bool {
	if !c.Checks {
		return true
	}
	definition, fromPeers := c.state.Model.Definition, c.state.Model.Checkpoint.FromPeers()
	if k := s.check; k != nil && bytes.Equal(k.definition, definition) && (k.fromPeers == fromPeers || k.passed && fromPeers) {
		return k.passed
	}
	if s.check != nil {
		c.Jobs.Drop(s.check.id)
	}
	s.check = &check{id: c.start(Check{}), definition: definition, fromPeers: fromPeers}
	return false
}

// done handles the result of a check.
func (s *seat) done(c *common, e Checked) {
	switch {
	case !c.Jobs.Done(e.ID), e.Cancelled:
	case e.Err != nil:
		c.ready.Fail = fmt.Errorf("check before joining the run: %w", e.Err)
	default:
		s.check.passed = true
	}
}

// join asks for a seat in the next epoch.
func (s *seat) join(c *common) {
	epoch := c.state.Progress.Epoch
	s.asked = true
	action := coordinator.Join{
		Epoch: epoch, Commitment: c.commitments.commitment(epoch, c.now), Holds: c.Holdings.Newest(c.state).Digest, Name: c.Name,
	}
	if c.submit(joinKind, action, action) {
		s.joining = joining{c.now, c.state.Model.Checkpoint}
	}
}

// prepared sends Ready until the state shows it.
func (s *seat) prepared(c *common) {
	me, ok := c.state.Member(c.ID)
	if !ok || c.Leave.Begun() || slices.Contains(c.state.Epoch.Ready, c.ID) {
		return
	}
	if ready, ok := c.commitments.ready(me, c.state.Progress.Epoch, c.now); ok { // otherwise it joins again
		c.submit(readyKind, EpochOf(c.state), ready)
	}
}

// sitDown takes the member's seat in the running epoch back, once it is free. A member that may not do
// that gives its replica up.
func (s *seat) sitDown(c *common, r *returning, e SitDown) {
	if !r.maySit(c, e.Replica) {
		if e.Replica != nil && !c.isMember() {
			c.ready.Desynchronise = "dropped from the epoch"
		}
		return
	}
	if c.Leave.Begun() || find(c.state.Epoch.Exited, c.ID) == nil {
		return // the seat is freed when the running round ends
	}
	s.asked = true
	again := s.again
	if c.submit(returnKind, c.state.Progress.Step, coordinator.Return{Epoch: c.state.Progress.Epoch}) {
		s.returns = again
	}
}

// entered records that the member got a replica of the running epoch.
func (s *seat) entered(c *common) {
	if s.again && c.isMember() {
		s.again = false
		c.report(Returned{Epoch: c.state.Progress.Epoch})
	}
}

// accepted handles an action that the host accepted.
func (s *seat) accepted(c *common, action coordinator.Action) {
	switch a := action.(type) {
	case coordinator.Join:
		s.joinedWith = s.joining.of
		s.acked = s.joining.sent // not the present time, because a suspended process may read the answer much later
		c.report(Joined{a.Epoch})
	case coordinator.Ready:
		c.report(IsReady{a.Epoch})
	case coordinator.Return:
		if s.returns && !s.again {
			return // the state already showed the seat before the host's answer arrived, and entered reported it
		}
		s.again = false
		c.report(Returned{a.Epoch, true})
	}
}

// left withdraws the client, if it has a seat, or has asked for one. It is the client's last action.
func (s *seat) left(c *common) {
	if s.asked || c.state != nil && (c.isMember() || c.waits() != nil) {
		c.ready.Submit = append(c.ready.Submit, Submission{withdrawKind, coordinator.Withdraw{Client: c.ID}})
	}
}
