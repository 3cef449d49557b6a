// Package scenario draws the plan of a simulated run from a seed: its rules, its speed, and the
// faults with their times.
package scenario

import (
	"fmt"
	"slices"
	"time"

	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/proof/sim/random"
)

// second is a second in virtual time, which is in nanoseconds since the start of a run.
const second = int64(time.Second)

// Options are the caller's choices for a run.
type Options struct {
	Seed    uint64
	Clients int    // 1 … coordinator.MaxClients
	Rounds  int    // rounds of the run with faults; about as many follow
	Faults  Faults // AllFaults: the seed chooses some
	Shares  bool   // shares by speed
	Retries bool   // the run trains lost sequences again
	Links   bool   // links have a bandwidth; AllFaults then means that the seed chooses some of ByzantineOnLinks
}

// Plan is the plan that a seed determines.
type Plan struct {
	Faults   Faults // the faults that really happen
	Clients  int    // without the extra clients of a coalition
	Config   coordinator.Config
	ApplyLag uint32
	Tempo    Tempo
	HealAt   int64 // latest end of faults
	HealStep uint32
	Crew     Crew
	Events   []Fault // ascending times
	Links    *Links  // nil: links only have a delay

	DropPerMille      int
	DelayPerMille     int
	DelayMost         int64
	ReorderMost       int64
	DuplicatePerMille int
	DiskMost          int64 // longest write
}

// Tempo is the duration of computations relative to most runs, in thousandths.
type Tempo int64

// Of converts a duration in most runs to the duration in this run.
func (t Tempo) Of(d int64) int64 { return d * int64(t) / 1000 }

// wait converts milliseconds of a configuration, with a minimum.
func (t Tempo) wait(ms int64, minimum uint64) uint64 { return max(uint64(t.Of(ms)), minimum) }

// drawTempo draws rounds of tenths of seconds in some runs, and of up to a minute in others.
func drawTempo(seed uint64) Tempo {
	r := random.New(seed, "tempo")
	switch r.Below(8) {
	case 0, 1:
		return Tempo(r.Between(20, 100))
	case 2, 3:
		return Tempo(r.Between(3000, 20_000))
	default:
		return 1000
	}
}

// Fault is a fault with its time.
type Fault struct {
	At      int64
	Kind    Faults
	Clients []int // Partition, Crash, Starve
	Until   int64 // end time, except for ClockJump
	FromP2P bool  // Partition: from the other clients
	Jump    int64 // ClockJump: milliseconds
}

// Describe describes the fault, for a trace.
func (f Fault) Describe() string {
	switch f.Kind {
	case Partition:
		from := "host"
		if f.FromP2P {
			from = "other clients"
		}
		return fmt.Sprintf("partition: clients %v from the %s until %.3f", f.Clients, from, float64(f.Until)/float64(second))
	case Crash:
		return fmt.Sprintf("crash: client %v until %.3f", f.Clients, float64(f.Until)/float64(second))
	case Starve:
		return fmt.Sprintf("starve: clients %v until %.3f", f.Clients, float64(f.Until)/float64(second))
	case ClockJump:
		return fmt.Sprintf("clock of the host jumps by %d ms", f.Jump)
	default:
		return fmt.Sprintf("%s until %.3f", f.Kind, float64(f.Until)/float64(second))
	}
}

