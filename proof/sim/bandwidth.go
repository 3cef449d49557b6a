package sim

import (
	"context"
	"encoding/binary"
	"fmt"
	"slices"
	"time"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/node/auditor"
	"github.com/psyche-go/psyche/node/exchange"
	"github.com/psyche-go/psyche/proof/sim/check"
	"github.com/psyche-go/psyche/proof/sim/links"
	"github.com/psyche-go/psyche/proof/sim/scenario"
)

// Sizes on links, in bytes.
const (
	framing     = 100 // overhead of a message
	actionSize  = 500 // of a signed action
	updateSize  = 500 // of the records of one publication
	handlerTime = 30 * time.Second
	// slowestAnswer is the rate, in bytes per second, that the time limit for an answer with an
	// opening assumes for its transfer. The limit allows at most longestAnswer for the transfer.
	slowestAnswer = 2 << 10
	longestAnswer = 2 * time.Minute
	// requestsOfPeer is the number of concurrent requests of one protocol that a member serves per
	// peer.
	requestsOfPeer = 16
	// Limits of pushes to all members. A client pushes freelyPushed bytes, or as many as its link
	// sends in 1/pushShare of the training time, at most in longestPush. It knows only the size of the
	// simulated result, so the network refuses larger pushes.
	freelyPushed = 256 << 10
	pushShare    = 4
	longestPush  = second
)

// isPushed reports whether the process pushes its results over its link.
func (p *process) isPushed() bool {
	l := p.world.plan.Links
	total := l.Result * int64(len(p.world.machines))
	if l.Result > exchange.MaxPushed || total <= freelyPushed {
		return l.Result <= exchange.MaxPushed
	}
	return total <= l.Access[p.machine.Index].Up.Rate*min(l.Train/pushShare, longestPush)/second
}

// At implements links.Clock.
func (w *world) At(time int64, call func()) { w.events.Put(time, call) }

// newLinks creates the links of all machines, if the plan has any.
func (w *world) newLinks() {
	l := w.plan.Links
	if l == nil {
		return
	}
	w.net = links.New(w, l.Access)
	w.results = make(map[[32]byte]bool)
	for _, c := range l.Changes {
		w.events.Put(c.At, func() { w.net.SetRates(c.Client, c.Up, c.Down) })
	}
}

// resume continues a parked task of the process at once. With links, tasks that wait for the
// network do not wait for the loop of the client.
func (p *process) resume(at *parking) {
	if !p.alive || at.done {
		return
	}
	if p.world.isStarved(p.machine.Index) {
		p.put(item{at: p.world.now, parking: at})
		return
	}
	p.unpark(at)
	if len(p.ready) > 0 {
		p.schedule(p.world.now)
	}
}

// await suspends the running task until an event calls done, which await passes to begin. If the
// context ends first, await calls the function that begin returned and returns the context's error.
func (p *process) await(ctx context.Context, begin func(done func()) (stop func())) error {
	c := ctx.(*taskContext)
	if !p.alive || p.world.workers.Closing() {
		return errStopped
	}
	if err := c.Err(); err != nil {
		return err
	}
	at, arrived := &parking{worker: p.world.workers.Current(), ctx: c}, false
	stop := begin(func() {
		arrived = true
		p.resume(at)
	})
	p.put(item{at: min(c.limit(), p.world.now+3600*second), parking: at})
	p.park(at)
	p.forget(at)
	if arrived && p.alive && !p.world.workers.Closing() {
		return nil
	}
	stop()
	if !p.alive || p.world.workers.Closing() {
		return errStopped
	}
	if err := c.Err(); err != nil {
		return err
	}
	return context.DeadlineExceeded
}

// forget removes the end of a completed wait from the inbox.
func (p *process) forget(at *parking) {
	for i := range p.inbox {
		if p.inbox[i].parking == at {
			last := len(p.inbox) - 1
			p.inbox[i] = p.inbox[last]
			p.inbox[last] = item{}
			p.inbox = p.inbox[:last]
			return
		}
	}
}

// transfer sends a message and waits for its arrival. received is the number of bytes that arrived,
// even if the context ended before the rest.
func (p *process) transfer(ctx context.Context, m links.Message, delay int64) (received int64, err error) {
	w := p.world
	var t *links.Transfer
	err = p.await(ctx, func(done func()) (stop func()) {
		t = w.net.Send(m, func() { w.after(delay, done) })
		return func() { received = t.Abort() }
	})
	if err == nil {
		received = m.Bytes
	}
	return received, err
}

