package sim

import (
	"encoding/binary"
	"slices"
	"time"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/host/core"
)

// second is the unit of virtual times, which are nanoseconds since the start of a run.
const second = int64(time.Second)

const simSeqLen = 4 // tokens of a sequence

// clockStart is the time at which every run begins.
var clockStart = time.Unix(1_700_000_000, 0)

// runID names every simulated run.
const runID = "simulation"

// The host is that of package server, with its default times.
const (
	beat          = second
	withdrawGrace = int64(core.DefaultGrace)
)

// hostKey is the key of every simulated host.
var hostKey = func() identity.Key {
	var seed [identity.SeedSize]byte
	binary.BigEndian.PutUint64(seed[:], 1)
	return identity.FromSeed(seed)
}()

var hostID = coordinator.ClientID(hostKey.ID())

// Options of one run.
type Options struct {
	Seed    uint64
	Clients int    // 1 … coordinator.MaxClients
	Rounds  int    // rounds of the run while faults go on; about as many follow
	Faults  Faults // AllFaults: the seed chooses some
	Trace   bool   // keep a line for every thing of note

	rules rules // what a test breaks; zero: nothing
}

// plan is what a seed makes of a run before it begins.
type plan struct {
	faults   Faults // those that really happen
	clients  int    // but for those that a gang adds
	config   coordinator.Config
	maxSeq   uint32
	applyLag uint32
	tempo    tempo
	healAt   int64 // when faults stop at the latest
	healStep uint32
	crew     crew
	events   []fault // ascending times

	dropPerMille      int
	delayPerMille     int
	delayMost         int64
	reorderMost       int64
	duplicatePerMille int
	diskMost          int64 // longest write
}

// tempo is how long everything takes that computes, in thousandths of what it takes in most runs.
type tempo int64

func (t tempo) of(d int64) int64 { return d * int64(t) / 1000 }

// of milliseconds of a configuration, at least so many.
func (t tempo) wait(ms int64, least uint64) uint64 { return max(uint64(t.of(ms)), least) }

// drawTempo has rounds of tenths of seconds in some runs, and of up to a minute in others.
func drawTempo(seed uint64) tempo {
	r := newRandom(seed, "tempo")
	switch r.below(8) {
	case 0, 1:
		return tempo(r.between(20, 100))
	case 2, 3:
		return tempo(r.between(3000, 20_000))
	default:
		return 1000
	}
}

// fault is something that happens at one time.
type fault struct {
	at      int64
	kind    Faults
	clients []int // Partition, Crash, Starve
	until   int64 // but for ClockJump: the end
	fromP2P bool  // Partition: from the other clients
	jump    int64 // ClockJump: milliseconds
}

// newPlan draws the plan of a run.
func newPlan(o Options) plan {
	p := plan{faults: o.Faults, clients: o.Clients, tempo: 1000}
	if o.Faults != NoFaults {
		p.tempo = drawTempo(o.Seed)
	}
	if o.Faults == AllFaults || o.Faults == HonestFaults {
		r := newRandom(o.Seed, "choose")
		p.faults = NoFaults
		for _, kind := range o.Faults.each() {
			if r.chance(550) {
				p.faults |= kind
			}
		}
		if p.faults&Gang == 0 || !r.chance(300) { // a run whose host lies need not finish
			p.faults &^= GangHost
		}
	}
	if p.faults&GangHost != 0 {
		p.faults |= Gang
	}
	p.drawConfig(o)
	p.applyLag = 1
	if newRandom(o.Seed, "apply lag").chance(400) {
		p.applyLag = 2
	}
	p.healAt = min(max(p.tempo, 150), 4000).of(newRandom(o.Seed, "heal").between(60*second, 150*second))
	if p.faults&^liars == 0 {
		p.healAt = 0
	}
	p.drawNetwork(o)
	for _, kind := range p.faults.each() {
		p.drawEvents(o, kind)
	}
	slices.SortStableFunc(p.events, func(a, b fault) int { return int(min(max(a.at-b.at, -1), 1)) })
	return p
}