// New draws the plan of a run.
func New(o Options) Plan {
	p := Plan{Faults: o.Faults, Clients: o.Clients, Tempo: 1000}
	if o.Faults != NoFaults && !o.Links {
		p.Tempo = drawTempo(o.Seed)
	}
	switch {
	case o.Links && o.Faults == AllFaults:
		p.Faults = chooseByzantineOnLinks(o.Seed)
	case o.Faults == AllFaults || o.Faults == HonestFaults:
		r := random.New(o.Seed, "choose")
		p.Faults = NoFaults
		for _, kind := range o.Faults.Each() {
			if r.Chance(550) {
				p.Faults |= kind
			}
		}
		if p.Faults&Coalition == 0 || !r.Chance(300) { // a run with a Byzantine host need not finish
			p.Faults &^= CoalitionHost
		}
	}
	if p.Faults&CoalitionHost != 0 {
		p.Faults |= Coalition
	}
	p.drawConfig(o)
	if o.Links {
		p.drawLinks(o)
	}
	p.ApplyLag = 1
	if random.New(o.Seed, "apply lag").Chance(400) {
		p.ApplyLag = 2
	}
	p.HealAt = min(max(p.Tempo, 150), 4000).Of(random.New(o.Seed, "heal").Between(60*second, 150*second))
	if p.Faults&^Byzantine == 0 {
		p.HealAt = 0
	}
	p.drawNetwork(o)
	for _, kind := range p.Faults.Each() {
		p.drawEvents(o, kind)
	}
	slices.SortStableFunc(p.Events, func(a, b Fault) int { return int(min(max(a.At-b.At, -1), 1)) })
	return p
}

// drawConfig draws the rules of the run.
func (p *Plan) drawConfig(o Options) {
	r := random.New(o.Seed, "config")
	n := o.Clients
	minimum := max(1, n/2)
	rounds := random.One(r, uint32(2), 2, 3, 4, 8)
	c := coordinator.Config{
		WarmupTime: uint64(r.Between(10_000, 25_000)), CooldownTime: uint64(r.Between(8000, 16_000)),
		RoundsPerEpoch: rounds, MaxRoundTrainTime: p.Tempo.wait(r.Between(6000, 12_000), 500), RoundWitnessTime: min(p.Tempo, 1000).wait(r.Between(200, 3000), 200),
		WaitingForMembersExtraTime: uint64(r.Between(200, 4000)),
		InitMinClients:             uint16(max(minimum, n*3/4)), MinClients: uint16(minimum),
		VerificationPercent: random.One(r, uint8(0), 0, 0, 10, 25),
	}
	c.ProbationSteps = random.One(random.New(o.Seed, "probation"), uint32(0), 1, 2, 4, 8)
	c.WitnessNodes = random.One(r, uint16(0), uint16(minimum), 5, 9, 16)
	c.WitnessNodes = min(c.WitnessNodes, c.MinClients, coordinator.MaxWitnesses)
	size := uint32(max(1, random.One(r, n, n/2, n+n/3, 2*n)))
	c.GlobalBatchSizeStart, c.GlobalBatchSizeEnd = size, size
	if r.Chance(300) {
		c.GlobalBatchSizeStart = max(1, size/2)
		c.GlobalBatchSizeWarmupTokens = uint64(size) * 4 * uint64(SeqLen)
	}
	if r.Chance(120) {
		c.WarmupTime, c.MaxRoundTrainTime = 8000, p.Tempo.wait(6000, 500)
		c.RoundsPerEpoch, c.EpochTime = 0, max(p.Tempo, 1000).wait(r.Between(9000, 14_000), 0)
	}
	p.drawAudits(o, &c)
	c.SharesBySpeed, c.RetryLost = o.Shares, o.Retries
	if p.Faults&Coalition != 0 {
		// The coalition can capture a small committee for a round, which stops the run for an
		// epoch. A test in package client covers this case.
		c.WitnessNodes = 0
		c.WaitingForMembersExtraTime = max(c.WaitingForMembersExtraTime, 3000)
		p.Crew = drawCrew(o, p.Faults&^Byzantine == 0)
		if p.Faults&^Byzantine == 0 {
			c.InitMinClients = uint16(n - p.Crew.Equivocators - len(p.Crew.late)) // all other clients are present
			if c.VerificationPercent > 0 {
				c.InitMinClients = min(c.InitMinClients, uint16(n-n/4)) // or are ejected
			}
		}
	}
	c.InitMinClients = min(c.InitMinClients, max(c.MinClients, uint16(n-p.absent(n, c))))
	tail := 2*rounds + 2
	if c.EpochTime != 0 {
		tail = 16
	}
	faulty := uint32(o.Rounds)
	if p.Tempo < 1000 {
		faulty *= 3 // otherwise hardly anything would happen
	}
	p.HealStep = faulty + 1
	c.TotalSteps = faulty + tail
	if p.Faults&^Byzantine == 0 {
		c.TotalSteps = uint32(o.Rounds)
	}
	if p.Faults&CoalitionHost != 0 && c.EpochTime == 0 { // its attacks happen within an epoch
		rounds = random.One(random.New(o.Seed, "epochs of a host that lies"), rounds, 6, 8, 12)
		c.RoundsPerEpoch = rounds
	}
	if len(p.Crew.late) > 0 { // they need time to get their seats
		c.TotalSteps = max(c.TotalSteps, 3*rounds)
	}
	if p.Crew.Size = CoalitionSize(n, c); p.Crew.Size == 0 {
		p.Crew.Spare = 0 // too few members for a coalition of one
	}
	p.Config = c
}

