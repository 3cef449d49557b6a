package sim

import (
	"encoding/binary"
	"fmt"
	"slices"
	"time"

	"github.com/psyche-go/psyche/backend"
	"github.com/psyche-go/psyche/coordinator"
	"github.com/psyche-go/psyche/hashchain"
	"github.com/psyche-go/psyche/identity"
	"github.com/psyche-go/psyche/wire"
)

// The host does what package server does, with its default times.
const (
	beat          = second
	pushInterval  = 200 * second / 1000
	withdrawGrace = 5 * second
)

// hostKey is the key of every simulated host.
var hostKey = func() identity.Key {
	var seed [identity.SeedSize]byte
	binary.BigEndian.PutUint64(seed[:], 1)
	return identity.FromSeed(seed)
}()

var hostID = coordinator.ClientID(hostKey.ID())

// host is the server of the run: the state machine, its journal and what clients see.
type host struct {
	world   *world
	checker *checker
	up      bool
	life    int // counts starts
	state   coordinator.State
	disk    disk
	random  *random
	draws   *hashchain.Chain // kept beside the journal
	offset  int64            // of its clock, milliseconds

	inbox     []*request
	answers   []reply // for when the disk has their actions
	writing   bool
	nonce     uint64
	gone      []int64 // per client: since when its connection is missed; 0: it is not
	holdUntil int64
	base      *coordinator.State   // as the disk has it; never modified
	published *coordinator.State   // newest that was published
	starts    map[uint32]wire.Head // of the journal at the starts of rounds, signed
	update    *backend.Update      // newest published
	version   uint64               // of update
	sent      []uint64             // per client: version it was sent
	pushedAt  int64
	pushAt    int64  // when what waits to be published may be; 0: nothing waits
	alarm     uint64 // number of the newest one: only that counts
	lying     lying  // where the host is of the gang
	changed   bool   // connections have come or gone since the host looked
}

type reply struct {
	request *request
	err     error
}

func newHost(w *world) *host {
	var secret [32]byte
	random := newRandom(w.options.Seed, "host")
	binary.LittleEndian.PutUint64(secret[:], random.next())
	h := &host{
		world: w, random: random, draws: hashchain.New(secret, int(w.plan.config.TotalSteps)),
		gone: make([]int64, len(w.machines)), sent: make([]uint64, len(w.machines)), starts: make(map[uint32]wire.Head),
	}
	h.checker = newChecker(w, h)
	return h
}

// clock returns the host's time in Unix milliseconds.
func (h *host) clock() uint64 {
	t := clockStart.Add(time.Duration(h.world.now)).UnixMilli() + h.offset
	return uint64(max(t, 1))
}

// start starts the host unless it runs: it reads its journal, or begins the run.
func (h *host) start() {
	if h.up {
		return
	}
	w := h.world
	h.up = true
	h.life++
	h.inbox, h.answers, h.writing, h.update, h.pushAt = nil, nil, false, nil, 0
	clear(h.gone)
	if h.life == 1 {
		g := coordinator.Genesis{RunID: runID, Host: hostID, Config: w.plan.config, Model: simModel(), Draws: h.draws.Commitment()}
		state, err := g.State()
		if err != nil {
			panic(fmt.Sprintf("sim: seed %d makes no valid configuration: %v", w.options.Seed, err))
		}
		h.state = state
		h.checker.drawn, h.checker.secrets = state.DrawCommitment, secretsOf(&state)
		h.disk.add(record{kind: recordGenesis, genesis: state.AppendTo(nil)})
		h.disk.synced()
	} else {
		state, actions, err := h.disk.replay(&w.rules)
		h.checker.replayed(&state, actions, err)
		if err != nil {
			return
		}
		h.state = state
		w.note('h', uint64(h.life), uint64(len(actions)), func() string {
			return fmt.Sprintf("host starts in %v of step %d", state.RunState, state.Progress.Step)
		})
	}
	h.rebase()
	h.holdUntil = w.now + withdrawGrace
	h.wake(0)
}

