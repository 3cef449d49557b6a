package sim

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/psyche-go/psyche/core/assign"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/record/follow"
)

// Assertion names what has to hold.
type Assertion string

// The assertions.
const (
	Invariants     Assertion = "coordinator.State.Check holds after every transition"
	OnceOnly       Assertion = "no batch is applied twice"
	SameReplica    Assertion = "honest clients at the same step have the same replica hash and weights"
	DataContinuous Assertion = "the data index advances by exactly what each round holds, and batches cover it"
	QuorumOrTime   Assertion = "no round advances without its quorum or its time"
	InTime         Assertion = "no phase outlasts its time, or what it waits for"
	SeedsRight     Assertion = "batch seeds are those that the chain said a round before, and witness seeds are fresh; nobody chooses what the chain takes in"
	OnlyElected    Assertion = "only elected witnesses are accepted, each once"
	CountedRight   Assertion = "exactly the results that the witnesses' quorum proved are applied, all signed by assignees"
	TrainedRight   Assertion = "an honest trainer's result that counts was made from the model that its round says"
	NotReplayed    Assertion = "no action is accepted twice"
	OwnSeat        Assertion = "a member that left takes its own seat back, as late as it left, three times in an epoch at most, and nobody else gets one while rounds run"
	SignedOnce     Assertion = "no honest client signs two results of one batch, however often it is killed"
	NotFramed      Assertion = "nobody is found late whose result a quorum of witnesses holds; nobody is dropped but by two committees, the second by its quorum; a third at most are dropped in a round, and slow in an epoch"
	SeatsFair      Assertion = "members keep their seats and their probation, newcomers are drawn, those on probation stay few, and their results are skipped"
	Ejected        Assertion = "a member that is proved to have signed two results, and nobody else, is out for the rest of the epoch and the next one"
	CheckpointTrue Assertion = "the recorded checkpoint is the model with every counted result up to its step, reported by a third of an epoch's first members"
	CommitKept     Assertion = "an epoch ends with the model of its last step, or of its newest commit point, and no run goes on from an older one than a member holds"
	ReplayEqual    Assertion = "replaying the journal gives the live state"
	NothingLost    Assertion = "an acknowledged action, and a state that was shown, survive every crash of the host"
	ShownFirst     Assertion = "a client that was answered finds what it did, but for what may wait for more of its kind"
	Patient        Assertion = "the host withdraws a member that is gone for its grace, neither earlier nor later"
	NoPaceSetter   Assertion = "where most witnesses are honest a round waits for two thirds of its trainers, and a quarter longer or two seconds"
	OneHistory     Assertion = "a client that is told of two histories while a round runs ends, with two heads that the host signed"
	Progress       Assertion = "when faults stop every honest client makes progress and the run finishes in time"
	AuditsRight    Assertion = "what audits look at is drawn when a round is over, by what its witnesses committed to and by the chain"
	FairlyTried    Assertion = "members that are past their probation accuse, of results, juries are drawn by a seed that nobody knew, eleven in twenty of one eject, and trials last as long as they should"
	NobodyFramed   Assertion = "no honest member is ejected while fewer than a third collude"
	HonestSafe     Assertion = "no honest member accuses an honest one or finds it guilty, whatever fails around them"
	NodeSound      Assertion = "no honest client fails"
)

// Violation is a broken assertion.
type Violation struct {
	Assertion Assertion
	Detail    string
	Seconds   float64 // virtual time
}

// Error returns the assertion and what broke it.
func (v *Violation) Error() string {
	return fmt.Sprintf("broken after %.3f s: %s: %s", v.Seconds, v.Assertion, v.Detail)
}

// Time that a run may take at most, in virtual seconds, once faults have stopped: what is
// left of the running phase, then the longest that rounds and epochs can last.
const slack = 120 * second

