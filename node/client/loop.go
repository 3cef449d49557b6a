package client

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/node/core"
	"github.com/psyche-go/psyche/node/exchange"
	"github.com/psyche-go/psyche/record/backend"
	"github.com/psyche-go/psyche/record/event"
	"github.com/psyche-go/psyche/record/wire"
)

// Run takes part in the run until the run is finished, ctx is done, or the client fails. It returns
// nil after a finished run. When ctx is done, it reports the model that the client holds, for at
// most Options.LeaveTimeout, withdraws, and returns the cause of ctx.
//
// All goroutines have ended when Run returns, with two exceptions: goroutines that wait for a disk
// that does not answer (Options.DiskHangs), and, after the end of ctx, goroutines that write
// nothing and have not ended (Options.Computes).
//
// Run may be called once. It starts goroutines, so Options.Runtime must be nil.
func (n *Node) Run(ctx context.Context) error {
	own, ok := n.tasks.Runtime.(*goroutines)
	if !ok {
		return fmt.Errorf("%w: Runtime is set, so call Step instead of Run", errInvalidOptions)
	}
	work, cancel := context.WithCancel(context.WithoutCancel(ctx))
	end := &shutdown{own: own, saver: n.saver, copies: &n.models.copies.Copies, log: n.report.log, interrupted: ctx.Done(), hangs: n.DiskHangs, leaves: n.Computes}
	defer func() {
		cancel()
		if !end.close() {
			return
		}
		if err := n.auditor.Close(); err != nil {
			n.report.log.Warn("cannot remove the results kept for audits", "err", err)
		}
	}()
	if err := n.Open(work); err != nil {
		return fmt.Errorf("run client: %w", err)
	}
	ticks := time.NewTicker(heartbeat)
	defer ticks.Stop()
	interrupted := ctx.Done()
	for n.end == nil {
		select {
		case <-interrupted:
			if n.member.Lingers() {
				return nil // it stayed only for other clients
			}
			interrupted = nil
			n.leave(n.LeaveTimeout)
		case update, open := <-n.Backend.Updates():
			if !open && n.member.Lingers() {
				return nil
			}
			if !open && n.member.Leave.Begun() {
				return context.Cause(ctx)
			}
			if !open {
				err := fmt.Errorf("run client: %w", cmp.Or(n.Backend.Err(), backend.ErrClosed))
				n.report.emit(event.Failed{Error: err.Error()})
				return err
			}
			n.observe(update)
		case u := <-n.gossip.received:
			n.gossip.take(u, n.receive)
			n.gossip.receiveWaiting(n.receive)
		case proceed := <-own.posts:
			proceed()
		case <-ticks.C:
		}
		n.reconcile()
		if n.end == nil && n.member.Leave.Begun() && n.left() {
			n.withdraw(ctx)
			cancel()
			if end.wait() {
				end.sayLoss(&n.run, newestStep(n.rounds.replica, n.models.Held))
			}
			return context.Cause(ctx)
		}
	}
	return n.end.err
}

// Open starts the client for a caller that supplies a Runtime and calls Step instead of Run. work
// is the context of everything that the client starts.
func (n *Node) Open(work context.Context) error {
	n.tasks.Work = work
	n.store.Serve(n.Network)
	n.auditor.Serve()
	exchange.TakePushes(n.Network, n.gossip.pushed)
	if err := n.Network.Subscribe(work, n.gossip.listen); err != nil {
		return err
	}
	addrs := n.Network.Addrs()
	n.report.emit(event.Started{Role: "client", ID: n.run.me.String(), RunID: n.RunID, PID: os.Getpid(), Addrs: addrs})
	n.tasks.Spawn(func(ctx context.Context) func() {
		err := n.Backend.Announce(ctx, addrs)
		return func() {
			if err != nil {
				n.report.log.Warn("cannot announce this client's addresses to the run", "err", err)
			}
		}
	})
	return nil
}