// crash kills the host. Of what it is writing nothing or everything is on the disk, or,
// when writes tear, any part.
func (h *host) crash(torn bool) {
	if !h.up {
		return
	}
	w := h.world
	h.up = false
	there := 0
	if n := len(h.disk.writing); n > 0 {
		if torn {
			there = w.faults.below(n + 1)
		} else if w.faults.chance(500) {
			there = n
		}
	}
	h.checker.crashed(h.base, h.disk.records, h.disk.writing, there)
	h.disk.cut(there)
	for _, r := range slices.Concat(h.inbox, requestsOf(h.answers)) {
		if p := r.process; p != nil && p.alive && !r.done {
			r.err, r.done = backend.ErrDisconnected, true
			p.put(item{at: w.now + disconnected, parking: r.parking})
		}
	}
	h.inbox, h.answers = nil, nil
}

func requestsOf(answers []reply) []*request {
	requests := make([]*request, len(answers))
	for i, a := range answers {
		requests[i] = a.request
	}
	return requests
}

// wake lets the host look around after a time, unless it does before. After a whole beat it
// only works when something is due.
func (h *host) wake(after int64) {
	h.alarm++
	alarm := h.alarm
	h.world.after(after, func() {
		switch {
		case !h.up || h.alarm != alarm:
		case after < beat || h.untilDue() <= 0:
			h.step()
		default:
			h.sleep()
		}
	})
}

// sleep lets the host wake when something is due, at the latest after a beat: the clock may
// have been set.
func (h *host) sleep() {
	if h.up && !h.writing {
		h.wake(max(second/1000, min(h.untilDue(), beat)))
	}
}

// reconnected is called when connections have come or gone.
func (h *host) reconnected() {
	if h.up {
		h.changed = true
		h.wake(0)
	}
}

// untilDue returns how long nothing is due unless somebody acts, connects or leaves.
func (h *host) untilDue() int64 {
	now, sleep := h.world.now, int64(1<<62)
	if h.pushAt != 0 {
		sleep = min(sleep, h.pushAt-now)
	}
	if h.state.RunState != coordinator.Finished {
		for _, since := range h.gone {
			if since != 0 {
				sleep = min(sleep, since+withdrawGrace-now)
			}
		}
	}
	if h.holdUntil != 0 {
		return min(sleep, h.holdUntil-now)
	}
	clock := h.clock()
	if at, ok := h.world.rules.doDue(&h.state, clock); ok {
		sleep = min(sleep, int64(min(at-clock, coordinator.MaxTime))*(second/1000))
	}
	return sleep
}

// deliver lets a request arrive at a time.
func (h *host) deliver(r *request, at int64) {
	w := h.world
	w.events.order++
	r.at, r.order = at, w.events.order
	w.events.put(event{at: at, call: func() {
		if !h.up || r.process != nil && !h.connected(r.from.index) {
			if p := r.process; p != nil && p.alive && !r.done {
				r.err, r.done = backend.ErrDisconnected, true
				p.put(item{at: w.now + disconnected, parking: r.parking})
			}
			return
		}
		h.inbox = append(h.inbox, r)
		h.step()
	}})
}

// step does what server's loop does: actions, withdrawals, ticks, one write for all of
// it, answers, publication.
func (h *host) step() {
	if h.writing || h.world.violation != nil {
		return
	}
	requests := h.inbox
	h.inbox, h.changed = nil, false
	for _, r := range requests {
		if h.leavesOut(r) {
			continue // whoever waits for the answer waits in vain
		}
		err := h.apply(coordinator.ClientID(r.from.id), r.nonce, r.action)
		if h.world.rules.answerEarly && err == nil {
			h.checker.acknowledged(coordinator.ClientID(r.from.id), r.nonce)
			r.answer(h.world, nil)
			continue
		}
		h.answers = append(h.answers, reply{r, err})
	}
	h.withdrawGone()
	h.scheme()
	h.tick()
	if len(h.disk.records) == 0 {
		h.answer()
		h.publish()
		h.sleep()
		return
	}
	h.writing = true
	life := h.life
	delay := h.random.between(second/1000, 5*second/1000)
	if !h.world.healed {
		delay = h.random.between(second/1000, h.world.plan.diskMost)
	}
	h.world.after(delay, func() {
		if h.life != life || !h.up {
			return
		}
		h.disk.synced()
		h.writing = false
		h.rebase()
		h.answer()
		h.publish()
		if len(h.inbox) > 0 || h.changed {
			h.step()
			return
		}
		h.sleep()
	})
}