// checker knows what happened and asserts what has to hold.
type checker struct {
	world *world
	host  *host // whose history it is

	chain     chain
	actions   map[signature]bool // accepted ones that are not lost in a crash
	acked     map[signature]bool
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

	replicas    map[uint32][32]byte // by step, as the first honest client had it
	expectation *coordinator.State  // after the crash that was last
	lostActions []signature         // in that crash
	healedAt    int64
	healedStep  uint32
	outvoted    bool // the honest members were too few to record the checkpoint of the newest epoch
}

func newChecker(w *world, h *host) *checker {
	c := &checker{
		world: w, host: h, actions: make(map[signature]bool), acked: make(map[signature]bool),
		nextStep: 1, replicas: make(map[uint32][32]byte),
		seats: seats{make(map[coordinator.ClientID]int)}, signed: make(map[signing][32]byte), ejected: make(map[coordinator.ClientID]uint32), joined: make(map[coordinator.ClientID][32]byte), admitted: make(map[coordinator.ClientID]bool), courts: newCourts(), challenges: newChallenges(),
		reports: reportsOf(&coordinator.State{}),
		late:    make(map[coordinator.ClientID]uint32), slow: make(map[coordinator.ClientID]bool), dropped: make(map[coordinator.ClientID]bool),
		probation: make(map[coordinator.ClientID]uint32),
		seedChain: sha256.Sum256([]byte("psyche/seed/v1" + runID)),
	}
	c.chain, c.outlet = newChain(c), newOutlet(len(w.machines))
	return c
}

// violate notes the first broken assertion; the run ends with it.
func (c *checker) violate(a Assertion, format string, args ...any) {
	w := c.world
	if w.violation != nil {
		return
	}
	w.violation = &Violation{a, fmt.Sprintf(format, args...), float64(w.now) / float64(second)}
	w.note('V', 0, 0, func() string { return "VIOLATION " + w.violation.Error() })
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
	began      uint32               // first step of that epoch
	members    []coordinator.Client // when a round or an epoch ends
	earlier    []coordinator.Recorded
	uploads    []coordinator.Upload
}

func markOf(s *coordinator.State) stateMark {
	mark := stateMark{s.RunState, s.StateStart, s.Progress.Step, s.Model.Checkpoint, len(s.Epoch.Clients) + len(s.Epoch.Exited), nil, nil, 0, nil, nil, nil}
	if s.RunState == coordinator.WaitingForMembers {
		mark.waited, mark.left, mark.began = slices.Clone(s.Pending), slices.Clone(s.Epoch.Exited), s.Epoch.StartStep
		mark.earlier, mark.uploads = slices.Clone(s.Earlier), slices.Clone(s.Uploads)
	}
	if s.RunState == coordinator.RoundWitness || s.RunState == coordinator.Cooldown {
		mark.members = slices.Clone(s.Epoch.Clients)
	}
	return mark
}

// accepted checks an action that the host has accepted.
func (c *checker) accepted(s *coordinator.State, from coordinator.ClientID, nonce uint64, a coordinator.Action) {
	name := signature{from, nonce}
	if c.actions[name] {
		c.violate(NotReplayed, "%s of %s with nonce %d", describe(a), c.world.nameOf(from), nonce)
	}
	c.actions[name] = true
	c.promised(name, a)
	switch a.(type) {
	case coordinator.Withdraw, coordinator.Vote, coordinator.Equivocation:
		c.pace.left = c.world.now
	}
	switch a := a.(type) {
	case coordinator.Join:
		c.secrets.committed[from] = a.Commitment
		c.admitted[from] = true
		c.joins(s, from)
	case coordinator.Equivocation:
		c.proved(s, a)
	case coordinator.Ready:
		c.revealed(from, a)
	case coordinator.WitnessRound:
		c.witnessed(s, from)
		c.reveals(s, from, a)
	case coordinator.HealthCheck:
		c.accused(s, a)
	case coordinator.ReportCheckpoint:
		c.reported(s, from, a)
	case coordinator.Return:
		c.returned(s, from)
		delete(c.reports.holds, from)
		if member, ok := s.Member(from); ok { // its seat's commitment holds, not that of its place among those who wait
			c.secrets.committed[from] = member.Commitment
		}
	}
	c.courtAction(s, from, a)
}