// linkedRequest is Request for links with a bandwidth: the request and the answer are transferred
// over them.
func (p *process) linkedRequest(ctx context.Context, id identity.ID, protocol string, request []byte, pace int64) ([]byte, error) {
	limit := handlerTime
	if protocol == auditor.OpeningProtocol {
		limit += min(time.Duration(p.world.openingSize(1))*time.Second/slowestAnswer, longestAnswer)
	}
	ctx, cancel := p.WithTimeout(ctx, limit)
	defer cancel()
	other, err := p.reachPeer(ctx, id, int64(len(request)))
	if err != nil {
		return nil, err
	}
	handle, places := other.handlers[protocol], place{p.machine.Index, protocol}
	if handle == nil || other.serves[places] >= requestsOfPeer {
		return nil, errUnreachable
	}
	served := &taskContext{parent: other.root, process: other, deadline: p.world.now + int64(limit)}
	other.serves[places]++
	defer func() {
		other.serves[places]--
		other.cancel(served)
	}()
	response, err := askLater, error(nil)
	if changed, others := other.withoutOne(p, request); others || protocol != auditor.OpeningProtocol {
		response, err = p.handled(ctx, other, served, handle, changed)
	}
	if p.world.rules.servesAll {
		other.cancel(served)
	}
	opening := protocol == auditor.OpeningProtocol
	reply := links.Message{From: other.machine.Index, To: p.machine.Index, Bytes: int64(len(response) + framing), Pace: pace}
	if opening {
		if parts := auditor.PartsIn(response); err == nil && parts > 0 {
			reply.Bulk, reply.Bytes = true, p.world.openingSize(parts) // an answer without a part fits into one packet
		}
		response, err = other.openTo(p, request, response, err, &reply)
	}
	if _, lost := p.world.reach(other.machine.Index, p.machine.Index); lost {
		_ = p.wait(ctx, p.world.now+requestTimeout)
		return nil, errUnreachable
	}
	if opening && err == nil && auditor.PartsIn(response) > 0 {
		defer other.sends()()
	}
	if _, sent := p.transfer(ctx, reply, p.latencyTo(other)); sent != nil {
		if opening {
			p.hastyVerdict(request)
		}
		return nil, sent
	}
	if !other.alive && opening {
		return nil, errUnreachable
	}
	return response, err
}

// An honest member sends partsAtOnce parts at a time. Transfers that take longer than a turn do not
// count.
const (
	partsAtOnce = 2
	turn        = second // minimum duration of a transfer's turn
)

// sends records the start of a part's transfer, and checks the number of concurrent parts.
func (p *process) sends() (ended func()) {
	begun := p.world.now
	p.sending = append(p.sending, begun)
	count := 0
	for _, at := range p.sending {
		if at > p.world.now-turn {
			count++
		}
	}
	if count > partsAtOnce && p.machine.Honest() {
		p.machine.history().checker.Violate(check.InTurns, "%s sends %d parts", p.machine.Name(), count)
	}
	return func() {
		i := slices.Index(p.sending, begun)
		p.sending = slices.Delete(p.sending, i, i+1)
	}
}

// place identifies the requests of one protocol from one peer, whose number is limited.
type place struct {
	peer     int
	protocol string
}

// handled runs a handler of a different process and waits for its answer.
func (p *process) handled(ctx context.Context, other *process, served *taskContext, handle handler, request []byte) (response []byte, err error) {
	answered := false
	err = errStopped
	var waiting func()
	p.world.workers.Run(func() {
		response, err = handle(served, p.machine.ID, request)
		if answered = true; waiting != nil {
			p.world.At(p.world.now, waiting)
		}
	})
	if answered {
		return response, err
	}
	if ended := p.await(ctx, func(done func()) func() {
		waiting = done
		return func() { waiting = nil }
	}); ended != nil {
		return nil, ended
	}
	return response, err
}

// handler answers a request.
type handler = func(ctx context.Context, from identity.ID, request []byte) ([]byte, error)

func (p *process) latencyTo(other *process) int64 { return p.machine.latency + other.machine.latency }

// reachPeer transfers a request to a client, and returns the client's process.
func (p *process) reachPeer(ctx context.Context, id identity.ID, bytes int64) (*process, error) {
	w, to := p.world, p.world.cast.Find(id).Index
	delay, lost := w.reach(p.machine.Index, to)
	if lost {
		if err := p.wait(ctx, w.now+requestTimeout); err != nil {
			return nil, err
		}
		return nil, errUnreachable
	}
	if _, err := p.transfer(ctx, links.Message{From: p.machine.Index, To: to, Bytes: bytes + framing}, delay); err != nil {
		return nil, err
	}
	if w.isStarved(to) {
		if err := p.wait(ctx, min(w.now+requestTimeout, w.machines[to].starved)); err != nil {
			return nil, err
		}
	}
	other := p.peer(to)
	if other == nil || w.isStarved(to) || p.hides(other) {
		return nil, errUnreachable
	}
	return other, nil
}

