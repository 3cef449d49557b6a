package sim

import (
	"context"
	"log/slog"
	"slices"
	"strings"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/files/checkpoint"
	"github.com/psyche-go/psyche/node/client"
	"github.com/psyche-go/psyche/node/env"
	"github.com/psyche-go/psyche/node/exchange"
	"github.com/psyche-go/psyche/proof/sim/cast"
	"github.com/psyche-go/psyche/proof/sim/model"
	"github.com/psyche-go/psyche/proof/sim/random"
	"github.com/psyche-go/psyche/proof/sim/scenario"
	"github.com/psyche-go/psyche/record/backend"
	"github.com/psyche-go/psyche/record/wire"
)

const (
	maxTurns     = 16                 // loop iterations of a client before its tasks' answers wait for the next wakeup
	disconnected = second * 20 / 1000 // until a broken connection is noticed
)

// machine is the machine of one client, with the state that survives the client's crash.
type machine struct {
	*cast.Member
	world      *world
	random     *random.Source
	starved    int64 // end of the time in which its processor is stalled
	trainTime  int64 // maximum
	trainLeast int64
	sequence   int64 // time for each sequence of a batch, in place of trainTime; 0: none
	quantum    int64 // minimum time between two wakeups
	latency    int64 // to every peer
	nonce      uint64
	process    *process // nil while no client runs
	shown      *host    // host whose history it sees; nil: the common one

	toHost, fromHost stream // with links
}

// history returns the host as the client sees it.
func (m *machine) history() *host {
	if m.shown != nil {
		return m.shown
	}
	return m.world.host
}

// process is one life of a client: a client.Node with its environment.
type process struct {
	world   *world
	machine *machine
	node    *client.Node
	trainer *trainer
	root    *taskContext
	alive   bool
	ended   bool // the node has finished

	inbox  []item
	parked []*parking
	ready  []func() // continuations of tasks, for the node's loop
	wakeAt int64    // 0: not scheduled
	woke   int64    // last wakeup
	awake  func()   // wakes it
	spare  []item

	listen   func(from identity.ID, message []byte) error
	handlers map[string]handler
	blobs    map[[32]byte][]byte
	friends  []bool                  // per client: whether this client is connected to it
	updateAt int64                   // arrival of the newest update: updates do not overtake each other
	hidden   wire.ResultAnnouncement // result hidden by a HiddenResult, until its round is over; Step 0: none
	newest   *coordinator.State      // received by it
	court    court

	serves  map[place]int      // requests that are being served
	sending []int64            // start times of transfers of opening parts in progress
	partial map[[32]byte]int64 // received bytes of incomplete blobs
}

// item is something that arrives at a process.
type item struct {
	at      int64
	order   uint64
	from    int // of message
	message []byte
	push    []byte // a result, with its announcement
	parking *parking
	update  *backend.Update
}

// start starts the client unless it runs.
func (m *machine) start() {
	if m.process != nil {
		return
	}
	p := &process{
		world: m.world, machine: m, alive: true,
		handlers: make(map[string]handler),
		blobs:    make(map[[32]byte][]byte),
		friends:  make([]bool, len(m.world.machines)),
		court:    newCourt(),
		serves:   make(map[place]int), partial: make(map[[32]byte]int64),
	}
	p.root, p.awake = &taskContext{process: p}, func() { p.wake(p.world.now) }
	m.process = p
	m.history().checker.Loaded(m.Member)
	m.world.Note('S', uint64(m.Index), 0, func() string { return m.Name() + " starts" })
	node, err := client.New(client.Options{
		Key: m.Key, RunID: scenario.RunID, Backend: p, Network: p, Data: p, Runtime: p, Announcements: p, Draws: &m.world.draws,
		NewTrainer: func(ctx context.Context, s checkpoint.Snapshot, run env.Definition) (env.Trainer, error) {
			p.trainer = &trainer{process: p}
			if run.Audited {
				t := newAudited(p.trainer)
				return t, t.Load(ctx, s)
			}
			return p.trainer, p.trainer.Load(ctx, s)
		},
		Initial: func(context.Context, coordinator.Checkpoint) (checkpoint.Snapshot, error) {
			initial := model.Initial()
			return initial.Snapshot(), nil
		},
		Logger: m.logger(),
	})
	if err == nil {
		p.node = node
		err = node.Open(p.root)
	}
	if err != nil {
		panic("sim: options of a simulated client: " + err.Error())
	}
	m.history().greet(p)
	p.schedule(m.world.now)
}