// witnessed checks that an accepted witness was elected, by its position in the shuffle,
// and that it is there once.
func (c *checker) witnessed(s *coordinator.State, from coordinator.ClientID) {
	round := s.CurrentRound()
	if round == nil {
		c.violate(OnlyElected, "a witness outside rounds")
		return
	}
	if c.votedStep != round.Step {
		c.votedStep, c.voted = round.Step, nil
	}
	member := slices.Index(round.Members, from)
	elected := member >= 0 && assign.Position(uint32(member), uint32(len(round.Members)), round.Seed, "witness") < uint32(electedOf(round, s.Config))
	if !elected || slices.Contains(c.voted, from) {
		c.violate(OnlyElected, "%s in step %d, elected: %v", c.world.nameOf(from), round.Step, elected)
	}
	c.voted = append(c.voted, from)
}

// electedOf is how many witnesses a round has, from the configuration alone.
func electedOf(r *coordinator.Round, config coordinator.Config) int {
	if config.WitnessNodes > 0 {
		return min(len(r.Members), int(config.WitnessNodes))
	}
	return min(len(r.Members), 32)
}

// quorumOf is ⌈2n/3⌉, counted another way than package assign does.
func quorumOf(n int) int {
	q := 0
	for 3*q < 2*n {
		q++
	}
	return q
}

// accused checks that whoever was dropped is missing from the witnesses' proofs.
func (c *checker) accused(s *coordinator.State, a coordinator.HealthCheck) {
	round := s.RoundOfStep(a.Step)
	if round == nil || a.Step != s.Progress.Step-1 {
		c.violate(NotFramed, "a health check of step %d in step %d", a.Step, s.Progress.Step)
		return
	}
	quorum := quorumOf(electedOf(round, s.Config))
	for _, id := range a.Clients {
		held := 0
		for i := range round.Witnesses {
			if round.Witnesses[i].Participants.Contains(round.Seed, id[:]) {
				held++
			}
		}
		silent := electedOf(round, s.Config) - len(round.Witnesses)
		if held+silent >= quorum || len(round.Witnesses) < quorum {
			c.violate(NotFramed, "%s in step %d: %d of %d witnesses hold its result, quorum %d",
				c.world.nameOf(id), a.Step, held, len(round.Witnesses), quorum)
		}
		c.judged(s, a.Step, id, len(round.Witnesses)-held >= quorum)
	}
	c.mostJudged(s)
}

// ticked checks what a tick did.
func (c *checker) ticked(s *coordinator.State, before stateMark, now uint64) {
	c.courtsTick(now)
	if s.RunState == before.runState {
		return
	}
	if err := s.Check(); err != nil {
		c.violate(Invariants, "%v → %v: %v", before.runState, s.RunState, err)
		return
	}
	past := uint64(0)
	if now > before.start {
		past = now - before.start
	}
	switch before.runState {
	case coordinator.Warmup:
		c.punctual(before, past, s.Config.WarmupTime)
	case coordinator.RoundTrain:
		c.punctual(before, past, s.Config.MaxRoundTrainTime)
		c.roundTrained(s, past)
		c.paced(s, s.CurrentRound())
	case coordinator.RoundWitness:
		c.punctual(before, past, s.Config.RoundWitnessTime)
		if silent := c.silentWitness(s, s.RoundOfStep(before.step)); past < s.Config.RoundWitnessTime && silent >= 0 {
			c.violate(QuorumOrTime, "RoundWitness of step %d lasted %d ms, and member %d was elected and is silent", before.step, past, silent)
		}
		c.roundOver(s, before)
		c.challenged(s, before.step)
		c.blameless(s, before)
		c.courtsOver(before, now)
	case coordinator.Cooldown:
		c.punctual(before, past, s.Config.CooldownTime)
		c.epochOver(s, before)
		for i := range before.members {
			delete(c.courts.between, before.members[i].ID)
		}
	}
	if s.RunState == coordinator.RoundTrain {
		c.roundBegins(s, before)
	}
	if s.RunState == coordinator.Warmup {
		c.seated(s, before)
		c.fellBack(s, before)
		c.epochBegins(s)
		c.courtsBegin(s)
	}
	c.ejections(s)
	if s.RunState == coordinator.Finished && s.Progress.Step != s.Config.TotalSteps+1 {
		c.violate(QuorumOrTime, "finished in step %d of %d", s.Progress.Step, s.Config.TotalSteps)
	}
}

