package sim

import (
	"fmt"
	"net/netip"
	"runtime"
	"time"

	"github.com/psyche-go/psyche/host/core"
	"github.com/psyche-go/psyche/proof/sim/cast"
	"github.com/psyche-go/psyche/proof/sim/check"
	"github.com/psyche-go/psyche/proof/sim/random"
	"github.com/psyche-go/psyche/proof/sim/scenario"
	"github.com/psyche-go/psyche/proof/sim/signatures"
)

// second is the unit of virtual times, which are nanoseconds since the start of a run.
const second = int64(time.Second)

// world is one run.
type world struct {
	options Options
	plan    scenario.Plan
	rules   rules

	now     int64 // nanoseconds since clockStart
	events  eventQueue
	workers workers
	healed  bool
	over    bool

	host       *host
	other      *host // that shows another history to some; nil: there is none
	machines   []*machine
	cast       *cast.Cast
	registry   signatures.Registry
	draws      draws
	view       check.Run        // what checkers see
	recomputed int              // gradients that were computed for audits and trials
	violation  *check.Violation // the first

	links, lies, faults *random.Source
	cut                 []int // per client: number of partitions between it and the other clients
	cutHost             []int // per client: number of partitions between it and the host
	dataDown            int64 // until when no data server answers

	hash  uint64 // of everything that happened
	steps uint64 // number of events
	trace []string
}

// event is something that happens at a time: a process wakes, or a function is called.
type event struct {
	at      int64
	order   uint64
	process *process
	call    func()
}

// eventQueue is a binary heap; of equal times the event that was put first comes first.
type eventQueue struct {
	heap  []event
	order uint64
}

func (q *eventQueue) less(i, j int) bool {
	a, b := &q.heap[i], &q.heap[j]
	return a.at < b.at || a.at == b.at && a.order < b.order
}

func (q *eventQueue) put(e event) {
	q.order++
	e.order = q.order
	q.heap = append(q.heap, e)
	for i := len(q.heap) - 1; i > 0; {
		parent := (i - 1) / 2
		if !q.less(i, parent) {
			break
		}
		q.heap[i], q.heap[parent] = q.heap[parent], q.heap[i]
		i = parent
	}
}

func (q *eventQueue) take() event {
	first := q.heap[0]
	last := len(q.heap) - 1
	q.heap[0] = q.heap[last]
	q.heap[last] = event{}
	q.heap = q.heap[:last]
	for i := 0; ; {
		child := 2*i + 1
		if child >= last {
			break
		}
		if child+1 < last && q.less(child+1, child) {
			child++
		}
		if !q.less(child, i) {
			break
		}
		q.heap[i], q.heap[child] = q.heap[child], q.heap[i]
		i = child
	}
	return first
}

// after calls a function in so many nanoseconds.
func (w *world) after(d int64, call func()) { w.events.put(event{at: w.now + d, call: call}) }

// Options of one run.
type Options struct {
	Seed    uint64
	Clients int             // 1 … coordinator.MaxClients
	Rounds  int             // rounds of the run while faults go on; about as many follow
	Faults  scenario.Faults // AllFaults: the seed chooses some
	Trace   bool            // keep a line for every thing of note

	rules rules // what a test breaks; zero: nothing
}

// Result is the outcome of one run.
type Result struct {
	Violation *check.Violation // nil: everything held
	Hash      uint64           // of everything that happened, in its order
	Events    uint64           // number of them
	Virtual   time.Duration    // how long the run took on its own clock
	Steps     uint32           // rounds of the run
	Faults    scenario.Faults  // kinds that happened
	Trace     []string         // with Options.Trace
}

// Run simulates one run to its end or to the first violation.
func Run(o Options) Result {
	w := newWorld(o)
	defer w.workers.close()
	w.begin()
	w.loop()
	return Result{
		Violation: w.violation, Hash: w.hash, Events: w.steps, Virtual: time.Duration(w.now),
		Steps: w.host.state.Progress.Step - 1, Faults: w.plan.Faults, Trace: w.trace,
	}
}

func newWorld(o Options) *world {
	w := &world{
		options: o, plan: scenario.New(scenario.Options{Seed: o.Seed, Clients: o.Clients, Rounds: o.Rounds, Faults: o.Faults}), rules: o.rules,
		links: random.New(o.Seed, "links"), lies: random.New(o.Seed, "lies"), faults: random.New(o.Seed, "faults"),
		hash: 0xcbf29ce484222325,
	}
	w.cast = cast.New(o.Seed, &w.plan)
	w.registry, w.draws = signatures.New(), newDraws()
	w.view = check.Run{View: w, Plan: &w.plan, Cast: w.cast, Registry: &w.registry, Redo: w.rules.redo}
	w.newMachines()
	w.cut, w.cutHost = make([]int, len(w.machines)), make([]int, len(w.machines))
	w.host = newHost(w)
	return w
}

func (w *world) newMachines() {
	r := random.New(w.options.Seed, "machines")
	for i, member := range w.cast.Members {
		w.newMachine(r, member)
		if i < w.options.Clients && !member.Honest() {
			w.Note('L', uint64(i), uint64(member.Roles), func() string { return member.Name() + " is a " + member.Roles.String() })
		}
	}
}

// newMachine adds the place of one client.
func (w *world) newMachine(r *random.Source, member *cast.Member) {
	w.machines = append(w.machines, &machine{
		Member: member, world: w, random: random.New(r.Next(), "machine"),
		trainTime: w.plan.Tempo.Of(r.Between(300, 2500) * second / 1000),
		quantum:   min(w.plan.Tempo.Of(r.Between(60, 200)*second/1000), second/5),
		latency:   min(w.plan.Tempo.Of(r.Between(2, 40)*second/1000), second/25),
	})
}

