package sim

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/psyche-go/psyche/base/hashchain"
	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/host/core"
	"github.com/psyche-go/psyche/proof/sim/check"
	"github.com/psyche-go/psyche/proof/sim/disk"
	"github.com/psyche-go/psyche/proof/sim/links"
	"github.com/psyche-go/psyche/proof/sim/model"
	"github.com/psyche-go/psyche/proof/sim/random"
	"github.com/psyche-go/psyche/proof/sim/scenario"
	"github.com/psyche-go/psyche/record/backend"
	"github.com/psyche-go/psyche/record/follow"
	"github.com/psyche-go/psyche/record/wire"
)

// host is the host of the run: its core, a disk, and connections. All of them can fail.
type host struct {
	*core.Host

	world   *world
	checker *check.Checker
	up      bool
	life    int // number of starts
	disk    disk.Disk
	random  *random.Source
	draws   *hashchain.Chain // saved with the journal
	offset  int64            // of its clock, milliseconds

	inbox   []*request
	waiting []*request // for the core's answers
	writing bool
	base    *coordinator.State   // as on the disk; never modified
	starts  map[uint32]wire.Head // signed heads of the journal at the starts of rounds
	update  *backend.Update      // newest published update
	sent    []*backend.Update    // per client: the newest sent update
	alarm   uint64               // number of the newest alarm; older alarms have no effect
	attack  hostAttack           // state of a Byzantine host
	changed bool                 // connections were opened or closed since the host last checked
}

func newHost(w *world) *host {
	var secret [32]byte
	source := random.New(w.options.Seed, "host")
	binary.LittleEndian.PutUint64(secret[:], source.Next())
	h := &host{
		world: w, random: source, draws: hashchain.New(secret, int(w.plan.Config.TotalSteps)+1),
		sent: make([]*backend.Update, len(w.machines)), starts: make(map[uint32]wire.Head),
	}
	h.checker = check.New(&w.view, h)
	return h
}

// now returns the time as the host sees it.
func (h *host) now() core.Now {
	t := scenario.ClockStart.Add(time.Duration(h.world.now))
	return core.Now{Time: t, Clock: uint64(max(t.UnixMilli()+h.offset, 1))}
}

// start starts the host unless it runs: it reads its journal, or starts the run.
func (h *host) start() {
	if h.up {
		return
	}
	w := h.world
	h.up = true
	h.life++
	h.inbox, h.waiting, h.writing, h.update = nil, nil, false, nil
	var log *follow.Follower
	if h.life == 1 {
		log = h.begin()
		h.checker.Begins(&log.State)
	} else {
		var actions []disk.Signature
		var err error
		log, actions, err = h.Replay()
		h.checker.Replayed(log, actions, err)
		if err != nil {
			return
		}
		w.Note('h', uint64(h.life), uint64(len(actions)), func() string {
			return fmt.Sprintf("host starts in %v of step %d", log.State.RunState, log.State.Progress.Step)
		})
	}
	times := core.DefaultTimes
	if w.rules.times != nil {
		w.rules.times(&times)
	}
	h.open(log, times)
	h.checker.Restarted()
	h.wake(0)
}

// begin starts the run.
func (h *host) begin() *follow.Follower {
	g := coordinator.Genesis{RunID: scenario.RunID, Host: scenario.HostID, Config: h.world.plan.Config, Model: model.Definition(), Draws: h.draws.Commitment()}
	g.Model.MaxSeqLen = uint32(h.world.seqLen())
	state, err := g.State()
	if err != nil {
		panic(fmt.Sprintf("sim: seed %d makes no valid configuration: %v", h.world.options.Seed, err))
	}
	genesis, err := follow.NewGenesis(scenario.HostKey, [32]byte{}, &state)
	if err != nil {
		panic("sim: the genesis of a simulated run: " + err.Error())
	}
	record := follow.Record{Kind: follow.KindGenesis, Genesis: genesis}.AppendTo(nil)
	h.disk.Add(record)
	h.disk.Synced()
	_, log, err := follow.BeginWith(record)
	if err != nil {
		panic("sim: the genesis of a simulated run: " + err.Error())
	}
	return log
}

// open creates the core for a log.
func (h *host) open(log *follow.Follower, times core.Times) {
	h.Host = core.New(log, h.now(), core.Options{
		Times: times, Draws: h.draws,
		Sign: func(nonce uint64, a coordinator.Action) wire.SignedAction {
			return disk.Unsigned(scenario.HostID, nonce, a)
		},
		Connection: h.connection,
		Rules:      &core.Rules{Apply: h.world.rules.doApply, Tick: h.tick, Due: h.world.rules.doDue},
		Acted:      h.acted,
		Moved:      h.moved,
	})
	h.rebase()
}