// roundTrained checks the end of RoundTrain.
func (c *checker) roundTrained(s *coordinator.State, past uint64) {
	if past >= s.Config.MaxRoundTrainTime {
		return
	}
	round := s.CurrentRound()
	quorum := quorumOf(electedOf(round, s.Config))
	if len(round.Witnesses) < quorum && !outOfReach(s, round, quorum) {
		c.violate(QuorumOrTime, "RoundTrain of step %d ended after %d ms with %d witnesses, quorum %d",
			round.Step, past, len(round.Witnesses), quorum)
	}
}

// roundBegins checks data and step of a new round.
func (c *checker) roundBegins(s *coordinator.State, before stateMark) {
	round := s.CurrentRound()
	if round.Step != c.nextStep {
		c.violate(DataContinuous, "step %d follows step %d", round.Step, c.nextStep-1)
	}
	if round.DataIndex != c.nextData || round.BatchSize != s.Config.BatchSize(round.DataIndex, simSeqLen) {
		c.violate(DataContinuous, "step %d begins at %d with %d sequences, not at %d", round.Step, round.DataIndex, round.BatchSize, c.nextData)
	}
	at, assignments := c.nextData, round.Assignments(s.Config)
	for _, a := range assignments {
		if a.Batch.Start != at || a.Batch.End <= at {
			c.violate(DataContinuous, "step %d: batch %v does not begin at %d", round.Step, a.Batch, at)
		}
		at = a.Batch.End
	}
	if at != c.nextData+uint64(round.BatchSize) {
		c.violate(DataContinuous, "step %d: batches end at %d, not at %d", round.Step, at, c.nextData+uint64(round.BatchSize))
	}
	c.nextData, c.nextStep = at, round.Step+1
	c.pace = pace{step: round.Step, began: c.world.now, announced: make(map[coordinator.ClientID]int64)}
	c.seeded(s, round)
	c.skips(s, round)
	c.juriesDrawn(round)
	c.seatsKept(s, round)
	if before.runState == coordinator.Warmup {
		c.chain.begin(s)
	}
}

// roundOver takes note of a round whose witnesses are all there.
func (c *checker) roundOver(s *coordinator.State, before stateMark) {
	round := s.RoundOfStep(before.step)
	quorum := quorumOf(electedOf(round, s.Config))
	if s.RunState == coordinator.RoundTrain && len(round.Witnesses) < quorum {
		c.violate(QuorumOrTime, "step %d had %d witnesses, quorum %d, and the epoch went on", round.Step, len(round.Witnesses), quorum)
	}
	if there := presentOf(s); s.RunState == coordinator.RoundTrain && 3*there < s.Seats() {
		c.violate(CommitKept, "the epoch goes on in step %d with %d of its %d first members: nothing can be recorded", s.Progress.Step, there, s.Seats())
	}
	c.chain.extend(round, s.Config)
}

// presentOf returns how many of the first members are there in a round that begins, or were in one of
// the four before it.
func presentOf(s *coordinator.State) int {
	there := len(s.Epoch.Clients)
	for i := range s.Epoch.Exited {
		if height := s.CurrentRound().Height; height <= 4 || s.Epoch.Exited[i].ExitedHeight >= height-4 {
			there++
		}
	}
	return there
}

