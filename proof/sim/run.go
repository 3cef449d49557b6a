package sim

import (
	"runtime"
	"time"

	"github.com/psyche-go/psyche/proof/sim/cast"
	"github.com/psyche-go/psyche/proof/sim/check"
	"github.com/psyche-go/psyche/proof/sim/random"
	"github.com/psyche-go/psyche/proof/sim/scenario"
	"github.com/psyche-go/psyche/proof/sim/signatures"
)

// Result is the outcome of one run.
type Result struct {
	Violation *check.Violation // nil: all assertions held
	Hash      uint64           // of all events, in order
	Events    uint64           // number of events
	Virtual   time.Duration    // duration of the run on its virtual clock
	Steps     uint32           // rounds of the run
	Faults    scenario.Faults  // kinds that happened
	Trace     []string         // with Options.Trace
}

// Run simulates one run to its end or to the first violation.
func Run(o Options) Result {
	w := newWorld(o)
	defer w.workers.Close()
	w.begin()
	w.loop()
	return Result{
		Violation: w.violation, Hash: w.hash, Events: w.steps, Virtual: time.Duration(w.now),
		Steps: w.host.State().Progress.Step - 1, Faults: w.plan.Faults, Trace: w.trace,
	}
}

func newWorld(o Options) *world {
	w := &world{
		options: o, plan: scenario.New(scenario.Options{Seed: o.Seed, Clients: o.Clients, Rounds: o.Rounds, Faults: o.Faults, Links: o.Links, Shares: o.Shares, Retries: o.Retries}), rules: o.rules,
		links: random.New(o.Seed, "links"), attacks: random.New(o.Seed, "lies"), faults: random.New(o.Seed, "faults"), offers: random.New(o.Seed, "offers"),
		hash: 0xcbf29ce484222325,
	}
	w.cast = cast.New(o.Seed, &w.plan)
	if w.rules.setup != nil {
		w.rules.setup(w)
	}
	w.registry, w.draws = signatures.New(), newDraws()
	w.view = check.Run{View: w, Plan: &w.plan, Cast: w.cast, Registry: &w.registry, Redo: w.rules.redo}
	w.newMachines()
	w.cut, w.cutHost = make([]int, len(w.machines)), make([]int, len(w.machines))
	w.newLinks()
	w.host = newHost(w)
	return w
}

func (w *world) newMachines() {
	r := random.New(w.options.Seed, "machines")
	w.describe()
	for i, member := range w.cast.Members {
		w.newMachine(r, member)
		if i < w.options.Clients && !member.Honest() {
			w.Note('L', uint64(i), uint64(member.Roles), func() string { return member.Name() + " is a " + member.Roles.String() })
		}
	}
}

// newMachine adds the machine of one client.
func (w *world) newMachine(r *random.Source, member *cast.Member) {
	m := &machine{
		Member: member, world: w, random: random.New(r.Next(), "machine"),
		trainTime: w.plan.Tempo.Of(r.Between(300, 2500) * second / 1000),
		quantum:   min(w.plan.Tempo.Of(r.Between(60, 200)*second/1000), second/5),
		latency:   min(w.plan.Tempo.Of(r.Between(2, 40)*second/1000), second/25),
	}
	m.trainLeast = m.trainTime / 2
	if l := w.plan.Links; l != nil {
		m.trainLeast, m.trainTime = l.Training(m.Index)
	}
	w.machines = append(w.machines, m)
}

// begin starts everything and schedules the faults.
func (w *world) begin() {
	w.host.start()
	for _, m := range w.machines {
		w.after(w.plan.StartOf(m.Index, w.faults.Between(0, 3*second)), m.start)
	}
	for _, f := range w.plan.Events {
		w.events.Put(f.At, func() { w.strike(f) })
	}
	w.events.Put(w.plan.HealAt, w.heal)
}

// loop processes events until the run is over.
func (w *world) loop() {
	limit := w.host.checker.Deadline()
	for n := 1; w.events.Len() > 0 && !w.over && w.violation == nil; n++ {
		at, call := w.events.Take()
		if at > limit {
			w.now = limit
			w.host.checker.TooLate()
			return
		}
		w.now = at
		if n%512 == 0 {
			runtime.Gosched() // cheaper than preemption after a long time slice
		}
		call()
		limit = w.host.checker.Deadline()
	}
	if w.violation == nil {
		w.host.checker.Finish()
	}
}
