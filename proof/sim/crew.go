package sim

import "slices"

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