// applied checks what an honest client has just made part of its model.
func (c *checker) applied(p *process, step uint32, payloads [][]byte, again *assign.BatchID) {
	c.world.note('P', uint64(p.machine.index), uint64(step), func() string {
		return fmt.Sprintf("%s applies step %d: %d results", p.machine.name(), step, len(payloads))
	})
	if !p.machine.honest() {
		return
	}
	p.applied = step
	if again != nil {
		c.violate(OnceOnly, "%s applies batch %v in step %d", p.machine.name(), *again, step)
	}
	c.chain.compare(p, step, payloads)
}

// stepped compares the replica hash of an honest client that has just applied a step.
func (c *checker) stepped(p *process) {
	hash, step, ok := p.node.Replica()
	if !ok || p.applied == 0 || step != p.applied || !p.machine.honest() {
		return
	}
	p.applied = 0
	first, known := c.replicas[step]
	if !known {
		c.replicas[step] = hash
	} else if first != hash {
		ours, theirs := hash, first // they escape only here
		c.violate(SameReplica, "%s has %x after step %d, another honest client has %x", p.machine.name(), ours[:4], step, theirs[:4])
	}
}

// ended checks a client that has left the run.
func (c *checker) ended(p *process, err error) {
	var lie *follow.Lie
	switch finished := c.host.base.RunState == coordinator.Finished; {
	case !p.machine.honest():
	case errors.As(err, &lie):
		c.deceived(p, lie)
	case err != nil:
		c.violate(NodeSound, "%s: %v", p.machine.name(), err)
	case !finished:
		c.violate(NodeSound, "%s ended before the run", p.machine.name())
	}
	for _, m := range c.world.machines {
		if m.honest() && (m.process == nil || !m.process.ended) {
			return
		}
	}
	c.world.over = true
}

// crashed works out what a host that starts again has to find: the durable state and
// those records that were written whole.
func (c *checker) crashed(base *coordinator.State, d *disk, there int) {
	expected := base.Clone()
	c.lostActions = nil
	length := 0
	for _, payload := range d.records {
		length += entryOverhead + len(payload)
		r, err := decodeRecord(payload)
		if err == nil && length <= there {
			err = c.world.rules.redo(&expected, r)
		} else if r.Kind == follow.KindAction {
			c.lostActions = append(c.lostActions, signature{coordinator.ClientID(r.Action.From), r.Action.Nonce})
		}
		if err != nil {
			c.violate(ReplayEqual, "%v", err)
		}
	}
	if length != len(d.writing) {
		c.violate(ReplayEqual, "%d bytes are written, the records have %d", len(d.writing), length)
	}
	c.expectation = &expected
}

// entryOverhead is what the journal adds to a record: length, hash before, check, hash.
const entryOverhead = 4 + 32 + 4 + 32

// replayed checks what a host that starts has found.
func (c *checker) replayed(log *follow.Follower, actions []signature, err error) {
	if err != nil {
		c.violate(ReplayEqual, "%v", err)
		return
	}
	s := &log.State
	c.survived(log.Head().Index)
	if c.expectation != nil && s.Hash() != c.expectation.Hash() {
		c.violate(ReplayEqual, "in %v of step %d, expected %v of step %d",
			s.RunState, s.Progress.Step, c.expectation.RunState, c.expectation.Progress.Step)
	}
	c.expectation = nil
	for _, name := range c.lostActions {
		delete(c.actions, name)
	}
	found := make(map[signature]bool, len(actions))
	for _, name := range actions {
		found[name] = true
	}
	for _, m := range c.world.machines { // in an order that does not depend on the map
		c.lost(coordinator.ClientID(m.id), found)
	}
	c.rewind(s)
}

