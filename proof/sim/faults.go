package sim

import "github.com/psyche-go/psyche/proof/sim/scenario"

// strike injects a fault, unless the network has already healed.
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
			return // healing has ended the partition
		}
		for _, i := range f.Clients {
			counts[i]--
		}
		w.host.reconnected()
	})
	w.host.reconnected()
}

// heal ends all faults except Byzantine behaviour.
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