// absent returns the number of clients that may be ejected for their signatures, or that flee again and
// again. No epoch may depend on them.
func (p *Plan) absent(n int, config coordinator.Config) int {
	kinds := (p.Faults & (Equivocation | HiddenResult)).Each()
	if len(kinds) > 0 && p.Faults&Coalition != 0 {
		return CoalitionSize(n, config)
	}
	if p.Faults&Coalition == 0 {
		kinds = (p.Faults & (Equivocation | HiddenResult | Fleeing)).Each()
	}
	return len(kinds) * MaxByzantine(n)
}

// drawAudits enables audits more often in runs with behaviours that audits can detect or that abuse
// audits. It ensures that enough members remain after ejections.
func (p *Plan) drawAudits(o Options, c *coordinator.Config) {
	r := random.New(o.Seed, "audits")
	if o.Faults == HonestFaults && r.Chance(900) || p.Faults&ByzantineInAudits != 0 && r.Chance(800) || p.Faults&Coalition != 0 && r.Chance(500) {
		c.VerificationPercent = random.One(r, uint8(15), 25, 40, 60)
		c.RoundsPerEpoch = max(c.RoundsPerEpoch, random.One(r, uint32(4), 8, 12))
	}
	if c.EpochTime != 0 {
		c.RoundsPerEpoch = 0
	}
	c.EjectionEpochs = random.One(r, uint16(0), 0, 1, 2)
	if c.VerificationPercent > 0 && c.EjectionEpochs > 0 {
		kinds := len(ByzantineInAudits.Each()) // some of each may be ejected
		c.InitMinClients = uint16(max(int(c.MinClients), o.Clients-kinds*max(1, o.Clients/8)))
	}
	if o.Clients < 12 {
		c.EjectionEpochs = 0 // otherwise too few members would remain
	}
}

// drawNetwork draws the quality of the network and the disk.
func (p *Plan) drawNetwork(o Options) {
	r := random.New(o.Seed, "network-plan")
	drop, delay, delayMost, reorder := r.Between(10, 250), r.Between(20, 200), r.Between(1, 5)*second, r.Between(100, 1500)*second/1000
	duplicate, disk := r.Between(20, 300), r.Between(200, 3000)*second/1000
	p.DiskMost = 5 * second / 1000
	if p.Faults&Drop != 0 {
		p.DropPerMille = int(drop)
	}
	if p.Faults&Delay != 0 {
		p.DelayPerMille, p.DelayMost = int(delay), delayMost
	}
	if p.Faults&Reorder != 0 {
		p.ReorderMost = reorder
	}
	if p.Faults&Duplicate != 0 {
		p.DuplicatePerMille = int(duplicate)
	}
	if p.Faults&SlowDisk != 0 {
		p.DiskMost = disk
	}
}