// Step does the work of Run's loop between two waits. It takes the newest state of the run, the
// announcements of peers and the results of tasks, and then starts missing work. It reports whether
// the client has ended. The error is nil if the client ended with success.
func (n *Node) Step(update *backend.Update, proceed []func()) (ended bool, err error) {
	if update != nil {
		n.observe(*update)
	}
	for len(n.gossip.received) > 0 {
		n.gossip.take(<-n.gossip.received, n.receive)
	}
	for _, f := range proceed {
		f()
	}
	n.reconcile()
	if n.end == nil {
		return false, nil
	}
	return true, n.end.err
}

// observe processes a newer state.
func (n *Node) observe(u backend.Update) {
	if u.State == nil {
		return
	}
	known := n.run.peers
	newPeers := n.run.renew(u)
	n.step(core.Seen{State: u.State})
	if newPeers && len(known) > 0 {
		for _, peer := range u.Peers {
			if !slices.ContainsFunc(known, func(other backend.Peer) bool { return samePeer(peer, other) }) {
				n.fetcher.IsBack(peer.ID)
				n.gossip.pusher.isBack(peer.ID)
			}
		}
	}
	first := n.gossip.run.Load() == nil
	if first {
		n.step(core.Began{Secret: secretOf(n.Key, u.Run)})
		n.auditor.Begin(u.Run)
		n.gossip.run.Store(&issuer{run: u.Run, host: identity.ID(u.State.Host), known: make(map[uint32]wire.Head)})
	}
	n.gossip.step.Store(u.State.Progress.Step)
	if first {
		if lost := forgotten(n.folder(), u.State.Progress.Step); lost != "" {
			n.report.log.Warn(lost)
		}
		n.engine.signing.recall(u.Run, n.run.myself(), u.State, n.report.log)
	}
	if newPeers {
		n.Network.SetMembers(n.run.admitted())
	}
	if err := n.member.origin.watch(u); err != nil {
		if !n.FollowUpdates {
			n.fail(err)
			return
		}
		n.report.log.Warn("the run's model was replaced; continuing because of --follow-updates", "err", err)
	}
	n.openRounds()
	n.auditor.Observe()
	n.report.state(&n.run)
	n.models.Renew(n.run.state)
}

// reconcile compares the desired state with the actual state, and starts missing work. It is called
// after every event and may be called at any time. A state that was missed, a message that was lost
// and a step that failed are all repaired by the next call.
func (n *Node) reconcile() {
	if n.run.state == nil || n.end != nil || n.run.hostFault != nil {
		return
	}
	n.keepSeat()
	if n.rounds.replica != nil {
		findOtherModels(n.rounds.replica, n.rounds.of[n.rounds.replica.Epoch.StartStep], n.run.state, n.report.log)
	}
	for step, rs := range n.rounds.of {
		rs.EachChanged(func(slot int, raws [][]byte) { n.store.Cache.PutBatch(step, slot, len(rs.Slots), raws) })
	}
	n.saver.SaveAgreed(n.run.state)
	n.reportUpload()
	n.reportIntermediate()
	n.shareIntermediate()
	n.eject()
	if r, trainer := n.rounds.replica, n.engine.trainer; r != nil && trainer != nil {
		n.fetcher.Fetch(n.rounds.after(r.Step), n.run.terms(trainer))
	}
	switch n.run.state.RunState {
	case coordinator.Warmup:
		n.warmup()
	case coordinator.RoundTrain:
		n.roundTrain()
	case coordinator.RoundWitness:
		n.roundWitness()
	case coordinator.Cooldown:
		n.cooldown()
	case coordinator.Finished:
		n.finish()
	default: // WaitingForMembers, Paused, Uninitialized
		n.closeEpoch()
	}
	if n.member.Leave.Begun() {
		return
	}
	n.auditor.Advance()
	n.repairGossip()
}
