package sim

import (
	"slices"
	"time"

	"github.com/psyche-go/psyche/coordinator"
)

// appointLiars chooses who lies and how. Fewer than a third of any committee of witnesses
// can lie about what it saw, as the protocol assumes; trainers that do are at most an
// eighth of the clients for each kind.
func (w *world) appointLiars() {
	n := len(w.machines)
	for _, kind := range (w.plan.faults & liars).each() {
		r := newRandom(w.options.Seed, "liars "+kind.String())
		count := min(max(1, n/8), max(0, (n-1)/3))
		if kind == LyingWitness {
			elected := min(int(w.plan.config.MinClients), coordinator.MaxWitnesses)
			if nodes := int(w.plan.config.WitnessNodes); nodes > 0 {
				elected = min(elected, nodes)
			}
			count = min(count, (elected-1)/3, 4)
		}
		if count == 0 {
			continue
		}
		for _, i := range r.pick(n, 1+r.below(count)) {
			w.machines[i].roles |= kind
		}
	}
	for _, m := range w.machines {
		if !m.honest() {
			w.note('L', uint64(m.index), uint64(m.roles), func() string { return m.name() + " is a " + m.roles.String() })
		}
	}
}

// equivocate makes a second result of the batch that message announces and sends each to
// one half of the others. It reports whether it did.
func (p *process) equivocate(message []byte) bool {
	s, known := p.world.registry.opened[string(message)]
	if !known || s.author != p.machine.id || p.trainer == nil {
		return false
	}
	variant := byte(1 + p.world.lies.below(3))
	other := newResult(&p.trainer.model, s.announcement.Step, s.announcement.Batch, p.machine.id, variant)
	hash, _ := p.Put(other)
	a := s.announcement
	a.Blob, a.Size = hash, uint32(len(other))
	second := p.Sign(a)
	for to := range p.world.machines {
		if p.world.lies.chance(500) {
			p.gossip(to, message)
		} else {
			p.gossip(to, second)
		}
	}
	return true
}

// spoil turns a result into something else.
func spoil(payload []byte, r *random) []byte {
	payload = slices.Clone(payload)
	switch r.below(3) {
	case 0:
		return append(payload, 0)
	case 1:
		return payload[:len(payload)-1-r.below(headerSize)]
	default:
		payload[r.below(headerSize)] ^= byte(1 + r.below(255))
		return payload
	}
}

// distort is what a lying witness makes of an honest proof.
func (p *process) distort(proof coordinator.WitnessRound) coordinator.WitnessRound {
	r := p.world.lies
	state := &p.world.host.state
	switch r.below(7) {
	case 0: // saw nothing
		proof = coordinator.WitnessRound{Step: proof.Step, Replica: proof.Replica}
	case 1: // saw everything
		for i := range proof.Commitments {
			proof.Commitments[i], proof.Participants[i] = ^uint64(0), ^uint64(0)
		}
	case 2:
		proof.CommitmentsRoot[r.below(32)] ^= 1
	case 3:
		proof.Replica[r.below(32)] ^= 1
	case 4: // as many bits as it may have
		clear(proof.Commitments[:])
		clear(proof.Participants[:])
		if round := state.CurrentRound(); round != nil {
			for range round.Assignments(state.Config) {
				bit := r.below(2560)
				proof.Commitments[bit/64] |= 1 << (bit % 64)
			}
			for _, id := range round.Members {
				proof.Participants.Add(round.Seed, id[:])
			}
		}
	case 5: // for the second results, and for results of nobody
		if round := state.RoundOfStep(proof.Step); round != nil {
			clear(proof.Commitments[:])
			for i, a := range round.Assignments(state.Config) {
				known := p.world.registry.of(proof.Step, a.Batch, [32]byte(round.Members[a.Member]))
				if len(known) > 0 && i%5 != 0 {
					blob := known[len(known)-1].announcement.Blob
					proof.Commitments.Add(round.Seed, blob[:])
				}
			}
		}
	}
	return proof
}

// conspire sends what no honest client would: accusations of healthy members, and proofs
// of clients that were not elected. It is called once for every new phase.
func (p *process) conspire(state *coordinator.State) {
	round := state.CurrentRound()
	if round == nil {
		return
	}
	if p.machine.lies(FalseAccuser) && p.world.lies.chance(500) && len(round.Members) > 1 {
		accused := round.Members[p.world.lies.below(len(round.Members))]
		step := state.Progress.Step - uint32(p.world.lies.below(2))
		p.sendAside(coordinator.HealthCheck{Step: step, Clients: []coordinator.ClientID{accused}})
	}
	if p.machine.lies(LyingWitness) && state.RunState == coordinator.RoundTrain && p.world.lies.chance(500) {
		proof := coordinator.WitnessRound{Step: round.Step}
		for _, id := range round.Members {
			proof.Participants.Add(round.Seed, id[:])
		}
		p.sendAside(proof)
	}
}

// sendAside submits an action that the node knows nothing of.
func (p *process) sendAside(a coordinator.Action) {
	p.world.workers.run(func() {
		ctx, cancel := p.WithTimeout(p.root, 5*time.Second)
		defer cancel()
		_ = p.send(ctx, a) // refused, or not: the checker looks
	})
}