// drawConfig draws the rules of the run.
func (p *plan) drawConfig(o Options) {
	r := newRandom(o.Seed, "config")
	n := o.Clients
	least := max(1, n/2)
	rounds := one(r, uint32(2), 2, 3, 4, 8)
	c := coordinator.Config{
		WarmupTime: uint64(r.between(10_000, 25_000)), CooldownTime: uint64(r.between(8000, 16_000)),
		RoundsPerEpoch: rounds, MaxRoundTrainTime: p.tempo.wait(r.between(6000, 12_000), 500), RoundWitnessTime: min(p.tempo, 1000).wait(r.between(200, 3000), 200),
		WaitingForMembersExtraTime: uint64(r.between(200, 4000)),
		InitMinClients:             uint16(max(least, n*3/4)), MinClients: uint16(least),
		VerificationPercent: one(r, uint8(0), 0, 0, 10, 25),
	}
	c.ProbationSteps = one(newRandom(o.Seed, "probation"), uint32(0), 1, 2, 4, 8)
	c.WitnessNodes = one(r, uint16(0), uint16(least), 5, 9, 16)
	c.WitnessNodes = min(c.WitnessNodes, c.MinClients, coordinator.MaxWitnesses)
	size := uint32(max(1, one(r, n, n/2, n+n/3, 2*n)))
	c.GlobalBatchSizeStart, c.GlobalBatchSizeEnd = size, size
	if r.chance(300) {
		c.GlobalBatchSizeStart = max(1, size/2)
		c.GlobalBatchSizeWarmupTokens = uint64(size) * 4 * uint64(simSeqLen)
	}
	if r.chance(120) {
		c.WarmupTime, c.MaxRoundTrainTime = 8000, p.tempo.wait(6000, 500)
		c.RoundsPerEpoch, c.EpochTime = 0, max(p.tempo, 1000).wait(r.between(9000, 14_000), 0)
	}
	p.drawAudits(o, &c)
	if p.faults&Gang != 0 {
		// Small committees can be the gang's for a round: that stops the run for an epoch, which
		// has a test of its own in package client.
		c.WitnessNodes = 0
		c.WaitingForMembersExtraTime = max(c.WaitingForMembersExtraTime, 3000)
		p.crew = drawCrew(o, p.faults&^liars == 0)
		if p.faults&^liars == 0 {
			c.InitMinClients = uint16(n - p.crew.equivocators - len(p.crew.late)) // all others are there
			if c.VerificationPercent > 0 {
				c.InitMinClients = min(c.InitMinClients, uint16(n-n/4)) // or are ejected
			}
		}
	}
	c.InitMinClients = min(c.InitMinClients, uint16(n-p.ejectable(n, c)))
	p.maxSeq = simSeqLen
	tail := 2*rounds + 2
	if c.EpochTime != 0 {
		tail = 16
	}
	faulty := uint32(o.Rounds)
	if p.tempo < 1000 {
		faulty *= 3 // or hardly anything would happen
	}
	p.healStep = faulty + 1
	c.TotalSteps = faulty + tail
	if p.faults&^liars == 0 {
		c.TotalSteps = uint32(o.Rounds)
	}
	if p.faults&GangHost != 0 && c.EpochTime == 0 { // what it can do it does within an epoch
		rounds = one(newRandom(o.Seed, "epochs of a host that lies"), rounds, 6, 8, 12)
		c.RoundsPerEpoch = rounds
	}
	if len(p.crew.late) > 0 { // they have to get their seats
		c.TotalSteps = max(c.TotalSteps, 3*rounds)
	}
	p.crew.size = gangSize(n, c)
	p.config = c
}

// ejectable returns how many clients may be ejected for what they sign: no epoch can wait for them.
func (p *plan) ejectable(n int, config coordinator.Config) int {
	kinds := (p.faults & (Equivocation | HiddenResult)).each()
	if len(kinds) > 0 && p.faults&Gang != 0 {
		return gangSize(n, config)
	}
	return len(kinds) * liarsOfAKind(n)
}

// drawAudits has more runs audit where somebody can be hurt by that or is to be found by it, and
// leaves enough members to go on when cheats are ejected.
func (p *plan) drawAudits(o Options, c *coordinator.Config) {
	r := newRandom(o.Seed, "audits")
	if o.Faults == HonestFaults && r.chance(900) || p.faults&auditLiars != 0 && r.chance(800) || p.faults&Gang != 0 && r.chance(500) {
		c.VerificationPercent = one(r, uint8(15), 25, 40, 60)
		c.RoundsPerEpoch = max(c.RoundsPerEpoch, one(r, uint32(4), 8, 12))
	}
	if c.EpochTime != 0 {
		c.RoundsPerEpoch = 0
	}
	c.EjectionEpochs = one(r, uint16(0), 0, 1, 2)
	if c.VerificationPercent > 0 && c.EjectionEpochs > 0 {
		kinds := len(auditLiars.each()) // of whom some may be ejected
		c.InitMinClients = uint16(max(int(c.MinClients), o.Clients-kinds*max(1, o.Clients/8)))
	}
	if o.Clients < 12 {
		c.EjectionEpochs = 0 // the others would be too few to go on
	}
}

