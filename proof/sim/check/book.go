package check

import (
	"time"

	"crypto/sha256"
	"fmt"
	"maps"
	"slices"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/core/assign"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/proof/sim/disk"
	"github.com/psyche-go/psyche/proof/sim/scenario"
)

// second is the unit of virtual times, which are nanoseconds since the start of a run.
const second = int64(time.Second)

// Checker knows what happened and asserts what has to hold.
type Checker struct {
	run  *Run
	host Host // whose history it is

	chain     chain
	actions   map[disk.Signature]bool // accepted ones that are not lost in a crash
	acked     map[disk.Signature]bool
	seedChain [32]byte // while the round before ran
	drawn     [32]byte // what the next draw has to open
	secrets   secrets  // that members committed to and revealed
	nextData  uint64
	nextStep  uint32
	votedStep uint32 // of voted
	voted     []coordinator.ClientID

	late    map[coordinator.ClientID]uint32 // in this epoch, and by the witnesses of which step
	slow    map[coordinator.ClientID]bool   // in this epoch, by a second finding
	dropped map[coordinator.ClientID]bool   // in this epoch, by accusation

	probation map[coordinator.ClientID]uint32 // until when, of all that ever were members
	seats     seats
	signed    map[signing][32]byte
	ejected   map[coordinator.ClientID]uint32   // before which epoch it cannot be back
	joined    map[coordinator.ClientID][32]byte // the seed chain when who waits joined
	admitted  map[coordinator.ClientID]bool     // who ever joined
	pace      pace
	courts    courts

	challenges challenges
	reports    reports
	outlet     outlet

	applying    []uint32                  // per client: the step that it applied and whose replica hash is not compared yet
	Convicted   map[coordinator.Fault]int // how often a vote ejected somebody, in all histories
	replicas    map[uint32][32]byte       // by step, as the first honest client had it
	expectation *coordinator.State        // after the crash that was last
	lostActions []disk.Signature          // in that crash
	healedAt    int64
	healedStep  uint32
	outvoted    bool // the honest members were too few to record the checkpoint of the newest epoch
}

// New returns one of a run that has not begun.
func New(run *Run, h Host) *Checker {
	c := &Checker{
		run: run, host: h, actions: make(map[disk.Signature]bool), acked: make(map[disk.Signature]bool),
		nextStep: 1, replicas: make(map[uint32][32]byte),
		seats: seats{make(map[coordinator.ClientID]int)}, signed: make(map[signing][32]byte), ejected: make(map[coordinator.ClientID]uint32), joined: make(map[coordinator.ClientID][32]byte), admitted: make(map[coordinator.ClientID]bool), courts: newCourts(), challenges: newChallenges(),
		reports: reportsOf(&coordinator.State{}),
		late:    make(map[coordinator.ClientID]uint32), slow: make(map[coordinator.ClientID]bool), dropped: make(map[coordinator.ClientID]bool),
		probation: make(map[coordinator.ClientID]uint32),
		seedChain: sha256.Sum256([]byte("psyche/seed/v1" + scenario.RunID)),
	}
	members := len(run.Cast.Members)
	c.chain, c.outlet, c.applying, c.Convicted = newChain(c), newOutlet(members), make([]uint32, members), make(map[coordinator.Fault]int)
	return c
}

// Clone returns a checker of another history that has been the same so far.
func (c *Checker) Clone(h Host) *Checker {
	other := *c
	other.host = h
	other.chain = c.chain
	other.chain.checker = &other
	other.chain.models, other.chain.steps = maps.Clone(c.chain.models), maps.Clone(c.chain.steps)
	other.chain.starts, other.chain.skipped = maps.Clone(c.chain.starts), maps.Clone(c.chain.skipped)
	other.actions, other.acked = maps.Clone(c.actions), maps.Clone(c.acked)
	other.secrets.committed = maps.Clone(c.secrets.committed)
	other.voted, other.applying = slices.Clone(c.voted), slices.Clone(c.applying)
	other.late, other.slow, other.dropped = maps.Clone(c.late), maps.Clone(c.slow), maps.Clone(c.dropped)
	other.probation, other.signed, other.replicas = maps.Clone(c.probation), maps.Clone(c.signed), maps.Clone(c.replicas)
	other.seats.returns, other.ejected, other.joined = maps.Clone(c.seats.returns), maps.Clone(c.ejected), maps.Clone(c.joined)
	other.reports = c.reports.clone()
	other.pace.announced = maps.Clone(c.pace.announced)
	other.courts, other.challenges, other.outlet = c.courts.clone(), c.challenges.clone(), c.outlet.clone()
	other.expectation, other.lostActions = nil, nil
	return &other
}

// Violate says that an assertion is broken; the run ends with the first.
func (c *Checker) Violate(a Assertion, format string, args ...any) {
	c.run.Violate(&Violation{a, fmt.Sprintf(format, args...), float64(c.run.Now()) / float64(second)})
}

