package scenario

import (
	"slices"

	"github.com/psyche-go/psyche/proof/sim/links"
	"github.com/psyche-go/psyche/proof/sim/random"
)

// Links describes the connections of a run's members and the sizes of their messages. Simulated
// results and openings are tiny, so they are sent as if they had these sizes.
type Links struct {
	Access    []links.Access // of each client
	Slow      []int          // honest clients with the slowest links; Byzantine members choose them as victims
	Changes   []RateChange   // ascending times
	Result    int64          // bytes
	Opening   int64          // bytes of a whole opening, which has Parts parts
	Train     int64          // maximum training time, see Training
	Bring     int64          // time for the slowest link to send a result to all other members
	Byzantine int
	Manner    Manner // of members that withhold openings
}

// Parts is the number of parts of an opening.
const Parts = 32

// RateChange is a new rate of a client's links, in bytes per second.
type RateChange struct {
	At       int64
	Client   int
	Up, Down int64
}

// Manner is a way to withhold openings. The member trains honestly.
type Manner int

// Manners.
const (
	Disconnects  Manner = iota // from members that ask for an opening
	Trickles                   // sends one byte per second
	ServesWrong                // sends parts that do not verify
	ServesOne                  // serves one member only
	StaysBusy                  // always answers that it is busy
	WithholdsOne               // serves all parts except the last one
	Manners
)

var mannerNames = [Manners]string{"disconnects", "trickles", "serves wrong parts", "serves one juror", "stays busy", "withholds one part"}

// String describes a manner.
func (m Manner) String() string { return mannerNames[m] }

// chooseByzantineOnLinks draws the Byzantine behaviours in a run with links: slanderers in most runs, and
// a coalition in some.
func chooseByzantineOnLinks(seed uint64) Faults {
	r := random.New(seed, "choose")
	faults := Slanderer
	for _, kind := range []Faults{Hog, Hog, Withhold, Coalition} {
		if r.Chance(450) {
			faults |= kind
		}
	}
	return faults
}

// Range of link rates, in bytes per second: 0.25, 16 and 1,000 Mbit/s.
const (
	slowest     = 31_250
	slowOctaves = 6
	fastest     = 125_000_000
)

// around draws a number that is approximately log-uniform over the octaves above minimum.
func around(r *random.Source, minimum int64, octaves int) int64 {
	low := minimum << r.Below(octaves)
	return r.Between(low, 2*low)
}

// drawLinks draws links and sizes, and makes rounds long enough for the slowest member.
func (p *Plan) drawLinks(o Options) {
	r := random.New(o.Seed, "bandwidth")
	n := int64(o.Clients)
	slow := around(r, slowest, slowOctaves)
	l := &Links{Result: around(r, 10_000, 7), Opening: around(r, 300_000, 4), Manner: Manner(r.Below(int(Manners)))}
	l.Result = max(10_000, min(l.Result, 5*slow/(n-1)))
	l.Bring = (n - 1) * l.Result * second / slow
	buffer := r.Between(500, 1000) * second / 1000
	l.Train = r.Between(4000, 9500)*second/1000 + 27*l.Bring/2 + 20*buffer // full buffers delay a result five times
	l.Slow = r.Pick(o.Clients, 1+r.Below(max(1, o.Clients/4)))
	slices.Sort(l.Slow)
	all := r.Chance(150) // all clients have slow links
	for i := range o.Clients + p.Crew.Spare {
		up := slow
		if !slices.Contains(l.Slow, i) && !all {
			up = min(around(r, 2*slow, 12), fastest)
		}
		down := min(up*random.One(r, int64(1), 2, 4, 10), fastest)
		line := func(rate int64) links.Line {
			if r.Chance(400) {
				return links.Line{Rate: rate, Discipline: links.FIFO, Buffer: buffer}
			}
			return links.Line{Rate: rate}
		}
		l.Access = append(l.Access, links.Access{Up: line(up), Down: line(down)})
		for at := r.Between(0, 120*second); r.Chance(200); at += r.Between(second, 60*second) {
			times := r.Between(1, 8) // never below the rate for which the rounds are made
			l.Changes = append(l.Changes, RateChange{at, i, min(up*times, fastest), min(down*times, fastest)})
		}
	}
	slices.SortStableFunc(l.Changes, func(a, b RateChange) int { return int(min(max(a.At-b.At, -1), 1)) })
	l.Byzantine = 1 + r.Below(max(1, (o.Clients-1)/3-1))
	p.Links = l
	p.makeTime(r)
}

// Training returns the minimum and maximum training time of a client. Members on slow links have
// faster machines, because a member with both a slow machine and a slow link is rightly late. The
// other machines are slower by a tenth at most. Witnesses wait a quarter longer than two thirds of the
// members need, so a member is on time even if most members are faster.
func (l *Links) Training(client int) (least, most int64) {
	most = l.Train
	if slices.Contains(l.Slow, client) {
		most = l.Train * 92 / 100
	}
	return most - min(most/10, second), most
}

// makeTime derives the times of the run from the links, and enables audits.
func (p *Plan) makeTime(r *random.Source) {
	c, l := &p.Config, p.Links
	bring := uint64(l.Bring / 1_000_000)
	c.MaxRoundTrainTime = 2*uint64(l.Train/1_000_000) + 3*bring + 8000
	c.RoundWitnessTime = 3000 + 2*bring
	c.WarmupTime, c.CooldownTime = max(c.WarmupTime, 20_000+2*bring), max(c.CooldownTime, 10_000+4*bring)
	// Members that did not train in the previous round finish early. With these percentages they
	// are fewer than two thirds of a round's trainers.
	c.VerificationPercent = random.One(r, uint8(15), 20, 25, 30)
	c.GlobalBatchSizeStart, c.GlobalBatchSizeWarmupTokens = uint32(random.One(r, p.Clients, p.Clients+p.Clients/3, 2*p.Clients)), 0
	c.GlobalBatchSizeEnd = c.GlobalBatchSizeStart
	c.EpochTime, c.RoundsPerEpoch = 0, max(c.RoundsPerEpoch, random.One(r, uint32(8), 12, 16))
	c.ProbationSteps = min(c.ProbationSteps, 2)
	n := uint16(p.Clients)
	c.MinClients = max(1, n/2)
	if p.Faults&Coalition == 0 {
		c.WitnessNodes = 0
		c.InitMinClients = max(c.MinClients, n-uint16(l.Byzantine))
	}
}