// drawNetwork draws how bad the network and the disk are.
func (p *plan) drawNetwork(o Options) {
	r := newRandom(o.Seed, "network-plan")
	drop, delay, delayMost, reorder := r.between(10, 250), r.between(20, 200), r.between(1, 5)*second, r.between(100, 1500)*second/1000
	duplicate, disk := r.between(20, 300), r.between(200, 3000)*second/1000
	p.diskMost = 5 * second / 1000
	if p.faults&Drop != 0 {
		p.dropPerMille = int(drop)
	}
	if p.faults&Delay != 0 {
		p.delayPerMille, p.delayMost = int(delay), delayMost
	}
	if p.faults&Reorder != 0 {
		p.reorderMost = reorder
	}
	if p.faults&Duplicate != 0 {
		p.duplicatePerMille = int(duplicate)
	}
	if p.faults&SlowDisk != 0 {
		p.diskMost = disk
	}
}

// drawEvents draws when faults of a kind happen.
func (p *plan) drawEvents(o Options, kind Faults) {
	r := newRandom(o.Seed, "events "+kind.String())
	count := 0
	switch kind {
	case Partition:
		count = 1 + r.below(5)
	case Crash:
		count = 2 + r.below(max(2, o.Clients/4))
	case HostCrash:
		count = 1 + r.below(5)
	case TornWrite:
		count = 1 + r.below(3) // the host has to be killed for it
	case ClockJump:
		count = 1 + r.below(4)
	case Starve:
		count = 1 + r.below(8)
	case DataFailure:
		count = 1 + r.below(3)
	}
	for range count {
		f := fault{at: r.between(0, p.healAt-1), kind: kind}
		switch kind {
		case Partition:
			f.clients = r.pick(o.Clients, 1+r.below(max(1, o.Clients/3)))
			f.until = f.at + r.between(1, 25)*second
			f.fromP2P = r.chance(600)
		case Crash:
			f.clients = []int{r.below(o.Clients)}
			f.until = f.at + r.between(100, 15000)*second/1000
		case Starve:
			f.clients = r.pick(o.Clients, 1+r.below(max(1, o.Clients/3)))
			f.until = f.at + r.between(500, 15_000)*second/1000
		case DataFailure:
			f.until = f.at + r.between(1, 20)*second
		case HostCrash, TornWrite:
			f.until = f.at + r.between(100, 8000)*second/1000
		case ClockJump:
			f.jump = r.between(1, 1000*one(r, int64(3), 30, 600))
			if r.chance(500) {
				f.jump = -f.jump
			}
		}
		p.events = append(p.events, f)
	}
}

// gangSize returns how many of a run's clients may be in a gang: fewer than a third of the
// members that an epoch can begin with, and at most three of ten.
func gangSize(clients int, config coordinator.Config) int {
	return min((int(config.InitMinClients)-1)/3, clients*3/10)
}

// liarsOfAKind returns how many of n clients lie in one way at most.
func liarsOfAKind(n int) int { return min(max(1, n/8), max(0, (n-1)/3)) }

// hostLies reports whether the host is with the gang of its run.
func (p *plan) hostLies() bool { return p.faults&GangHost != 0 }

// crew says which clients join a gang's run beside those that are there from the beginning.
type crew struct {
	size         int   // of the gang; as many clients of its network may take part
	spare        int   // more keys of the gang, of its one network: they begin later
	equivocators int   // of the gang: they sign two results of each batch, and are ejected
	late         []int // clients that begin when the run has begun, honest or not
	forkAt       int64 // when a host of the gang shows some another history
}

// drawCrew draws them. Where nothing else goes wrong everybody else waits for the first epoch, so that
// no more equivocate or begin late than an epoch can do without in which the gang is fewer than a
// third. In one run of five half of the clients begin late, and the gang is smaller.
func drawCrew(o Options, alone bool) crew {
	r := newRandom(o.Seed, "crew")
	gang := o.Clients * 3 / 10
	c := crew{spare: min(gang, 4), forkAt: r.between(4*second, 120*second)}
	if r.chance(400) {
		c.forkAt = 1 << 62 // never
	}
	without := r.below(max(0, o.Clients-3*gang-1) + 1)
	late := r.below(without + 1)
	if !alone {
		c.equivocators = r.below(max(1, o.Clients/8))
		return c
	}
	c.equivocators = without - late
	if r.chance(200) {
		c.equivocators, late = 0, o.Clients/2
	}
	c.late = r.pick(o.Clients, late)
	return c
}

// startOf returns when a client starts that was to start at a time.
func (p *plan) startOf(client int, at int64) int64 {
	switch {
	case client >= p.clients:
		return at + 8*second
	case slices.Contains(p.crew.late, client):
		return at + 12*second
	}
	return at
}