// rebase takes note of what the disk has.
func (h *host) rebase() {
	state := h.state.Clone()
	h.base = &state
	h.update = nil
}

// apply applies one action.
func (h *host) apply(from coordinator.ClientID, nonce uint64, a coordinator.Action) error {
	w := h.world
	before := h.state.RunState
	err := w.rules.doRefuse(h, from, a)
	if err == nil {
		err = w.rules.doApply(&h.state, from, nonce, a)
	}
	w.note('A', nonce, uint64(len(h.state.Epoch.Clients)), func() string {
		return fmt.Sprintf("host: %s of %s: %s", describe(a), w.nameOf(from), orAccepted(err))
	})
	if err != nil {
		return err
	}
	h.disk.add(record{kind: recordAction, from: from, nonce: nonce, action: a})
	h.checker.accepted(&h.state, before, from, nonce, a)
	h.tick()
	return nil
}

// tick lets the state machine do what is due.
func (h *host) tick() {
	if h.holding() || h.forks() || h.stalls() {
		return
	}
	w := h.world
	for range int(coordinator.Paused) {
		now, committed := h.clock(), h.state.DrawCommitment
		draw, _, _ := h.draws.Opening(committed)
		before := markOf(&h.state)
		if !w.rules.doTick(&h.state, now, draw) {
			h.checker.settled(&h.state, now)
			return
		}
		if h.state.DrawCommitment == committed {
			draw = [32]byte{}
		}
		h.disk.add(record{kind: recordTick, now: now, draw: draw})
		if h.state.RunState != before.runState {
			h.notesStart()
			w.note('T', uint64(h.state.RunState), uint64(h.state.Progress.Step), func() string {
				return fmt.Sprintf("host: %v → %v, epoch %d, step %d, %d members, %d pending", before.runState, h.state.RunState,
					h.state.Progress.Epoch, h.state.Progress.Step, len(h.state.Epoch.Clients), len(h.state.Pending))
			})
			if h.state.RunState == coordinator.RoundTrain && h.state.Progress.Step >= w.plan.healStep {
				w.after(0, w.heal)
			}
		}
		h.checker.ticked(&h.state, before, now)
	}
}

// holding reports whether ticks wait for members to come back after a start.
func (h *host) holding() bool {
	if h.holdUntil == 0 {
		return false
	}
	if h.world.now < h.holdUntil {
		for i := range h.world.machines {
			if h.isParticipant(i) && !h.connected(i) {
				return true
			}
		}
	}
	h.holdUntil = 0
	return false
}

// isParticipant reports whether a client is a healthy member or pending.
func (h *host) isParticipant(i int) bool {
	id := coordinator.ClientID(h.world.machines[i].id)
	c, ok := h.state.Member(id)
	return ok && c.State == coordinator.Healthy || h.state.IsPending(id)
}

// withdrawGone withdraws clients that had no connection for the grace period.
func (h *host) withdrawGone() {
	w := h.world
	if h.state.RunState == coordinator.Finished {
		return
	}
	for i, m := range w.machines {
		switch {
		case h.connected(i) || !h.isParticipant(i):
			h.gone[i] = 0
		case h.gone[i] == 0:
			h.gone[i] = w.now
		case w.now-h.gone[i] >= withdrawGrace:
			h.gone[i] = 0
			h.withdraw(m)
		}
	}
}

// withdraw takes a client out of the run.
func (h *host) withdraw(m *machine) {
	h.nonce = max(h.nonce+1, uint64(h.world.now))
	_ = h.apply(hostID, h.nonce, coordinator.Withdraw{Client: coordinator.ClientID(m.id)})
}

