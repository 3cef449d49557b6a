// Package cast selects the members of a simulated run, and their Byzantine behaviour.
package cast

import (
	"encoding/binary"
	"slices"
	"strconv"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/proof/sim/random"
	"github.com/psyche-go/psyche/proof/sim/scenario"
)

// Member is one client of a run, which may not be running.
type Member struct {
	Index int
	Key   identity.Key
	ID    identity.ID
	Roles scenario.Faults // its Byzantine behaviours
}

// HasRole reports whether the member has one of the given Byzantine behaviours.
func (m *Member) HasRole(kinds scenario.Faults) bool { return m.Roles&kinds != 0 }

// Honest reports whether the member has no Byzantine behaviour.
func (m *Member) Honest() bool { return m.Roles == 0 }

// Name returns the member's name in a trace.
func (m *Member) Name() string { return "client " + strconv.Itoa(m.Index) }

// Cast is all members of a run.
type Cast struct {
	Members []*Member
	index   map[identity.ID]int
}

// New returns the cast of a seed for a plan: the initial members, followed by the reserve keys of a
// coalition.
func New(seed uint64, plan *scenario.Plan) *Cast {
	c := &Cast{index: make(map[identity.ID]int, plan.Clients)}
	for range plan.Clients {
		c.add()
	}
	c.appointByzantine(seed, plan)
	for range plan.Crew.Spare {
		c.add().Roles = scenario.Coalition
	}
	return c
}

func (c *Cast) add() *Member {
	i := len(c.Members)
	var seed [identity.SeedSize]byte
	binary.LittleEndian.PutUint64(seed[:], uint64(i)+1)
	key := identity.FromSeed(seed)
	m := &Member{Index: i, Key: key, ID: key.ID()}
	c.Members = append(c.Members, m)
	c.index[m.ID] = i
	return m
}

// appointByzantine chooses the Byzantine clients and their behaviours. Fewer than a third of any
// committee of witnesses make false claims. Byzantine trainers are at most an eighth of the clients
// per kind. A coalition may exceed this share of a committee. In runs with a coalition, there are no
// other Byzantine clients.
func (c *Cast) appointByzantine(seed uint64, plan *scenario.Plan) {
	n := len(c.Members)
	if plan.Links != nil && plan.Faults&scenario.Coalition == 0 {
		c.appointByzantineOnLinks(seed, plan)
		return
	}
	for _, kind := range (plan.Faults & scenario.Byzantine &^ scenario.Coalition).Each() {
		r := random.New(seed, "liars "+kind.String())
		count := scenario.MaxByzantine(n)
		if kind == scenario.LyingWitness {
			elected := min(int(plan.Config.MinClients), coordinator.MaxWitnesses)
			if nodes := int(plan.Config.WitnessNodes); nodes > 0 {
				elected = min(elected, nodes)
			}
			count = min(count, (elected-1)/3, 4)
		}
		if count == 0 {
			continue
		}
		for _, i := range r.Pick(n, 1+r.Below(count)) {
			c.Members[i].Roles |= kind
		}
	}
	if plan.Faults&scenario.Coalition != 0 {
		c.appointCoalition(seed, plan)
	}
}

// appointCoalition chooses the coalition. Its members also show the behaviours of individual Byzantine
// members, each independently.
func (c *Cast) appointCoalition(seed uint64, plan *scenario.Plan) {
	r := random.New(seed, "gang")
	coalition := r.Pick(len(c.Members), scenario.CoalitionSize(len(c.Members), plan.Config))
	if plan.Links != nil {
		coalition = c.fastOf(r, len(coalition), plan.Links)
	}
	for _, m := range c.Members {
		m.Roles = 0
	}
	for n, i := range coalition {
		c.Members[i].Roles = scenario.Coalition | plan.Faults&scenario.Hog
		if n < plan.Crew.Equivocators {
			c.Members[i].Roles |= scenario.Equivocation
		}
		for _, kind := range (plan.Faults & (scenario.Equivocation | scenario.HiddenResult | scenario.InvalidResult)).Each() {
			if r.Chance(300) {
				c.Members[i].Roles |= kind
			}
		}
	}
}

// appointByzantineOnLinks gives all drawn roles to some members on fast links. If the plan
// includes withholding, the first of these members only withholds.
func (c *Cast) appointByzantineOnLinks(seed uint64, plan *scenario.Plan) {
	r := random.New(seed, "liars on links")
	for n, i := range c.fastOf(r, plan.Links.Byzantine, plan.Links) {
		c.Members[i].Roles = plan.Faults & scenario.Byzantine &^ scenario.Withhold
		if n == 0 && plan.Faults&scenario.Withhold != 0 {
			c.Members[i].Roles = scenario.Withhold
		}
	}
}

// fastOf draws members that are not on the slowest links.
func (c *Cast) fastOf(r *random.Source, count int, l *scenario.Links) []int {
	all := slices.DeleteFunc(r.Pick(len(c.Members), len(c.Members)), func(i int) bool { return slices.Contains(l.Slow, i) })
	return all[:min(count, len(all))]
}

// Find returns the member with a key, or nil for an unknown key.
func (c *Cast) Find(id identity.ID) *Member {
	if i, known := c.index[id]; known {
		return c.Members[i]
	}
	return nil
}

// Of returns the member with an id in a state.
func (c *Cast) Of(id coordinator.ClientID) *Member { return c.Members[c.index[identity.ID(id)]] }

// InCoalition reports whether a client in a state belongs to the coalition.
func (c *Cast) InCoalition(id coordinator.ClientID) bool {
	m := c.Find(identity.ID(id))
	return m != nil && m.HasRole(scenario.Coalition)
}

// FromNetwork returns the clients of the coalition's network that are in the newest epoch, were in
// it, or are pending.
func (c *Cast) FromNetwork(s *coordinator.State) map[coordinator.ClientID]bool {
	there := make(map[coordinator.ClientID]bool)
	for _, clients := range [][]coordinator.Client{s.Epoch.Clients, s.Epoch.Exited, s.Pending} {
		for i := range clients {
			if id := clients[i].ID; c.InCoalition(id) {
				there[id] = true
			}
		}
	}
	return there
}

// CoalitionElected returns the number of coalition members among a round's witnesses.
func (c *Cast) CoalitionElected(round *coordinator.Round, config coordinator.Config) int {
	elected := 0
	for _, member := range round.ElectedWitnesses(config) {
		if c.InCoalition(round.Members[member]) {
			elected++
		}
	}
	return elected
}

// Overrun reports whether the coalition has at least a third of an epoch's first members. The
// protocol then makes no guarantees, and the plan of the run is wrong.
func (c *Cast) Overrun(members []coordinator.Client) bool {
	coalition := 0
	for i := range members {
		if c.InCoalition(members[i].ID) {
			coalition++
		}
	}
	return coalition > 0 && 3*coalition >= len(members)
}