// openingSize returns the size of an answer with some parts, or of a whole opening under the
// mutation that restarts transfers.
func (w *world) openingSize(parts int) int64 {
	if w.rules.restarts {
		return w.plan.Links.Opening
	}
	return int64(parts) * w.plan.Links.Opening / scenario.Parts
}

// linkedPush is push for links with a bandwidth.
func (p *process) linkedPush(ctx context.Context, to int, request []byte) error {
	w := p.world
	result := w.plan.Links.Result
	delay, lost := w.reach(p.machine.Index, to)
	if lost || !p.isPushed() {
		return errUnreachable
	}
	if _, err := p.transfer(ctx, links.Message{From: p.machine.Index, To: to, Bytes: result + framing}, delay); err != nil {
		return err
	}
	other := p.peer(to)
	if other == nil || p.hides(other) {
		return errUnreachable
	}
	other.put(item{at: w.now, from: p.machine.Index, push: request})
	return nil
}

// linkedGossip transfers a message to a client over the links.
func (p *process) linkedGossip(other *process, message []byte, delay int64) {
	w := p.world
	m := links.Message{From: p.machine.Index, To: other.machine.Index, Bytes: int64(len(message) + framing)}
	w.net.Send(m, func() {
		if other.alive {
			other.put(item{at: w.now + delay, from: p.machine.Index, message: message})
		}
	})
}

// linkedFetch downloads a blob from a holder. If the context ended during an earlier fetch, the
// download continues after the received bytes.
func (p *process) linkedFetch(ctx context.Context, hash [32]byte, holder identity.ID, pace int64) (*process, error) {
	other, err := p.reachPeer(ctx, holder, 0)
	if err != nil {
		return nil, err
	}
	data, held := other.blobs[hash]
	places := place{p.machine.Index, "blob"}
	if !held || other.serves[places] >= requestsOfPeer {
		return nil, errNotHeld
	}
	other.serves[places]++
	defer func() { other.serves[places]-- }()
	bytes := int64(len(data))
	if p.world.results[hash] {
		bytes = p.world.plan.Links.Result
	}
	m := links.Message{From: other.machine.Index, To: p.machine.Index, Bytes: max(bytes-p.partial[hash], 0) + framing, Pace: pace}
	received, err := p.transfer(ctx, m, p.latencyTo(other))
	switch {
	case err == nil:
		delete(p.partial, hash)
	case !p.world.rules.restarts:
		p.partial[hash] = min(p.partial[hash]+max(received-framing, 0), bytes)
	}
	return other, err
}

// stream is one direction of the connection between a machine and the host. Messages arrive in
// order.
type stream struct {
	busy    bool
	waiting []func() // each sends the next message
}

// send sends a message once the messages before it have arrived.
func (s *stream) send(w *world, m links.Message, arrived func()) {
	begin := func() {
		w.net.Send(m, func() {
			s.busy = false
			if len(s.waiting) > 0 {
				next := s.waiting[0]
				s.waiting = s.waiting[1:]
				s.busy = true
				next()
			}
			arrived()
		})
	}
	if s.busy {
		s.waiting = append(s.waiting, begin)
		return
	}
	s.busy = true
	begin()
}

// submit transfers an action to the host.
func (m *machine) submit(r *request, delay int64) {
	w, h := m.world, m.history()
	if w.net == nil {
		h.deliver(r, w.now+delay)
		return
	}
	m.toHost.send(w, links.Message{From: m.Index, To: links.Outside, Bytes: actionSize}, func() { h.deliver(r, w.now+delay) })
}

// openedResult returns the result that a request asks to open.
func openedResult(request []byte) (r result, ok bool) {
	if len(request) < 36 {
		return r, false
	}
	return result{binary.LittleEndian.Uint32(request[32:]), coordinator.ClientID(request)}, true
}

// hastyVerdict submits an honest member's guilty vote about a trainer with a late answer, if a test
// enables this.
func (p *process) hastyVerdict(request []byte) {
	r, ok := openedResult(request)
	if !ok || !p.world.rules.lateIsSilent || !p.machine.Honest() || !p.alive {
		return
	}
	p.sendAside(coordinator.Vote{Step: r.step, Client: r.trainer, Guilty: true})
}

// describe writes the links to the trace.
func (w *world) describe() {
	l := w.plan.Links
	if l == nil {
		return
	}
	w.Note('B', uint64(l.Result), uint64(l.Opening), func() string {
		text := fmt.Sprintf("results of %d bytes, openings of %d, training %d ms, a result to all %d ms; slow:", l.Result, l.Opening, l.Train/1_000_000, l.Bring/1_000_000)
		for _, i := range l.Slow {
			a := l.Access[i]
			text += fmt.Sprintf(" %d (up %.2f Mbit/s %v, down %.2f Mbit/s %v)", i, float64(a.Up.Rate)/125e3, a.Up.Discipline, float64(a.Down.Rate)/125e3, a.Down.Discipline)
		}
		return text
	})
}