// crash kills the host. The current write is on the disk completely or not at all, or if torn is
// set, any part of it.
func (h *host) crash(torn bool) {
	if !h.up {
		return
	}
	w := h.world
	h.up = false
	there := 0
	if n := len(h.disk.Writing); n > 0 {
		if torn {
			there = w.faults.Below(n + 1)
		} else if w.faults.Chance(500) {
			there = n
		}
	}
	h.checker.Crashed(h.base, &h.disk, there)
	h.disk.Cut(there)
	for _, r := range slices.Concat(h.inbox, h.waiting) {
		r.lost()
	}
	h.inbox, h.waiting = nil, nil
}

// wake schedules a wakeup of the host after a time, unless an earlier one is scheduled. After a
// whole beat the host only works if something is due.
func (h *host) wake(after int64) {
	h.alarm++
	alarm := h.alarm
	h.world.after(after, func() {
		switch {
		case !h.up || h.alarm != alarm:
		case after < scenario.Beat || h.Due(h.now()) <= 0:
			h.step()
		default:
			h.sleep()
		}
	})
}

// sleep schedules a wakeup for when something is due, at the latest after a beat, because the clock
// may have been set.
func (h *host) sleep() {
	if h.up && !h.writing {
		h.wake(int64(h.Sleep(h.now(), time.Duration(scenario.Beat))))
	}
}

// reconnected is called when connections were opened or closed.
func (h *host) reconnected() {
	if h.up {
		h.checker.CutOff()
		h.changed = true
		h.wake(0)
	}
}

// deliver schedules the arrival of a request.
func (h *host) deliver(r *request, at int64) {
	w := h.world
	r.at, r.order = at, w.events.Next()
	w.events.Put(at, func() {
		if !h.up || r.process != nil && !h.Connected(r.from.Index) {
			r.lost()
			return
		}
		h.inbox = append(h.inbox, r)
		h.step()
	})
}

// step makes the core process requests and due transitions, and then writes, publishes and answers.
func (h *host) step() {
	w := h.world
	if h.writing || w.violation != nil {
		return
	}
	if h.wantsFork() {
		h.fork()
	}
	h.checker.Looks()
	requests := h.inbox
	h.inbox, h.changed = nil, false
	for _, r := range requests {
		switch {
		case h.leavesOut(r): // its sender gets no answer
		case !w.rules.verifies(r.action):
			r.answer(w, errProof)
		default:
			h.waiting = append(h.waiting, r)
			h.checker.Arrives(r.from.Member)
			h.Submit(h.now(), disk.Unsigned(coordinator.ClientID(r.from.ID), r.nonce, r.action), w.rules.from(h, r.action, w.origin(r.from.Member)), func(err error) { h.answer(r, err) })
		}
	}
	h.scheme()
	h.Tick(h.now())
	records, err := h.Ready()
	if err != nil {
		h.checker.Violate(check.NodeSound, "the host cannot continue: %v", err)
		return
	}
	for _, r := range records {
		h.disk.Add(r.Payload)
	}
	switch {
	case len(records) == 0:
		h.advance()
		h.goOn()
	case w.rules.finish != nil:
		w.rules.finish(h)
	default:
		h.write(h.advance)
	}
}

// write waits until everything is on the disk, and then calls then.
func (h *host) write(then func()) {
	h.writing = true
	life := h.life
	delay := h.random.Between(second/1000, 5*second/1000)
	if !h.world.healed {
		delay = h.random.Between(second/1000, h.world.plan.DiskMost)
	}
	h.world.after(delay, func() {
		if h.life != life || !h.up {
			return
		}
		h.disk.Synced()
		h.writing = false
		h.rebase()
		then()
		h.goOn()
	})
}

// advance makes the core publish and answer.
func (h *host) advance() {
	h.Advance(h.now(), h.publish)
	h.waiting = nil
}

// show sends the published update to every connected client that lacks it. Updates of one
// connection stay in order.
func (h *host) show() {
	w := h.world
	for i, m := range w.machines {
		if h.update == nil || m.history() != h || !h.Connected(i) || h.sent[i] == h.update {
			continue
		}
		h.sent[i] = h.update
		p := m.process
		if delay, update := m.latency+w.extraDelay(), h.update; w.net == nil {
			p.updateAt = max(w.now+delay, p.updateAt)
			p.put(item{at: p.updateAt, update: update})
		} else {
			m.fromHost.send(w, links.Message{From: links.Outside, To: i, Bytes: updateSize}, func() {
				if p.alive {
					p.updateAt = max(w.now+delay, p.updateAt)
					p.put(item{at: p.updateAt, update: update})
				}
			})
		}
		if !m.Honest() {
			p.conspire(h.update.State)
		}
	}
}

// goOn sends the published update, and continues to work or sleeps.
func (h *host) goOn() {
	h.show()
	if len(h.inbox) > 0 || h.changed {
		h.step()
		return
	}
	h.sleep()
}

