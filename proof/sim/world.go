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

// second is a second in virtual time, which is in nanoseconds since the start of a run.
const second = int64(time.Second)

// Options configure one run.
type Options struct {
	Seed    uint64
	Clients int             // 1 … coordinator.MaxClients
	Rounds  int             // rounds of the run with faults; about as many follow
	Faults  scenario.Faults // AllFaults: the seed chooses some
	Links   bool            // links have a bandwidth, and messages a size
	Shares  bool            // members offer speeds, which determine their shares
	Retries bool            // the run trains sequences again if their results did not count
	Trace   bool            // record a line for every notable event

	rules rules // protocol changes of a test; zero: none
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
	other      *host // shows a different history to some clients; nil: none
	machines   []*machine
	cast       *cast.Cast
	registry   signatures.Registry
	draws      draws
	view       check.Run        // the checkers' view
	recomputed int              // gradients computed for audits and trials
	violation  *check.Violation // the first

	net     *links.Network    // nil: links only have a delay
	results map[[32]byte]bool // blobs that are results; nil without net

	links, attacks, faults, offers *random.Source
	cut                            []int // per client: number of partitions between it and the other clients
	cutHost                        []int // per client: number of partitions between it and the host
	dataDown                       int64 // end of the time without data servers

	hash  uint64 // of all events
	steps uint64 // number of events
	trace []string
}

// after schedules a call in d nanoseconds.
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

// Violate implements check.View. The first violation ends the run.
func (w *world) Violate(v *check.Violation) {
	if w.violation == nil {
		w.violation = v
		w.Note('V', 0, 0, func() string { return "VIOLATION " + v.Error() })
	}
}

// origin returns a client's network and its seat limit. All coalition members come from one
// network, other clients from unlimited networks.
func (w *world) origin(m *cast.Member) core.Origin {
	if !m.HasRole(scenario.Coalition) {
		return core.Origin{}
	}
	return core.Origin{Network: netip.MustParsePrefix("203.0.113.0/24"), Most: w.plan.Crew.Size}
}

// Note records an event. text is only called for a trace.
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

// stamp adds the virtual time to a line.
func (w *world) stamp(line string) string {
	return fmt.Sprintf("%9.3f %s", float64(w.now)/float64(second), line)
}

// extraDelay returns the extra delay of a message due to faults.
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