// begin starts everything and schedules the faults.
func (w *world) begin() {
	w.host.start()
	for _, m := range w.machines {
		w.after(w.plan.StartOf(m.Index, w.faults.Between(0, 3*second)), m.start)
	}
	for _, f := range w.plan.Events {
		w.events.put(event{at: f.At, call: func() { w.strike(f) }})
	}
	w.events.put(event{at: w.plan.HealAt, call: w.heal})
}

// loop lets events happen until the run is over.
func (w *world) loop() {
	limit := w.host.checker.Deadline()
	for n := 1; len(w.events.heap) > 0 && !w.over && w.violation == nil; n++ {
		e := w.events.take()
		if e.at > limit {
			w.now = limit
			w.host.checker.TooLate()
			return
		}
		w.now = e.at
		if n%512 == 0 {
			runtime.Gosched() // cheaper than being interrupted for having run too long
		}
		if e.process != nil {
			e.process.wake(e.at)
		} else {
			e.call()
		}
		limit = w.host.checker.Deadline()
	}
	if w.violation == nil {
		w.host.checker.Finish()
	}
}

// Now implements check.View.
func (w *world) Now() int64 { return w.now }

// Healed implements check.View.
func (w *world) Healed() bool { return w.healed }

// Forked implements check.View.
func (w *world) Forked() bool { return w.other != nil }

// Client implements check.View.
func (w *world) Client(i int) check.Client {
	if p := w.machines[i].process; p != nil {
		return p
	}
	return nil
}

// HasEnded implements check.View.
func (w *world) HasEnded(i int) bool {
	p := w.machines[i].process
	return p != nil && p.ended
}

// End implements check.View.
func (w *world) End() { w.over = true }

// Violate implements check.View: the first violation ends the run.
func (w *world) Violate(v *check.Violation) {
	if w.violation == nil {
		w.violation = v
		w.Note('V', 0, 0, func() string { return "VIOLATION " + v.Error() })
	}
}

// origin is from where a client connects, and how many seats those may have that do from there. All of the
// gang come from one network, others from some that nobody counts.
func (w *world) origin(m *cast.Member) core.Origin {
	if !m.Lies(scenario.Gang) {
		return core.Origin{}
	}
	return core.Origin{Network: netip.MustParsePrefix("203.0.113.0/24"), Most: w.plan.Crew.Size}
}

// Note records that something happened. The text is only made for a trace.
func (w *world) Note(kind byte, a, b uint64, text func() string) {
	w.steps++
	for _, v := range [...]uint64{uint64(w.now), uint64(kind), a, b} {
		w.hash = (w.hash ^ v) * 0x100000001b3
		w.hash ^= w.hash >> 29
	}
	if w.options.Trace && text != nil {
		w.trace = append(w.trace, w.stamp(text()))
	}
}

// stamp puts the virtual time before a line.
func (w *world) stamp(line string) string {
	return fmt.Sprintf("%9.3f %s", float64(w.now)/float64(second), line)
}

// strike lets a fault happen, unless the network has healed before.
func (w *world) strike(f scenario.Fault) {
	if w.healed {
		return
	}
	w.Note('F', uint64(f.Kind), uint64(f.Until), func() string { return "fault " + f.Describe() })
	switch f.Kind {
	case scenario.Partition:
		w.partition(f)
	case scenario.Crash:
		for _, i := range f.Clients {
			w.machines[i].crash()
			w.after(f.Until-f.At, func() { w.machines[i].start() })
		}
	case scenario.HostCrash:
		w.host.crash(w.plan.Faults&scenario.TornWrite != 0)
		w.after(f.Until-f.At, w.host.start)
	case scenario.TornWrite:
		w.host.crash(true)
		w.after(f.Until-f.At, w.host.start)
	case scenario.ClockJump:
		w.host.offset += f.Jump
	case scenario.Starve:
		for _, i := range f.Clients {
			w.machines[i].starved = max(w.machines[i].starved, f.Until)
		}
	case scenario.DataFailure:
		w.dataDown = max(w.dataDown, f.Until)
	}
}

func (w *world) partition(f scenario.Fault) {
	counts := w.cutHost
	if f.FromP2P {
		counts = w.cut
	}
	for _, i := range f.Clients {
		counts[i]++
	}
	w.after(f.Until-f.At, func() {
		if w.healed {
			return // healing has joined everything
		}
		for _, i := range f.Clients {
			counts[i]--
		}
		w.host.reconnected()
	})
	w.host.reconnected()
}

// extraDelay is what faults add to the way of a message.
func (w *world) extraDelay() (d int64) {
	if w.healed {
		return 0
	}
	if w.plan.ReorderMost > 0 {
		d += w.links.Between(0, w.plan.ReorderMost)
	}
	if w.links.Chance(w.plan.DelayPerMille) {
		d += w.links.Between(0, w.plan.DelayMost)
	}
	return d
}

// heal ends all faults but lies.
func (w *world) heal() {
	if w.healed {
		return
	}
	w.healed = true
	clear(w.cut)
	clear(w.cutHost)
	w.Note('H', 0, 0, func() string { return "faults stop" })
	w.host.start()
	for _, m := range w.machines {
		if w.now >= w.plan.StartOf(m.Index, 0) {
			m.start()
		}
	}
	w.host.reconnected()
	w.host.checker.Healed()
}
