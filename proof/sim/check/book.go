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

// second is a second in virtual time, which is in nanoseconds since the start of a run.
const second = int64(time.Second)

// Checker records the events of a history and checks the assertions.
type Checker struct {
	run  *Run
	host Host // host of the history

	chain     chain
	actions   map[disk.Signature]bool // accepted actions that were not lost in a crash
	acked     map[disk.Signature]bool
	seedChain [32]byte // during the previous round
	drawn     [32]byte // commitment that the next draw has to open
	secrets   secrets  // members' commitments and reveals
	nextData  uint64
	nextStep  uint32
	votedStep uint32 // of voted
	voted     []coordinator.ClientID

	late    map[coordinator.ClientID]uint32 // late members of this epoch, by the step of the finding
	slow    map[coordinator.ClientID]bool   // in this epoch, by a second finding
	dropped map[coordinator.ClientID]bool   // in this epoch, by accusation

	probation map[coordinator.ClientID]uint32 // end of probation of all present and former members
	seats     seats
	signed    map[signing][32]byte
	ejected   map[coordinator.ClientID]uint32   // first epoch in which it may be back
	joined    map[coordinator.ClientID][32]byte // the seed chain when a pending client joined
	admitted  map[coordinator.ClientID]bool     // clients that ever joined
	pace      pace
	courts    courts

	challenges challenges
	reports    reports
	shares     shares
	books      []book // of the newest states, only if the run trains lost sequences again
	booksLost  bool
	outlet     outlet

	applying    []uint32                  // per client: the applied step whose replica hash is not compared yet
	Convicted   map[coordinator.Fault]int // number of ejections by votes, in all histories
	replicas    map[uint32][32]byte       // by step, from the first honest client
	expectation *coordinator.State        // after the last crash
	lostActions []disk.Signature          // actions lost in the last crash
	healedAt    int64
	healedStep  uint32
	outvoted    bool // too few honest members to record the checkpoint of the newest epoch
}

// New returns the Checker of a run that has not started.
func New(run *Run, h Host) *Checker {
	c := &Checker{
		run: run, host: h, actions: make(map[disk.Signature]bool), acked: make(map[disk.Signature]bool),
		nextStep: 1, replicas: make(map[uint32][32]byte),
		seats: seats{make(map[coordinator.ClientID]int)}, signed: make(map[signing][32]byte), ejected: make(map[coordinator.ClientID]uint32), joined: make(map[coordinator.ClientID][32]byte), admitted: make(map[coordinator.ClientID]bool), courts: newCourts(), challenges: newChallenges(),
		reports: reportsOf(&coordinator.State{}), shares: sharesOf(&coordinator.State{}),
		late: make(map[coordinator.ClientID]uint32), slow: make(map[coordinator.ClientID]bool), dropped: make(map[coordinator.ClientID]bool),
		probation: make(map[coordinator.ClientID]uint32),
		seedChain: sha256.Sum256([]byte("psyche/seed/v1" + scenario.RunID)),
	}
	members := len(run.Cast.Members)
	c.chain, c.outlet, c.applying, c.Convicted = newChain(c), newOutlet(members), make([]uint32, members), make(map[coordinator.Fault]int)
	return c
}

// Clone returns a Checker for a fork of the history.
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
	other.reports, other.shares, other.books = c.reports.clone(), c.shares.clone(), slices.Clone(c.books)
	other.pace.announced, other.pace.sequence = maps.Clone(c.pace.announced), maps.Clone(c.pace.sequence)
	other.courts, other.challenges, other.outlet = c.courts.clone(), c.challenges.clone(), c.outlet.clone()
	other.expectation, other.lostActions = nil, nil
	return &other
}

// Violate reports a violated assertion. The first violation ends the run.
func (c *Checker) Violate(a Assertion, format string, args ...any) {
	c.run.Violate(&Violation{a, fmt.Sprintf(format, args...), float64(c.run.Now()) / float64(second)})
}