// logger returns a logger that writes the client's warnings to the trace, if there is one.
func (m *machine) logger() *slog.Logger {
	if !m.world.options.Trace {
		return quiet
	}
	to := lines{m}
	drop := func(_ []string, a slog.Attr) slog.Attr {
		switch a.Key {
		case slog.TimeKey, slog.LevelKey, "client":
			return slog.Attr{}
		}
		return a
	}
	return slog.New(slog.NewTextHandler(to, &slog.HandlerOptions{Level: slog.LevelWarn, ReplaceAttr: drop}))
}

var quiet = slog.New(slog.DiscardHandler)

// lines writes log lines of a client to the trace.
type lines struct{ machine *machine }

func (l lines) Write(b []byte) (int, error) {
	w := l.machine.world
	w.trace = append(w.trace, w.stamp(l.machine.Name()+" says "+strings.TrimSpace(string(b))))
	return len(b), nil
}

// crash kills the client. Everything in memory is lost.
func (m *machine) crash() {
	p := m.process
	if p == nil {
		return
	}
	m.process = nil
	p.alive = false
	p.inbox = nil
	for _, at := range p.parked {
		p.unpark(at)
	}
	p.parked = nil
	m.history().reconnected()
}

// Member implements check.Client.
func (p *process) Member() *cast.Member { return p.machine.Member }

// Replica implements check.Client.
func (p *process) Replica() (hash [32]byte, step uint32, ok bool) { return p.node.Replica() }

// Model implements check.Client.
func (p *process) Model() (digest [32]byte, step uint32, ok bool) { return p.node.Model() }

// put adds an item to the inbox.
func (p *process) put(it item) {
	it.order = p.world.events.Next()
	p.inbox = append(p.inbox, it)
	p.schedule(it.at)
}

// schedule schedules a wakeup of the process, but respects the minimum interval of its quantum:
// items that arrive in between are handled together.
func (p *process) schedule(at int64) {
	at = max(at, p.woke+p.machine.quantum, p.world.now)
	if p.ended || p.wakeAt != 0 && p.wakeAt <= at {
		return
	}
	p.wakeAt = at
	p.world.events.Put(at, p.awake)
}

// wake handles all due items, like the loop of client.Node.Run.
func (p *process) wake(now int64) {
	if !p.alive || p.wakeAt != now {
		return
	}
	if until := p.machine.starved; now < until && !p.world.healed {
		p.wakeAt = 0
		p.schedule(until)
		return
	}
	p.wakeAt, p.woke = 0, now
	update := p.receive(now)
	if update != nil {
		p.newest = update.State
	}
	if p.newest != nil {
		p.slander(p.newest)
		p.hog(p.newest)
	}
	for turn := 0; ; turn++ {
		ready := p.ready
		p.ready = nil
		ended, err := p.node.Step(update, ready)
		update = nil
		p.machine.history().checker.Stepped(p)
		if ended {
			p.end(err)
			return
		}
		if len(p.ready) == 0 || turn == maxTurns {
			break
		}
	}
	next := now + scenario.Heartbeat
	if len(p.ready) > 0 {
		next = now
	}
	for i := range p.inbox {
		next = min(next, p.inbox[i].at)
	}
	p.schedule(next)
}

// receive removes the due items from the inbox and passes them on in chronological order.
func (p *process) receive(now int64) (update *backend.Update) {
	due, rest := p.spare[:0], p.inbox[:0]
	for _, it := range p.inbox {
		if it.at <= now {
			due = append(due, it)
		} else {
			rest = append(rest, it)
		}
	}
	clear(p.inbox[len(rest):])
	p.inbox = rest
	slices.SortFunc(due, func(a, b item) int {
		if a.at != b.at {
			return int(min(max(a.at-b.at, -1), 1))
		}
		return int(int64(a.order) - int64(b.order))
	})
	p.spare = nil // resumed tasks put into the inbox, never into due
	for _, it := range due {
		switch {
		case it.parking != nil:
			p.unpark(it.parking)
		case it.update != nil:
			update = it.update
		case it.push != nil:
			_, _ = p.handlers[exchange.PushProtocol](context.Background(), p.world.machines[it.from].ID, it.push)
		default:
			_ = p.listen(p.world.machines[it.from].ID, it.message)
		}
	}
	clear(due)
	p.spare = due
	if len(p.parked) > 32 {
		p.parked = slices.DeleteFunc(p.parked, func(at *parking) bool { return at.done })
	}
	return update
}

// end is called when the client has left the run by itself. It continues to answer its peers.
func (p *process) end(err error) {
	p.ended = true
	p.world.Note('E', uint64(p.machine.Index), 0, func() string {
		if err != nil {
			return p.machine.Name() + " ends: " + err.Error()
		}
		return p.machine.Name() + " ends"
	})
	p.machine.history().checker.Ended(p, err)
}
