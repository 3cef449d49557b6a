package sim

import (
	"fmt"
	"net/netip"
	"time"

	"github.com/psyche-go/psyche/host/core"
	"github.com/psyche-go/psyche/proof/sim/cast"
	"github.com/psyche-go/psyche/proof/sim/check"
	"github.com/psyche-go/psyche/proof/sim/coroutine"
	"github.com/psyche-go/psyche/proof/sim/links"
	"github.com/psyche-go/psyche/proof/sim/random"
	"github.com/psyche-go/psyche/proof/sim/scenario"
	"github.com/psyche-go/psyche/proof/sim/signatures"
	"github.com/psyche-go/psyche/proof/sim/timeline"
)

// second is the unit of virtual times, which are nanoseconds since the start of a run.
const second = int64(time.Second)

// Options of one run.
type Options struct {
	Seed    uint64
	Clients int             // 1 … coordinator.MaxClients
	Rounds  int             // rounds of the run while faults go on; about as many follow
	Faults  scenario.Faults // AllFaults: the seed chooses some
	Links   bool            // links have a bandwidth, and messages a size
	Trace   bool            // keep a line for every thing of note

	rules rules // what a test breaks; zero: nothing
}

// world is one run.
type world struct {
	options Options
	plan    scenario.Plan
	rules   rules

	now     int64 // nanoseconds since clockStart
	events  timeline.Queue
	workers coroutine.Pool
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

	net     *links.Network    // nil: links have a delay only
	results map[[32]byte]bool // blobs that are results; nil without net

	links, lies, faults *random.Source
	cut                 []int // per client: number of partitions between it and the other clients
	cutHost             []int // per client: number of partitions between it and the host
	dataDown            int64 // until when no data server answers

	hash  uint64 // of everything that happened
	steps uint64 // number of events
	trace []string
}

// after calls a function in so many nanoseconds.
func (w *world) after(d int64, call func()) { w.events.Put(w.now+d, call) }

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