// answer sends the answers whose actions are durable.
func (h *host) answer() {
	for _, a := range h.answers {
		if a.err == nil {
			h.checker.acknowledged(coordinator.ClientID(a.request.from.id), a.request.nonce)
		}
		a.request.answer(h.world, a.err)
	}
	h.answers = h.answers[:0]
}

// publish sends what is durable to every connected client that does not have it. Changes
// within a phase wait for each other.
func (h *host) publish() {
	w := h.world
	h.pushAt = 0
	if h.update == nil {
		old := h.published
		if old != nil && old.RunState == h.base.RunState && old.Progress == h.base.Progress && w.now-h.pushedAt < pushInterval {
			h.pushAt = h.pushedAt + pushInterval
			return
		}
		h.version++
		h.pushedAt = w.now
		h.update = &backend.Update{State: h.base, Peers: h.peersOf(h.base), Starts: h.startsOf(h.base)}
		h.published = h.base
		h.checker.published(h.base)
	}
	for i, m := range w.machines {
		if m.history() == h && h.connected(i) && h.sent[i] != h.version {
			h.send(m.process)
		}
	}
}

// greet makes sure that a client that has just connected gets the newest update.
func (h *host) greet(p *process) {
	h.sent[p.machine.index] = 0
	h.reconnected()
}

// send sends the newest update. Updates of one connection keep their order.
func (h *host) send(p *process) {
	h.sent[p.machine.index] = h.version
	at := max(h.world.now+p.machine.latency+h.world.extraDelay(), p.updateAt)
	p.updateAt = at
	p.put(item{at: at, update: h.update})
	if !p.machine.honest() {
		p.conspire(h.update.State)
	}
}

// peersOf returns those that take part; in a run that is finished, those that are connected.
func (h *host) peersOf(s *coordinator.State) []backend.Peer {
	var peers []backend.Peer
	for _, m := range h.world.machines {
		id := coordinator.ClientID(m.id)
		if s.TakesPart(id) && (s.RunState != coordinator.Finished || h.connected(m.index)) {
			peers = append(peers, backend.Peer{ID: m.id})
		}
	}
	return peers
}

func orAccepted(err error) string {
	if err == nil {
		return "accepted"
	}
	return err.Error()
}

func (w *world) nameOf(id coordinator.ClientID) string {
	if id == hostID {
		return "the host"
	}
	if i, ok := w.index[identity.ID(id)]; ok {
		return w.machines[i].name()
	}
	return "a stranger"
}

func describe(a coordinator.Action) string {
	switch a := a.(type) {
	case coordinator.Join:
		return fmt.Sprintf("join of epoch %d", a.Epoch)
	case coordinator.Ready:
		return fmt.Sprintf("ready for epoch %d", a.Epoch)
	case coordinator.Return:
		return fmt.Sprintf("return into epoch %d", a.Epoch)
	case coordinator.WitnessRound:
		return fmt.Sprintf("witness of step %d, root %x, replica %x", a.Step, a.CommitmentsRoot[:4], a.Replica[:4])
	case coordinator.HealthCheck:
		return fmt.Sprintf("health check of step %d, %d accused", a.Step, len(a.Clients))
	case coordinator.ReportCheckpoint:
		return fmt.Sprintf("checkpoint of step %d, digest %x", a.Step, a.Digest[:4])
	case coordinator.ReportUpload:
		return fmt.Sprintf("upload of step %d, digest %x", a.Step, a.Digest[:4])
	case coordinator.Equivocation:
		return fmt.Sprintf("proof of two results of step %d", a.Step)
	case coordinator.Withdraw:
		return "withdrawal"
	case coordinator.Accuse:
		return fmt.Sprintf("accusation of %s for step %d: %s", a.Client, a.Step, a.Fault)
	case coordinator.Vote:
		return fmt.Sprintf("vote on %s for step %d, guilty %t", a.Client, a.Step, a.Guilty)
	default:
		return fmt.Sprintf("%T", a)
	}
}
