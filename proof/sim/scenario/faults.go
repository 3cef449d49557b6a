package scenario

import (
	"errors"
	"fmt"
	"strings"
)

// Faults is a set of kinds of faults.
type Faults uint32

// The kinds of faults. Up to DataFailure they stop when the network heals; participants
// that lie never stop.
const (
	Drop            Faults = 1 << iota // messages are lost, connections break
	Delay                              // messages take seconds
	Reorder                            // messages overtake each other
	Duplicate                          // messages and actions arrive again, also much later
	Partition                          // clients are cut off from each other or from the host
	Crash                              // clients are killed and started again
	HostCrash                          // the host is killed and started again
	SlowDisk                           // the host's disk takes seconds
	TornWrite                          // what the host was writing when it was killed is there in part
	ClockJump                          // the host's clock jumps, forwards and backwards
	Starve                             // the processors of some clients do nothing for seconds
	DataFailure                        // no data server answers for seconds
	LyingWitness                       // false filters, roots, replicas and checkpoints, and proofs of members that were not elected
	SilentTrainer                      // trains nothing
	InvalidResult                      // announces what is no result
	Equivocation                       // announces two results, each to half of the others
	FalseAccuser                       // accuses honest members
	HiddenResult                       // announces others to some in the place of its result, and many when the round is over
	Gang                               // nearly a third of the members play every role together: they evict, and replace the model
	GangHost                           // the host is of the gang: it leaves out, withdraws, turns its clock, and shows two histories
	CheatingTrainer                    // sends what an audit stops, and opens it or not
	Silent                             // opens its results to nobody, late, or to some only
	Fleeing                            // leaves when it is asked to open a result, and comes back
	Slanderer                          // accuses anybody of anything, and finds everybody guilty
	AllFaults       Faults = 1<<iota - 1
	NoFaults        Faults = 0
	HonestFaults           = AllFaults &^ Liars // what can go wrong where nobody lies
)

// Liars of runs whose links have a bandwidth. AllFaults does not contain them.
const (
	Hog      Faults = 1 << (iota + 24) // requests what slow members serve, again and again, and reads slowly
	Withhold                           // trains, and opens its results in part or to some only
)

// LinkLiars are the liars of runs with links, alone or in a coalition.
const LinkLiars = Slanderer | Hog | Withhold | Gang

// Liars are all kinds of members that lie.
const Liars = LyingWitness | SilentTrainer | InvalidResult | Equivocation | FalseAccuser | HiddenResult | Gang | GangHost |
	AuditLiars | Hog | Withhold

// AuditLiars are those of whom audits and trials are.
const AuditLiars = CheatingTrainer | Silent | Fleeing | Slanderer

var faultNames = []string{
	"drop", "delay", "reorder", "duplicate", "partition", "crash", "host-crash", "slow-disk", "torn-write",
	"clock-jump", "starve", "data-failure", "lying-witness", "silent-trainer", "invalid-result", "equivocation", "false-accuser",
	"hidden-result", "gang", "gang-host", "cheating-trainer", "silent", "fleeing", "slanderer",
	"hog", "withhold",
}

// errUnknownFault says that a list of faults has a name that there is not.
var errUnknownFault = errors.New("unknown fault")

// ParseFaults reads "all", "honest", "none", or names separated by commas.
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

// String returns what ParseFaults reads.
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
