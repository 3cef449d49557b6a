package sim

import (
	"context"
	"time"

	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/proof/sim/scenario"
	"github.com/psyche-go/psyche/record/backend"
)

// request is an action on its way to the host, or waiting for its answer.
type request struct {
	at      int64 // time of its arrival
	order   uint64
	from    *machine
	nonce   uint64
	action  coordinator.Action
	process *process // process that waits for the answer; nil: none
	parking *parking
	mute    bool  // the answer will be lost
	err     error // the answer
	done    bool
}

// connected reports whether the client is connected to the host.
func (w *world) connected(i int) bool {
	return w.machines[i].history().Connected(i)
}

// Updates implements env.Backend. It returns nil, because updates arrive through process.put.
func (p *process) Updates() <-chan backend.Update { return nil }

// send sends a signed action to the host and waits for the answer.
func (p *process) send(ctx context.Context, a coordinator.Action) error {
	w, m := p.world, p.machine
	broken := !w.healed && w.links.Chance(w.plan.DropPerMille/4)
	mute := broken && w.links.Chance(500) // the action arrives, its answer does not
	if !w.connected(m.Index) || broken && !mute {
		if err := p.wait(ctx, w.now+disconnected); err != nil {
			return err
		}
		return backend.ErrDisconnected
	}
	m.nonce = max(m.nonce+1, uint64(w.now))
	r := &request{
		from: m, nonce: m.nonce, action: a, process: p, mute: mute,
		parking: &parking{worker: w.workers.Current(), ctx: ctx.(*taskContext)},
	}
	m.submit(r, m.latency+w.extraDelay())
	if other := w.other; other != nil && m.HasRole(scenario.Coalition) {
		other.deliver(&request{from: m, nonce: r.nonce, action: a}, w.now+m.latency)
	}
	if !w.healed && w.links.Chance(w.plan.DuplicatePerMille) {
		again := &request{from: m, nonce: r.nonce, action: a}
		m.history().deliver(again, w.now+w.links.Between(0, 30*second))
	}
	p.put(item{at: r.parking.ctx.limit(), parking: r.parking})
	p.park(r.parking)
	switch {
	case !p.alive || w.workers.Closing():
		return errStopped
	case !r.done:
		return context.DeadlineExceeded
	}
	return r.err
}

// sendAside submits an action without the node's knowledge.
func (p *process) sendAside(a coordinator.Action) {
	p.world.workers.Run(func() {
		ctx, cancel := p.WithTimeout(p.root, 5*time.Second)
		defer cancel()
		_ = p.send(ctx, a) // the checker notices the result
	})
}

// answer passes the host's answer to the process that waits for it.
func (r *request) answer(w *world, err error) {
	p := r.process
	if p == nil || r.done || !p.alive {
		return
	}
	if r.mute {
		err = backend.ErrDisconnected
	} else if !w.connected(p.machine.Index) {
		return // its wait ends by itself
	}
	r.err, r.done = err, true
	p.put(item{at: w.now + p.machine.latency, parking: r.parking})
}

// lost tells the process that waits for an answer that its connection is gone.
func (r *request) lost() {
	if p := r.process; p != nil && p.alive && !r.done {
		r.err, r.done = backend.ErrDisconnected, true
		p.put(item{at: p.world.now + disconnected, parking: r.parking})
	}
}

// Announce implements env.Backend.
func (p *process) Announce(context.Context, []string) error { return nil }

// Err implements env.Backend.
func (p *process) Err() error { return nil }

// Close implements env.Backend.
func (p *process) Close() error { return nil }
