package client

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/node/core"
	"github.com/psyche-go/psyche/node/env"
	"github.com/psyche-go/psyche/record/event"
)

// seat manages this client's seat in the run.
type seat struct {
	greeted  bool                   // the client has seen a state
	origin   origin                 // the model that the run trains
	told     coordinator.Checkpoint // the run's checkpoint at the newest accepted Join
	acked    time.Time              // when the newest accepted Join was sent, until a state shows it
	asked    bool                   // this process has joined
	again    bool                   // the next entry is a return: the model was lost, or the process restarted
	check    *runCheck              // newest check; nil: none yet
	waiting  waiting                // reason for waiting that was logged last
	afterRun afterRun               // after the end of the run
	leaving  leaving                // graceful leave
	holds    holdings               // models that it can load by itself
	missing  missingModel           // the run's newest model, while it is not available
	rejoin   *rejoin                // return to a running epoch
	reveals  reveals                // for the draws of the run
}

// runCheck is the result of CheckRun for a definition of the run.
type runCheck struct {
	task       core.ID
	definition []byte
	fromPeers  bool // the model was to come from members; checked again if the run falls back to its initial one
	passed     bool
}

// keepSeat joins if the client has no seat, or has a seat that it cannot fill. In the latter case,
// joining gives that seat up and asks for one in the next epoch.
func (n *Node) keepSeat() {
	s := n.run.state
	if n.seat.leaving.begun() {
		return
	}
	i := slices.IndexFunc(s.Pending, n.run.is)
	if i >= 0 {
		n.seat.acked = time.Time{}
		// The coordinator relies on pending clients that claimed to hold the model. The held model
		// may be from an epoch that was rolled back, so that the run does not continue from it.
		held := n.models.Held != nil && !s.Model.Checkpoint.FromPeers()
		holds := !s.Pending[i].HoldsModel || held || n.rounds.replica != nil || n.seat.holds.checkpoint()
		if holds && !n.seat.holds.moreThan(&s.Pending[i], n.seat.told) && n.seat.reveals.opens(&s.Pending[i], s.Progress.Epoch) {
			return
		}
	} else if !n.needsSeat() {
		return
	}
	if n.waitsForHolder() {
		if i >= 0 && s.Pending[i].HoldsModel { // the run relies on a model that this client lost when it was killed
			leave := coordinator.Withdraw{Client: n.run.myself()}
			n.actions.submit("withdraw", leave, leave, func() {})
		}
		return
	}
	if n.tasks.Now().Sub(n.seat.acked) < submitTimeout || !n.seat.checked(n.run.definition(), &n.engine, n.CheckRun, n.fail) {
		return
	}
	epoch := s.Progress.Epoch
	join := coordinator.Join{Epoch: epoch, Commitment: n.seat.reveals.commitment(epoch, n.tasks.Now()), Holds: n.seat.holds.newest().Digest, Name: n.Name}
	n.seat.asked = true
	sent, of := n.tasks.Now(), s.Model.Checkpoint
	n.actions.submit("join", join, join, func() {
		n.seat.told = of
		n.seat.acked = sent // not the present time, because a suspended process may read the answer much later
		n.report.log.Info("joined", "epoch", epoch)
		n.report.emit(event.Joined{Epoch: epoch})
	})
}

// needsSeat reports whether the client has no usable seat.
func (n *Node) needsSeat() bool {
	switch n.run.state.RunState {
	case coordinator.Finished, coordinator.Uninitialized:
		return false
	case coordinator.Warmup:
		member, ok := n.run.state.Member(n.run.myself()) // a member fetches the model, even after a restart
		return !ok || !n.run.isMember() || !n.seat.reveals.opens(member, n.run.state.Progress.Epoch)
	case coordinator.WaitingForMembers, coordinator.Paused:
		return true // not pending, see keepSeat
	case coordinator.Cooldown: // the run would wait for a client that cannot report the epoch's model
		m := n.models.Held
		return !n.run.isMember() || n.rounds.replica == nil && (m == nil || m.Step != n.run.state.Progress.Step-1)
	default:
		return !n.run.isMember() && !n.seat.rejoin.mayTakeSeat(&n.run, n.rounds.replica) || n.run.isMember() && n.rounds.replica == nil && !n.engine.holds(n.models.Models, n.run.definition()) && !n.seat.rejoin.possible(&n.run, n.rounds.replica)
	}
}

// checked reports whether a check has shown that this client can do its part in the run's current
// definition, and starts the check if necessary. The client is checked before it joins, because the
// other members would wait for a client that cannot do its part.
func (s *seat) checked(run env.Definition, e *engine, check func(context.Context, env.Definition) error, fail func(error)) bool {
	if check == nil {
		return true
	}
	fromPeers := run.Checkpoint.FromPeers()
	if c := s.check; c != nil && bytes.Equal(c.definition, run.Definition) && (c.fromPeers == fromPeers || c.passed && fromPeers) {
		return c.passed
	}
	if s.check != nil {
		e.Drop(s.check.task)
	}
	c := &runCheck{definition: run.Definition, fromPeers: fromPeers}
	s.check = c
	c.task = spawn(e.tasks, &e.Jobs, core.Check{}, func(ctx context.Context) failure {
		return failure{check(ctx, run), ctx.Err() != nil}
	}, func(f failure) {
		switch {
		case f.cancelled:
		case f.err != nil:
			fail(fmt.Errorf("check before joining the run: %w", f.err))
		default:
			c.passed = true
		}
	}, nil)
	return false
}

// withdraw reports to the coordinator that the client leaves. It is the client's last action.
func (n *Node) withdraw(ctx context.Context) {
	if !n.seat.asked && !n.run.hasSeat() {
		return
	}
	ctx, cancel := n.tasks.WithTimeout(context.WithoutCancel(ctx), n.WithdrawTimeout)
	defer cancel()
	if err := n.Backend.Submit(ctx, coordinator.Withdraw{Client: n.run.myself()}); err != nil {
		n.report.log.Debug("withdraw", "err", err)
	}
}

// reportWaiting logs what this client waits for, if that has changed.
func (s *seat) reportWaiting(v *view, e *submitter, log *slog.Logger) {
	if !e.flying("join") { // the log line about joining comes first
		s.waiting = s.waiting.said(v.waitsFor(), e.tasks.Now(), log)
	}
}
