package client

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/node/env"
	"github.com/psyche-go/psyche/record/event"
)

// seat is the client's way into the run.
type seat struct {
	greeted bool                   // a state was seen
	origin  origin                 // the model that the run trains
	told    coordinator.Checkpoint // newest for which a Join said which model is held
	acked   time.Time              // when the Join was sent that was accepted and that no state shows yet
	asked   bool                   // this process asked for a place
	again   bool                   // the next entry is a return: the model was lost, or the process restarted
	check   *runCheck              // newest; nil: none yet
	waiting waiting                // as it was logged last
	parting parting                // when the run is finished
	leaving leaving                // by itself
	holds   holdings               // by itself
	lacking lacking                // the run's newest model, when it is not to be had
	rejoin  *rejoin                // into a running epoch
	reveals reveals                // for the draws of the run
}

// runCheck is what CheckRun says of a definition of the run.
type runCheck struct {
	definition []byte
	handed     bool // members had the model; a run can fall back to the one that it began with
	passed     bool
}

// keepSeat joins when the client has no place in the run, or has one that it cannot
// fill: then joining gives the place up and asks for one in the next epoch.
func (n *Node) keepSeat() {
	s := n.run.state
	if n.seat.leaving.begun() {
		return
	}
	i := slices.IndexFunc(s.Pending, n.run.is)
	if i >= 0 {
		n.seat.acked = time.Time{}
		// The coordinator counts on pending clients that it believes to hold the model.
		// A model of an epoch that the run fell behind is none that it can go on from.
		held := n.models.Held != nil && !s.Model.Checkpoint.FromPeers()
		holds := !s.Pending[i].HoldsModel || held || n.rounds.replica != nil || n.seat.holds.checkpoint()
		if holds && !n.seat.holds.moreThan(&s.Pending[i], n.seat.told) && n.seat.reveals.opens(&s.Pending[i], s.Progress.Epoch) {
			return
		}
	} else if !n.needsSeat() {
		return
	}
	if n.waitsForHolder() {
		if i >= 0 && s.Pending[i].HoldsModel { // an epoch would count on this client: it was killed before the model was on its disk
			leave := coordinator.Withdraw{Client: n.run.myself()}
			n.actions.submit("withdraw", leave, leave, func() {})
		}
		return
	}
	if n.tasks.Now().Sub(n.seat.acked) < submitTimeout || !n.seat.checked(n.run.definition(), n.tasks, n.CheckRun, n.fail) {
		return
	}
	epoch := s.Progress.Epoch
	join := coordinator.Join{Epoch: epoch, Commitment: n.seat.reveals.commitment(epoch, n.tasks.Now()), Holds: n.seat.holds.newest().Digest, Name: n.Name}
	n.seat.asked = true
	sent, of := n.tasks.Now(), s.Model.Checkpoint
	n.actions.submit("join", join, join, func() {
		n.seat.told = of
		n.seat.acked = sent // an answer that a process which stood still reads late is about an epoch of long ago
		n.report.log.Info("joined", "epoch", epoch)
		n.report.emit(event.Joined{Epoch: epoch})
	})
}

// needsSeat reports whether the client has no usable place.
func (n *Node) needsSeat() bool {
	switch n.run.state.RunState {
	case coordinator.Finished, coordinator.Uninitialized:
		return false
	case coordinator.Warmup:
		member, ok := n.run.state.Member(n.run.myself()) // it fetches the model, restarted or not
		return !ok || !n.run.isMember() || !n.seat.reveals.opens(member, n.run.state.Progress.Epoch)
	case coordinator.WaitingForMembers, coordinator.Paused:
		return true // not pending, see keepSeat
	case coordinator.Cooldown: // who cannot report the epoch's model would be waited for
		m := n.models.Held
		return !n.run.isMember() || n.rounds.replica == nil && (m == nil || m.Step != n.run.state.Progress.Step-1)
	default:
		return !n.run.isMember() && !n.seat.rejoin.mayTakeSeat(&n.run, n.rounds.replica) || n.run.isMember() && n.rounds.replica == nil && !n.holdsModel() && !n.seat.rejoin.possible(&n.run, n.rounds.replica)
	}
}

// checked reports whether this client can do its part in the run as it is defined now, as
// far as check can tell before it joins, and begins to find out. Once a client that cannot
// has joined, the others have waited for it.
func (s *seat) checked(run env.Definition, tasks *env.Tasks, check func(context.Context, env.Definition) error, fail func(error)) bool {
	if check == nil {
		return true
	}
	handed := run.Checkpoint.FromPeers()
	if c := s.check; c != nil && bytes.Equal(c.definition, run.Definition) && (c.handed == handed || c.passed && handed) {
		return c.passed
	}
	c := &runCheck{definition: run.Definition, handed: handed}
	s.check = c
	tasks.Spawn(func(ctx context.Context) func() {
		err := check(ctx, run)
		return func() {
			switch {
			case s.check != c || ctx.Err() != nil:
			case err != nil:
				fail(fmt.Errorf("check before joining the run: %w", err))
			default:
				c.passed = true
			}
		}
	})
	return false
}

// withdraw tells the coordinator that the client leaves, as the last thing it does.
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

// reportWaiting says what this client waits for, when that has changed.
func (s *seat) reportWaiting(v *view, e *submitter, log *slog.Logger) {
	if !e.flying("join") { // else it is said first that the client joined
		s.waiting = s.waiting.said(v.waitsFor(), e.tasks.Now(), log)
	}
}