// rebase records the contents of the disk.
func (h *host) rebase() {
	state := h.State().Clone()
	h.base = &state
}

// acted is called with the result of an action.
func (h *host) acted(a wire.SignedAction, err error) {
	w, from := h.world, coordinator.ClientID(a.From)
	w.Note('A', a.Nonce, uint64(len(h.State().Epoch.Clients)), func() string {
		return fmt.Sprintf("host: %s of %s: %s", check.Describe(a.Action), h.checker.NameOf(from), orAccepted(err))
	})
	if err == nil {
		h.checker.Accepted(h.State(), from, a.Nonce, a.Action)
	}
}

// tick applies the core's rule for due transitions. A host of the coalition sometimes breaks it.
func (h *host) tick(s *coordinator.State, now uint64, draw [32]byte) bool {
	if h.wantsFork() || h.stalls() {
		return false
	}
	before := check.MarkOf(s)
	if !h.world.rules.doTick(s, now, draw) {
		h.checker.CaughtUp(s, now)
		return false
	}
	h.checker.Ticked(s, before, now)
	return true
}

// moved is called after a change of the run state.
func (h *host) moved(before coordinator.RunState) {
	w, s := h.world, h.State()
	if s.RunState == coordinator.RoundTrain {
		starts := h.Log().Starts()
		h.starts[s.Progress.Step] = starts[len(starts)-1].Sign(scenario.HostKey, [32]byte{})
		if s.Progress.Step >= w.plan.HealStep {
			w.after(0, w.heal)
		}
	}
	w.Note('T', uint64(s.RunState), uint64(s.Progress.Step), func() string {
		return fmt.Sprintf("host: %v → %v, epoch %d, step %d, %d members, %d pending", before, s.RunState,
			s.Progress.Epoch, s.Progress.Step, len(s.Epoch.Clients), len(s.Pending))
	})
	if w.rules.moved != nil {
		w.rules.moved(h, before)
	}
}

// withdraw withdraws a client from the run.
func (h *host) withdraw(m *machine) {
	_ = h.Act(h.now(), coordinator.Withdraw{Client: coordinator.ClientID(m.ID)})
}

// answer sends the result of an action.
func (h *host) answer(r *request, err error) {
	if err == nil {
		h.checker.Acknowledged(coordinator.ClientID(r.from.ID), r.nonce, r.action)
	}
	r.answer(h.world, err)
}

// publish stores the update for all clients.
func (h *host) publish(u core.Update) {
	peers := make([]backend.Peer, len(u.Participants))
	for i, id := range u.Participants {
		peers[i] = backend.Peer{ID: id}
	}
	same := func(a, b backend.Peer) bool { return a.ID == b.ID }
	if !u.Changed && slices.EqualFunc(peers, h.update.Peers, same) {
		return
	}
	state := u.State.Clone()
	h.update = &backend.Update{State: &state, Peers: peers, Starts: h.startsOf(&state)}
	h.checker.Published(h.Log().Head().Index)
}

// greet ensures that a newly connected client gets the newest update.
func (h *host) greet(p *process) {
	h.sent[p.machine.Index] = nil
	h.reconnected()
}

func orAccepted(err error) string {
	if err == nil {
		return "accepted"
	}
	return err.Error()
}

var errProof = errors.New("it does not prove that two results were signed")

// connection reports whether a key is connected, and its origin.
func (h *host) connection(id identity.ID) (from core.Origin, live bool) {
	m := h.world.cast.Find(id)
	if m == nil || !h.Connected(m.Index) {
		return from, false
	}
	return h.world.origin(m), true
}

// Connected reports whether a client is connected and sees this history. The coalition acts in all
// histories.
func (h *host) Connected(i int) bool {
	w := h.world
	m := w.machines[i]
	return h.up && (m.history() == h || m.HasRole(scenario.Coalition)) && (w.healed || w.cutHost[i] == 0) && m.process != nil
}

// Base implements check.Host.
func (h *host) Base() *coordinator.State { return h.base }

// Start implements check.Host.
func (h *host) Start(step uint32) wire.Head { return h.starts[step] }

// Idle implements check.Host.
func (h *host) Idle() bool { return h.up && !h.writing }

// Replay implements check.Host.
func (h *host) Replay() (log *follow.Follower, actions []disk.Signature, err error) {
	return h.disk.Replay(h.world.rules.redo)
}

// startsOf returns the heads at the starts of a state's rounds.
func (h *host) startsOf(s *coordinator.State) []wire.Head {
	starts := make([]wire.Head, 0, len(s.Epoch.Rounds))
	for _, round := range s.Epoch.Rounds {
		starts = append(starts, h.starts[round.Step])
	}
	return starts
}
