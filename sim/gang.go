package sim

import (
	"crypto/sha256"
	"encoding/binary"

	"github.com/psyche-go/psyche/coordinator"
)

// gangSize returns how many of a run's clients may be in a gang: fewer than a third of the
// members that an epoch can begin with, and at most three of ten.
func gangSize(clients int, config coordinator.Config) int {
	return min((int(config.InitMinClients)-1)/3, clients*3/10)
}

// appointGang chooses the gang. What single liars do its members do as well, each by itself.
func (w *world) appointGang() {
	r := newRandom(w.options.Seed, "gang")
	gang := r.pick(len(w.machines), gangSize(len(w.machines), w.plan.config))
	for _, m := range w.machines {
		m.roles = 0
	}
	for _, i := range gang {
		w.machines[i].roles = Gang
		for _, kind := range (w.plan.faults & (Equivocation | HiddenResult | InvalidResult)).each() {
			if r.chance(300) {
				w.machines[i].roles |= kind
			}
		}
	}
}

// gangElected returns how many of the gang witness a round.
func (w *world) gangElected(round *coordinator.Round, config coordinator.Config) int {
	elected := 0
	for _, member := range round.ElectedWitnesses(config) {
		if i, known := w.index[[32]byte(round.Members[member])]; known && w.machines[i].lies(Gang) {
			elected++
		}
	}
	return elected
}

// conspiracy is what a witness of the gang makes of an honest proof. Where the gang is more of
// the committee than may lie it names itself alone: nobody else's result can count, and everybody
// else can be found late. Where it is a quorum it signs a root and a replica of nothing as well.
func (p *process) conspiracy(proof coordinator.WitnessRound) coordinator.WitnessRound {
	s := &p.world.host.state
	round := s.RoundOfStep(proof.Step)
	if round == nil {
		return proof
	}
	elected := p.world.gangElected(round, s.Config)
	if elected <= int(round.WitnessesElected)-int(round.WitnessesNeeded) {
		return proof
	}
	own := coordinator.WitnessRound{Step: proof.Step, Replica: proof.Replica}
	for _, a := range round.Assignments(s.Config) {
		id := round.Members[a.Member]
		if i := p.world.index[[32]byte(id)]; p.world.machines[i].lies(Gang) {
			own.Participants.Add(round.Seed, id[:])
		}
	}
	if elected >= int(round.WitnessesNeeded) {
		own.CommitmentsRoot, own.Replica = gangModel(proof.Step), gangModel(proof.Step)
	}
	return own
}

// withhold keeps back what the member committed to, in one epoch of three for its whole Warmup, and
// for a while in others: it has seen by then what honest members revealed.
func (p *process) withhold(ready coordinator.Ready) coordinator.Ready {
	if (int(ready.Epoch)+p.machine.index)%3 == 0 || p.world.lies.chance(300) {
		ready.Reveal[0] ^= 1
	}
	return ready
}

// gangModel is the digest that all of the gang report after a step.
func gangModel(step uint32) [32]byte {
	return sha256.Sum256(binary.LittleEndian.AppendUint32([]byte("the gang's model"), step))
}

// evict accuses everybody whom the gang's proofs, or others, show without a result. It is called
// once for every new phase.
func (p *process) evict(state *coordinator.State) {
	var accused []coordinator.ClientID
	for _, id := range state.Accusable() {
		if i, known := p.world.index[[32]byte(id)]; known && !p.world.machines[i].lies(Gang) {
			accused = append(accused, id)
		}
	}
	if len(accused) > 0 {
		p.sendAside(coordinator.HealthCheck{Step: state.Progress.Step - 1, Clients: accused})
	}
}

// comeAndGo gives up the seat of some of the gang in some rounds, and takes it back, or one that
// was never theirs, as often as they are let.
func (p *process) comeAndGo(state *coordinator.State) {
	if p.machine.index%2 != 0 || state.RunState != coordinator.RoundTrain {
		return
	}
	me := coordinator.ClientID(p.machine.id)
	if member, ok := state.Member(me); ok && member.State == coordinator.Healthy {
		if p.world.lies.chance(500) {
			p.sendAside(coordinator.Withdraw{Client: me})
		}
		return
	}
	p.sendAside(coordinator.Return{Epoch: state.Progress.Epoch})
}

// overrun reports whether the gang has a third of an epoch's first members or more: then the
// protocol promises nothing, and the plan of the run is wrong.
func (w *world) overrun(members []coordinator.Client) bool {
	gang := 0
	for i := range members {
		if at, known := w.index[[32]byte(members[i].ID)]; known && w.machines[at].lies(Gang) {
			gang++
		}
	}
	return gang > 0 && 3*gang >= len(members)
}