// lost looks for acknowledged actions of a client that are not in the journal.
func (c *checker) lost(id coordinator.ClientID, found map[signature]bool) {
	least := uint64(0)
	for name := range c.acked {
		if name.from == id && !found[name] && (least == 0 || name.nonce < least) {
			least = name.nonce
		}
	}
	if least != 0 {
		c.violate(NothingLost, "the action of %s with nonce %d", c.world.nameOf(id), least)
	}
}

// rewind takes back what the checker noted of a state that nobody ever saw.
func (c *checker) rewind(s *coordinator.State) {
	c.nextData, c.nextStep, c.seedChain = s.Progress.DataIndex, s.Progress.Step, s.SeedChain
	c.drawn, c.secrets = s.DrawCommitment, secretsOf(s)
	c.rewindFindings(s)
	c.rewindSeats(s)
	c.rewindEjections(s)
	clear(c.joined)
	c.pace, c.courts, c.challenges = pace{}, courtsOf(s), challengesOf(s)
	c.reports = reportsOf(s)
	switch s.RunState {
	case coordinator.RoundTrain, coordinator.RoundWitness:
		c.nextStep++
	}
	c.voted = nil
	c.votedStep = 0
	if round := s.CurrentRound(); round != nil {
		c.votedStep = round.Step
		for _, w := range round.Witnesses {
			c.voted = append(c.voted, round.Members[w.Member])
		}
	}
}

// healed notes when faults stopped.
func (c *checker) healed() {
	c.healedAt = c.world.now
	c.healedStep = c.host.state.Progress.Step
}

// deadline is the time by which the run has to be over.
func (c *checker) deadline() int64 {
	if !c.world.healed {
		return 1 << 62
	}
	k := c.world.plan.config
	rounds := int64(k.TotalSteps) + 1 - int64(c.healedStep)
	round := int64(k.MaxRoundTrainTime + k.RoundWitnessTime + 2000)
	epoch := int64(k.WarmupTime+k.CooldownTime+k.WaitingForMembersExtraTime) + 20_000
	return c.healedAt + slack + max(rounds, 1)*(round+epoch)*second/1000
}

// tooLate is called when the run is not over in time.
func (c *checker) tooLate() {
	if c.host.lies() {
		return // it can stop its run
	}
	s := c.host.state
	waiting := ""
	for _, m := range c.world.machines {
		if m.honest() && (m.process == nil || !m.process.ended) {
			waiting += " " + strconv.Itoa(m.index)
		}
	}
	c.violate(Progress, "faults stopped at %.0f s in step %d; the run is in %v of step %d of %d; clients that have not ended:%s",
		float64(c.healedAt)/float64(second), c.healedStep, s.RunState, s.Progress.Step, s.Config.TotalSteps, waiting)
}

// replays checks that the journal gives the state that the host has.
func (c *checker) replays() {
	if h := c.host; h.up && !h.writing {
		log, actions, err := h.disk.replay(&c.world.rules)
		c.expectation = h.base
		c.replayed(log, actions, err)
	}
}

// finish checks the end of a run.
func (c *checker) finish() {
	if c.world.violation != nil {
		return
	}
	w := c.world
	h := c.host
	if h.lies() {
		c.replays()
		return
	}
	if h.state.RunState != coordinator.Finished {
		c.tooLate()
		return
	}
	c.replays()
	checkpoint := h.state.Model.Checkpoint
	if checkpoint.Step != h.state.Config.TotalSteps {
		if c.outvoted {
			return
		}
		c.violate(Progress, "the last checkpoint is of step %d of %d", checkpoint.Step, h.state.Config.TotalSteps)
	}
	for _, m := range w.machines {
		if !m.honest() {
			continue
		}
		digest, step, ok := m.process.node.Model()
		if !c.admitted[coordinator.ClientID(m.id)] {
			continue // it was started when the run was as good as over, or full: members give it nothing
		}
		if !ok || step != checkpoint.Step || digest != checkpoint.Digest {
			c.violate(Progress, "%s does not hold the final model: it has that of step %d", m.name(), step)
		}
	}
}