// NameOf is what a violation calls whoever acted.
func (c *Checker) NameOf(id coordinator.ClientID) string {
	if id == scenario.HostID {
		return "the host"
	}
	if m := c.run.Cast.Find(identity.ID(id)); m != nil {
		return m.Name()
	}
	return "a stranger"
}

// honest reports whether a client is held to everything.
func (c *Checker) honest(id coordinator.ClientID) bool {
	return c.run.Cast.Of(id).Honest()
}

// stateMark is what the checker remembers of a state before a tick.
type stateMark struct {
	runState   coordinator.RunState
	start      uint64
	step       uint32
	checkpoint coordinator.Checkpoint
	seats      int                  // members that the epoch began with
	waited     []coordinator.Client // for an epoch
	left       []coordinator.Client // the epoch that is over
	members    []coordinator.Client // when a round or an epoch ends
	earlier    []coordinator.Recorded
	lapses     []coordinator.Lapse
	uploads    []coordinator.Upload
}

// MarkOf returns what has to be remembered of a state.
func MarkOf(s *coordinator.State) stateMark {
	mark := stateMark{s.RunState, s.StateStart, s.Progress.Step, s.Model.Checkpoint, len(s.Epoch.Clients) + len(s.Epoch.Exited), nil, nil, nil, nil, nil, nil}
	if s.RunState == coordinator.WaitingForMembers {
		mark.waited, mark.left = slices.Clone(s.Pending), slices.Clone(s.Epoch.Exited)
		mark.earlier, mark.uploads = slices.Clone(s.Earlier), slices.Clone(s.Uploads)
		mark.lapses = slices.Clone(s.Lapses)
	}
	if s.RunState == coordinator.RoundWitness || s.RunState == coordinator.Cooldown {
		mark.members = slices.Clone(s.Epoch.Clients)
	}
	return mark
}

// secrets is what members committed to, and what they revealed together.
type secrets struct {
	committed map[coordinator.ClientID][32]byte
	revealed  [32]byte
}

// secretsOf reads them from a state that is not checked against what was before.
func secretsOf(s *coordinator.State) secrets {
	known := secrets{committed: make(map[coordinator.ClientID][32]byte), revealed: s.Reveals}
	for _, clients := range [][]coordinator.Client{s.Departed, s.Epoch.Exited, s.Epoch.Clients, s.Pending} {
		for i := range clients {
			known.committed[clients[i].ID] = clients[i].Commitment
		}
	}
	return known
}

// pace is when the results of the running round were announced.
type pace struct {
	step      uint32
	began     int64
	announced map[coordinator.ClientID]int64
	left      int64 // when a member left last: fewer trainers are awaited since
	trained   int64 // the longest training of an honest client that ended in this round or the one before
	ended     int64 // the longest that ended in this round
}

// seats are those that an epoch began with, and how often each was taken back.
type seats struct {
	returns map[coordinator.ClientID]int
}

// signing is what a client signed a result of.
type signing struct {
	machine int
	step    uint32
	batch   assign.BatchID
}

// tried is what the checker knows of a trial.
type tried struct {
	slot             uint8
	accused, accuser coordinator.ClientID
	fault            coordinator.Fault
	step, since      uint32
	sinceTime        uint64
	jury             []coordinator.ClientID // nil: it is not drawn
	votes            map[coordinator.ClientID]bool
}

// courts is the checker's own book of trials.
type courts struct {
	trials     []*tried
	complaints map[coordinator.ClientID]int    // of clients that are or were members of the epoch
	between    map[coordinator.ClientID]int    // that came since the epoch before was over
	kept       map[coordinator.ClientID]uint32 // until which epoch an ejected client is kept out
}

func newCourts() courts {
	return courts{
		complaints: make(map[coordinator.ClientID]int), between: make(map[coordinator.ClientID]int),
		kept: make(map[coordinator.ClientID]uint32),
	}
}

func (c *courts) clone() courts {
	other := courts{complaints: maps.Clone(c.complaints), between: maps.Clone(c.between), kept: maps.Clone(c.kept)}
	for _, t := range c.trials {
		tried := *t
		tried.jury, tried.votes = slices.Clone(t.jury), maps.Clone(t.votes)
		other.trials = append(other.trials, &tried)
	}
	return other
}