// drawEvents draws the times of the faults of a kind.
func (p *Plan) drawEvents(o Options, kind Faults) {
	r := random.New(o.Seed, "events "+kind.String())
	count := 0
	switch kind {
	case Partition:
		count = 1 + r.Below(5)
	case Crash:
		count = 2 + r.Below(max(2, o.Clients/4))
	case HostCrash:
		count = 1 + r.Below(5)
	case TornWrite:
		count = 1 + r.Below(3) // this fault requires that the host is killed
	case ClockJump:
		count = 1 + r.Below(4)
	case Starve:
		count = 1 + r.Below(8)
	case DataFailure:
		count = 1 + r.Below(3)
	}
	for range count {
		f := Fault{At: r.Between(0, p.HealAt-1), Kind: kind}
		switch kind {
		case Partition:
			f.Clients = r.Pick(o.Clients, 1+r.Below(max(1, o.Clients/3)))
			f.Until = f.At + r.Between(1, 25)*second
			f.FromP2P = r.Chance(600)
		case Crash:
			f.Clients = []int{r.Below(o.Clients)}
			f.Until = f.At + r.Between(100, 15000)*second/1000
		case Starve:
			f.Clients = r.Pick(o.Clients, 1+r.Below(max(1, o.Clients/3)))
			f.Until = f.At + r.Between(500, 15_000)*second/1000
		case DataFailure:
			f.Until = f.At + r.Between(1, 20)*second
		case HostCrash, TornWrite:
			f.Until = f.At + r.Between(100, 8000)*second/1000
		case ClockJump:
			f.Jump = r.Between(1, 1000*random.One(r, int64(3), 30, 600))
			if r.Chance(500) {
				f.Jump = -f.Jump
			}
		}
		p.Events = append(p.Events, f)
	}
}

// CoalitionSize returns the maximum size of a coalition: fewer than a third of the members with which an
// epoch can start, and at most three tenths of the clients.
func CoalitionSize(clients int, config coordinator.Config) int {
	return min((int(config.InitMinClients)-1)/3, clients*3/10)
}

// MaxByzantine returns the maximum number of n clients with one Byzantine behaviour.
func MaxByzantine(n int) int { return min(max(1, n/8), max(0, (n-1)/3)) }

// HasByzantineHost reports whether the host belongs to the coalition.
func (p *Plan) HasByzantineHost() bool { return p.Faults&CoalitionHost != 0 }

// Crew is the coalition of a run and the clients that start late.
type Crew struct {
	Size         int   // of the coalition, which is also the seat limit of its network
	Spare        int   // reserve keys of the coalition, in the same network: they start later
	Equivocators int   // coalition members that sign two results of each batch, and are ejected
	late         []int // clients that start after the run, honest or not
	ForkAt       int64 // time at which a host of the coalition forks its history
}

// drawCrew draws a crew. If nothing else goes wrong, all other clients wait for the first epoch.
// The numbers of equivocators and late clients are therefore limited, so that an epoch can start in
// which the coalition has fewer than a third of the members. In one of five runs, half of the
// clients start late, and the coalition is smaller.
func drawCrew(o Options, alone bool) Crew {
	r := random.New(o.Seed, "crew")
	coalition := o.Clients * 3 / 10
	c := Crew{Spare: min(coalition, 4), ForkAt: r.Between(4*second, 120*second)}
	if r.Chance(400) {
		c.ForkAt = 1 << 62 // never
	}
	without := r.Below(max(0, o.Clients-3*coalition-1) + 1)
	late := r.Below(without + 1)
	if !alone {
		c.Equivocators = r.Below(max(1, o.Clients/8))
		return c
	}
	c.Equivocators = without - late
	if r.Chance(200) {
		c.Equivocators, late = 0, o.Clients/2
	}
	c.late = r.Pick(o.Clients, late)
	return c
}

// StartOf returns the actual start time of a client whose regular start is at.
func (p *Plan) StartOf(client int, at int64) int64 {
	switch {
	case client >= p.Clients:
		return at + 8*second
	case slices.Contains(p.Crew.late, client):
		return at + 12*second
	}
	return at
}
