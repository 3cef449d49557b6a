package scenario

import (
	"errors"
	"fmt"
	"strings"
)

// Faults is a set of kinds of faults.
type Faults uint32

// The kinds of faults. Kinds up to DataFailure stop when the network heals. Byzantine behaviour
// never stops.
const (
	Drop            Faults = 1 << iota // messages are lost, connections break
	Delay                              // messages take seconds
	Reorder                            // messages overtake each other
	Duplicate                          // messages and actions arrive again, also much later
	Partition                          // clients are disconnected from each other or from the host
	Crash                              // clients are killed and restarted
	HostCrash                          // the host is killed and restarted
	SlowDisk                           // the host's disk takes seconds
	TornWrite                          // a crash of the host leaves a part of its current write
	ClockJump                          // the host's clock jumps, forwards and backwards
	Starve                             // the processors of some clients stall for seconds
	DataFailure                        // no data server answers for seconds
	LyingWitness                       // false filters, roots, replicas and checkpoints, and proofs of members that were not elected
	SilentTrainer                      // does not train
	InvalidResult                      // announces an invalid result
	Equivocation                       // announces two results, each to half of the other members
	FalseAccuser                       // accuses honest members
	HiddenResult                       // announces decoys to some members instead of its result, and many after the round
	Coalition                          // nearly a third of the members coordinate all attacks: they evict members, and replace the model
	CoalitionHost                      // the host belongs to the coalition: it drops actions, withdraws members, sets its clock, and shows two histories
	CheatingTrainer                    // sends results that fail audits, and opens them or not
	Silent                             // opens its results never, late, or to some members only
	Fleeing                            // leaves after a request for an opening, and returns
	Slanderer                          // makes arbitrary accusations, and always votes guilty
	AllFaults       Faults = 1<<iota - 1
	NoFaults        Faults = 0
	HonestFaults           = AllFaults &^ Byzantine // all faults without Byzantine behaviour
)

// Byzantine behaviour in runs whose links have a bandwidth. AllFaults does not contain it.
const (
	Hog      Faults = 1 << (iota + 24) // repeatedly requests data from slow members, and reads slowly
	Withhold                           // trains, but opens its results in part or to some members only
)

// ByzantineOnLinks contains the Byzantine behaviours in runs with links, alone or in a coalition.
const ByzantineOnLinks = Slanderer | Hog | Withhold | Coalition

// Byzantine contains all Byzantine behaviours.
const Byzantine = LyingWitness | SilentTrainer | InvalidResult | Equivocation | FalseAccuser | HiddenResult | Coalition | CoalitionHost |
	ByzantineInAudits | Hog | Withhold

// ByzantineInAudits contains the behaviours that audits and trials target.
const ByzantineInAudits = CheatingTrainer | Silent | Fleeing | Slanderer

var faultNames = []string{
	"drop", "delay", "reorder", "duplicate", "partition", "crash", "host-crash", "slow-disk", "torn-write",
	"clock-jump", "starve", "data-failure", "lying-witness", "silent-trainer", "invalid-result", "equivocation", "false-accuser",
	"hidden-result", "gang", "gang-host", "cheating-trainer", "silent", "fleeing", "slanderer",
	"hog", "withhold",
}

// errUnknownFault means that a list of faults contains an unknown name.
var errUnknownFault = errors.New("unknown fault")

// ParseFaults parses "all", "honest", "none", or names separated by commas.
func ParseFaults(text string) (Faults, error) {
	switch text {
	case "all":
		return AllFaults, nil
	case "honest":
		return HonestFaults, nil
	case "none", "":
		return NoFaults, nil
	}
	var set Faults
next:
	for name := range strings.SplitSeq(text, ",") {
		for i, known := range faultNames {
			if name == known {
				set |= 1 << i
				continue next
			}
		}
		return 0, fmt.Errorf("%w %q: there are all, honest, none, %s", errUnknownFault, name, strings.Join(faultNames, ", "))
	}
	return set, nil
}

// String returns the set in the format of ParseFaults.
func (f Faults) String() string {
	switch f {
	case NoFaults:
		return "none"
	case AllFaults:
		return "all"
	case HonestFaults:
		return "honest"
	}
	return strings.Join(f.names(), ",")
}

func (f Faults) names() []string {
	var names []string
	for i, name := range faultNames {
		if f&(1<<i) != 0 {
			names = append(names, name)
		}
	}
	return names
}

// Each returns the kinds of the set one by one.
func (f Faults) Each() []Faults {
	var kinds []Faults
	for i := range faultNames {
		if kind := Faults(1 << i); f&kind != 0 {
			kinds = append(kinds, kind)
		}
	}
	return kinds
}
