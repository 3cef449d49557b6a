package sim

import (
	"encoding/binary"
	"fmt"
	"runtime"
	"time"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/core/coordinator"
)

// world is one run.
type world struct {
	options Options
	plan    plan
	rules   rules

	now     int64 // nanoseconds since clockStart
	events  eventQueue
	workers workers
	healed  bool
	over    bool

	host       *host
	other      *host // that shows another history to some; nil: there is none
	machines   []*machine
	index      map[identity.ID]int
	registry   registry
	draws      draws
	recomputed int                       // gradients that were computed for audits and trials
	convicted  map[coordinator.Fault]int // how often a vote ejected somebody
	violation  *Violation                // the first

	links, lies, faults *random
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

// Result is the outcome of one run.
type Result struct {
	Violation *Violation    // nil: everything held
	Hash      uint64        // of everything that happened, in its order
	Events    uint64        // number of them
	Virtual   time.Duration // how long the run took on its own clock
	Steps     uint32        // rounds of the run
	Faults    Faults        // kinds that happened
	Trace     []string      // with Options.Trace
}

// Run simulates one run to its end or to the first violation.
func Run(o Options) Result {
	w := newWorld(o)
	defer w.workers.close()
	w.begin()
	w.loop()
	return Result{
		Violation: w.violation, Hash: w.hash, Events: w.steps, Virtual: time.Duration(w.now),
		Steps: w.host.state.Progress.Step - 1, Faults: w.plan.faults, Trace: w.trace,
	}
}

func newWorld(o Options) *world {
	w := &world{
		options: o, plan: newPlan(o), rules: o.rules, index: make(map[identity.ID]int, o.Clients),
		links: newRandom(o.Seed, "links"), lies: newRandom(o.Seed, "lies"), faults: newRandom(o.Seed, "faults"),
		convicted: make(map[coordinator.Fault]int),
		hash:      0xcbf29ce484222325,
	}
	w.registry, w.draws = newRegistry(), newDraws()
	w.newMachines()
	w.cut, w.cutHost = make([]int, len(w.machines)), make([]int, len(w.machines))
	w.host = newHost(w)
	return w
}

func (w *world) newMachines() {
	r := newRandom(w.options.Seed, "machines")
	for range w.options.Clients {
		w.newMachine(r)
	}
	w.appointLiars()
	w.recruit(r)
}

// newMachine adds one client.
func (w *world) newMachine(r *random) *machine {
	i := len(w.machines)
	var seed [identity.SeedSize]byte
	binary.LittleEndian.PutUint64(seed[:], uint64(i)+1)
	key := identity.FromSeed(seed)
	m := &machine{
		world: w, index: i, key: key, id: key.ID(), random: newRandom(r.next(), "machine"),
		trainTime: w.plan.tempo.of(r.between(300, 2500) * second / 1000),
		quantum:   min(w.plan.tempo.of(r.between(60, 200)*second/1000), second/5),
		latency:   min(w.plan.tempo.of(r.between(2, 40)*second/1000), second/25),
	}
	w.machines = append(w.machines, m)
	w.index[m.id] = i
	return m
}

// begin starts everything and schedules the faults.
func (w *world) begin() {
	w.host.start()
	for _, m := range w.machines {
		w.after(w.plan.startOf(m.index, w.faults.between(0, 3*second)), m.start)
	}
	for _, f := range w.plan.events {
		w.events.put(event{at: f.at, call: func() { w.strike(f) }})
	}
	w.events.put(event{at: w.plan.healAt, call: w.heal})
}

// loop lets events happen until the run is over.
func (w *world) loop() {
	limit := w.host.checker.deadline()
	for n := 1; len(w.events.heap) > 0 && !w.over && w.violation == nil; n++ {
		e := w.events.take()
		if e.at > limit {
			w.now = limit
			w.host.checker.tooLate()
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
		limit = w.host.checker.deadline()
	}
	w.host.checker.finish()
}

// note records that something happened. The text is only made for a trace.
func (w *world) note(kind byte, a, b uint64, text func() string) {
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
func (w *world) strike(f fault) {
	if w.healed {
		return
	}
	w.note('F', uint64(f.kind), uint64(f.until), func() string { return "fault " + f.describe() })
	switch f.kind {
	case Partition:
		w.partition(f)
	case Crash:
		for _, i := range f.clients {
			w.machines[i].crash()
			w.after(f.until-f.at, func() { w.machines[i].start() })
		}
	case HostCrash:
		w.host.crash(w.plan.faults&TornWrite != 0)
		w.after(f.until-f.at, w.host.start)
	case TornWrite:
		w.host.crash(true)
		w.after(f.until-f.at, w.host.start)
	case ClockJump:
		w.host.offset += f.jump
	case Starve:
		for _, i := range f.clients {
			w.machines[i].starved = max(w.machines[i].starved, f.until)
		}
	case DataFailure:
		w.dataDown = max(w.dataDown, f.until)
	}
}

func (f fault) describe() string {
	switch f.kind {
	case Partition:
		from := "host"
		if f.fromP2P {
			from = "other clients"
		}
		return fmt.Sprintf("partition: clients %v from the %s until %.3f", f.clients, from, float64(f.until)/float64(second))
	case Crash:
		return fmt.Sprintf("crash: client %v until %.3f", f.clients, float64(f.until)/float64(second))
	case Starve:
		return fmt.Sprintf("starve: clients %v until %.3f", f.clients, float64(f.until)/float64(second))
	case ClockJump:
		return fmt.Sprintf("clock of the host jumps by %d ms", f.jump)
	default:
		return fmt.Sprintf("%s until %.3f", f.kind, float64(f.until)/float64(second))
	}
}

func (w *world) partition(f fault) {
	counts := w.cutHost
	if f.fromP2P {
		counts = w.cut
	}
	for _, i := range f.clients {
		counts[i]++
	}
	w.after(f.until-f.at, func() {
		if w.healed {
			return // healing has joined everything
		}
		for _, i := range f.clients {
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
	if w.plan.reorderMost > 0 {
		d += w.links.between(0, w.plan.reorderMost)
	}
	if w.links.chance(w.plan.delayPerMille) {
		d += w.links.between(0, w.plan.delayMost)
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
	w.note('H', 0, 0, func() string { return "faults stop" })
	w.host.start()
	for _, m := range w.machines {
		if w.now >= w.plan.startOf(m.index, 0) {
			m.start()
		}
	}
	w.host.reconnected()
	w.host.checker.healed()
}