// courtsOf reads them from a state that is not checked against what was before. How each juror has
// voted is in no state: it is made up from how many have.
func courtsOf(s *coordinator.State) courts {
	c := newCourts()
	for _, members := range [][]coordinator.Client{s.Pending, s.Epoch.Exited, s.Epoch.Clients} {
		for i := range members {
			c.complaints[members[i].ID] = int(members[i].Complaints)
			if !running(s.RunState) {
				c.between[members[i].ID] = int(members[i].Complaints)
			}
		}
	}
	for _, t := range s.Trials {
		known := &tried{t.Slot, t.Accused, t.Accuser, t.Fault, t.Step, t.Since, t.SinceTime, nil, make(map[coordinator.ClientID]bool)}
		for _, members := range [][]coordinator.Client{s.Epoch.Clients, s.Pending, s.Epoch.Exited, s.Departed} {
			for i := range members {
				m := &members[i]
				if m.Juror>>t.Slot&1 == 0 || slices.Contains(known.jury, m.ID) {
					continue
				}
				known.jury = append(known.jury, m.ID)
				if m.Voted>>t.Slot&1 == 1 {
					known.votes[m.ID] = len(known.votes) < int(t.Guilty)
				}
			}
		}
		for i := byte(0); len(known.jury) < int(t.Jurors); i++ { // jurors that are forgotten
			known.jury = append(known.jury, coordinator.ClientID{i})
		}
		for i := byte(0); len(known.votes) < int(t.Guilty+t.Innocent); i++ {
			known.votes[coordinator.ClientID{i}] = len(known.votes) < int(t.Guilty)
		}
		c.trials = append(c.trials, known)
	}
	for _, e := range s.Authority.Ejections {
		c.kept[e.Client] = e.Until
	}
	return c
}

// challenges are what results are audited by: drawn when their round is over, by what its witnesses
// revealed and by the chain that the next draw went into.
type challenges struct {
	running [32]byte            // what the running round's witnesses revealed
	seeds   map[uint32][32]byte // of rounds that are over, by step
}

func newChallenges() challenges { return challenges{seeds: make(map[uint32][32]byte)} }

func (c *challenges) clone() challenges { return challenges{c.running, maps.Clone(c.seeds)} }

// challengesOf reads them from a state that is not checked against what was before.
func challengesOf(s *coordinator.State) challenges {
	c := newChallenges()
	for i := range s.Epoch.Rounds {
		round := &s.Epoch.Rounds[i]
		if seed, over := s.AuditSeed(round.Step); over {
			c.seeds[round.Step] = seed
		} else {
			c.running = round.Challenge
		}
	}
	return c
}

// reports are what the checker knows of the models that members of an epoch reported, from their
// actions alone.
type reports struct {
	said   map[coordinator.ClientID]coordinator.Recorded // by each, last
	commit coordinator.Recorded                          // the newest that enough reported while rounds ran
	holds  map[coordinator.ClientID]bool                 // who said that it holds that, and did not return since
}

// reportsOf is what a state says that was read again after a crash.
func reportsOf(s *coordinator.State) reports {
	r := reports{make(map[coordinator.ClientID]coordinator.Recorded), s.Epoch.Commit, make(map[coordinator.ClientID]bool)}
	if s.RunState != coordinator.RoundTrain && s.RunState != coordinator.RoundWitness && s.RunState != coordinator.Cooldown {
		return r
	}
	for _, m := range slices.Concat(s.Epoch.Clients, s.Epoch.Exited) {
		if m.Report.Step != 0 {
			r.said[m.ID] = m.Report
		}
		if r.commit.Step != 0 && m.HoldsEarlier == r.commit.Step {
			r.holds[m.ID] = true
		}
	}
	return r
}

// clone is of another history that has been the same so far.
func (r *reports) clone() reports { return reports{maps.Clone(r.said), r.commit, maps.Clone(r.holds)} }

// outlet is what clients saw and heard of their host, and what it could see of them.
type outlet struct {
	shown    uint64                    // records behind the newest state that was shown
	promised map[disk.Signature]uint64 // of each accepted action that is shown before its answer: the number of its record
	away     []int64                   // per client: since when the host can know that its connection is gone; 0: it is not
	came     []int64                   // per client: when it was let in last

	forgotten map[coordinator.ClientID]bool // whose network the host has not learnt since it started
	known     bool                          // whoever acts now takes part already, or may come back
}

func newOutlet(machines int) outlet {
	return outlet{promised: make(map[disk.Signature]uint64), away: make([]int64, machines), came: make([]int64, machines), forgotten: make(map[coordinator.ClientID]bool)}
}

func (o outlet) clone() outlet {
	o.promised, o.forgotten, o.away, o.came = maps.Clone(o.promised), maps.Clone(o.forgotten), slices.Clone(o.away), slices.Clone(o.came)
	return o
}

// electedOf is how many witnesses a round has, from the configuration alone.
func electedOf(r *coordinator.Round, config coordinator.Config) int {
	if config.WitnessNodes > 0 {
		return min(len(r.Members), int(config.WitnessNodes))
	}
	return min(len(r.Members), 32)
}

// QuorumOf is ⌈2n/3⌉, counted another way than package assign does.
func QuorumOf(n int) int {
	q := 0
	for 3*q < 2*n {
		q++
	}
	return q
}