// NameOf returns the name of a client in a violation.
func (c *Checker) NameOf(id coordinator.ClientID) string {
	if id == scenario.HostID {
		return "the host"
	}
	if m := c.run.Cast.Find(identity.ID(id)); m != nil {
		return m.Name()
	}
	return "an unknown client"
}

// honest reports whether all assertions apply to a client.
func (c *Checker) honest(id coordinator.ClientID) bool {
	return c.run.Cast.Of(id).Honest()
}

// stateMark is the Checker's memory of a state before a tick.
type stateMark struct {
	runState   coordinator.RunState
	start      uint64
	step       uint32
	checkpoint coordinator.Checkpoint
	seats      int                  // members at the start of the epoch
	waited     []coordinator.Client // pending clients
	left       []coordinator.Client // clients that left the previous epoch
	members    []coordinator.Client // members at the end of a round or an epoch
	earlier    []coordinator.Recorded
	gaps       []coordinator.RollbackGap
	uploads    []coordinator.Upload
}

// MarkOf returns the stateMark of a state.
func MarkOf(s *coordinator.State) stateMark {
	mark := stateMark{s.RunState, s.StateStart, s.Progress.Step, s.Model.Checkpoint, len(s.Epoch.Clients) + len(s.Epoch.Exited), nil, nil, nil, nil, nil, nil}
	if s.RunState == coordinator.WaitingForMembers {
		mark.waited, mark.left = slices.Clone(s.Pending), slices.Clone(s.Epoch.Exited)
		mark.earlier, mark.uploads = slices.Clone(s.Earlier), slices.Clone(s.Uploads)
		mark.gaps = slices.Clone(s.RollbackGaps)
	}
	if s.RunState == coordinator.RoundWitness || s.RunState == coordinator.Cooldown {
		mark.members = slices.Clone(s.Epoch.Clients)
	}
	return mark
}

// secrets are the commitments of members, and their combined reveals.
type secrets struct {
	committed map[coordinator.ClientID][32]byte
	revealed  [32]byte
}

// secretsOf reads secrets from a state without checking it against earlier states.
func secretsOf(s *coordinator.State) secrets {
	known := secrets{committed: make(map[coordinator.ClientID][32]byte), revealed: s.Reveals}
	for _, clients := range [][]coordinator.Client{s.Departed, s.Epoch.Exited, s.Epoch.Clients, s.Pending} {
		for i := range clients {
			known.committed[clients[i].ID] = clients[i].Commitment
		}
	}
	return known
}

// pace records the times of announcements in the running round.
type pace struct {
	step      uint32
	began     int64
	announced map[coordinator.ClientID]int64
	left      int64                          // time of the last departure or offer of a member, which reduces the awaited trainers
	trained   int64                          // longest training of an honest client in this epoch, or time until its announcement
	sequence  map[coordinator.ClientID]int64 // longest time that an honest client needed for a sequence in this epoch
	guesses   int                            // rounds of this epoch that lasted longer than this training allows
}

// seats are the seats at the start of an epoch, with the number of returns to each.
type seats struct {
	returns map[coordinator.ClientID]int
}

// signing is a result that a client signed.
type signing struct {
	machine int
	step    uint32
	batch   assign.BatchID
}

// tried is the Checker's record of a trial.
type tried struct {
	slot             uint8
	accused, accuser coordinator.ClientID
	fault            coordinator.Fault
	step, since      uint32
	sinceTime        uint64
	jury             []coordinator.ClientID // nil: not drawn yet
	votes            map[coordinator.ClientID]bool
}

// waiter is the Checker's record of a pending client.
type waiter struct {
	complaints int  // received since the client became pending
	holds      bool // the client holds the run's model
}

// courts is the Checker's independent record of trials.
type courts struct {
	trials     []*tried
	complaints map[coordinator.ClientID]int    // of present and former members of the epoch
	waiting    map[coordinator.ClientID]waiter // pending clients
	kept       map[coordinator.ClientID]uint32 // last epoch from which an ejected client is excluded
}

func newCourts() courts {
	return courts{
		complaints: make(map[coordinator.ClientID]int), waiting: make(map[coordinator.ClientID]waiter),
		kept: make(map[coordinator.ClientID]uint32),
	}
}

func (c *courts) clone() courts {
	other := courts{complaints: maps.Clone(c.complaints), waiting: maps.Clone(c.waiting), kept: maps.Clone(c.kept)}
	for _, t := range c.trials {
		tried := *t
		tried.jury, tried.votes = slices.Clone(t.jury), maps.Clone(t.votes)
		other.trials = append(other.trials, &tried)
	}
	return other
}

// courtsOf reads courts from a state without checking it against earlier states. A state does not
// contain the individual votes of jurors, so courtsOf invents votes that match the counts.
func courtsOf(s *coordinator.State) courts {
	c := newCourts()
	for _, members := range [][]coordinator.Client{s.Epoch.Exited, s.Epoch.Clients} {
		for i := range members {
			c.complaints[members[i].ID] = int(members[i].Complaints)
		}
	}
	for i := range s.Pending {
		m := &s.Pending[i]
		c.waiting[m.ID] = waiter{int(m.Complaints), m.HoldsModel}
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
		for i := byte(0); len(known.jury) < int(t.Jurors); i++ { // jurors that the state no longer contains
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

// challenges are the audit seeds. They are drawn at the end of a round, from its witnesses' reveals
// and the chain that includes the next draw.
type challenges struct {
	running [32]byte            // reveals of the running round's witnesses
	seeds   map[uint32][32]byte // of completed rounds, by step
}

func newChallenges() challenges { return challenges{seeds: make(map[uint32][32]byte)} }

func (c *challenges) clone() challenges { return challenges{c.running, maps.Clone(c.seeds)} }

// challengesOf reads challenges from a state without checking it against earlier states.
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

// reports are the models that members of an epoch reported, computed from their actions alone.
type reports struct {
	said   map[coordinator.ClientID]coordinator.Recorded // newest report of each member
	commit coordinator.Recorded                          // newest model with enough reports during the rounds
	holds  map[coordinator.ClientID]bool                 // members that reported commit and did not return since
}

// reportsOf reads reports from a state that was recovered after a crash.
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

// clone returns reports for a fork of the history.
func (r *reports) clone() reports { return reports{maps.Clone(r.said), r.commit, maps.Clone(r.holds)} }

// outlet records the host's communication with clients, and their visible connections.
type outlet struct {
	shown    uint64                    // number of records at the newest published state
	promised map[disk.Signature]uint64 // number of the record of each accepted action that must be published before its answer
	away     []int64                   // per client: since when the host can know that it is disconnected; 0: connected
	came     []int64                   // per client: time of the last admission

	forgotten map[coordinator.ClientID]bool // clients whose network the host has not learned since its start
	known     bool                          // the acting client already takes part, or may return
}

func newOutlet(machines int) outlet {
	return outlet{promised: make(map[disk.Signature]uint64), away: make([]int64, machines), came: make([]int64, machines), forgotten: make(map[coordinator.ClientID]bool)}
}

func (o outlet) clone() outlet {
	o.promised, o.forgotten, o.away, o.came = maps.Clone(o.promised), maps.Clone(o.forgotten), slices.Clone(o.away), slices.Clone(o.came)
	return o
}

// electedOf returns the number of witnesses of a round, from the configuration alone.
func electedOf(r *coordinator.Round, config coordinator.Config) int {
	if config.WitnessNodes > 0 {
		return min(len(r.Members), int(config.WitnessNodes))
	}
	return min(len(r.Members), 32)
}

// QuorumOf returns ⌈2n/3⌉, computed differently from package assign.
func QuorumOf(n int) int {
	q := 0
	for 3*q < 2*n {
		q++
	}
	return q
}
