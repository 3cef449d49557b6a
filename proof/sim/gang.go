package sim

import (
	"crypto/sha256"
	"encoding/binary"
	"slices"
	"strconv"

	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/proof/sim/random"
	"github.com/psyche-go/psyche/proof/sim/scenario"
	"github.com/psyche-go/psyche/record/wire"
)

// scheme is what a gang is after in an epoch.
type scheme int

const (
	evicts       scheme = iota // all are there, to be more of a committee than may lie
	comesAndGoes               // half of them give up their seats and take them back
	dawdles                    // their results come when others hardly wait any more
	grinds                     // they withhold what they committed to, or leave when they have revealed it
)

// schemeOf returns what the gang is after in an epoch.
func (w *world) schemeOf(epoch uint32) scheme {
	return random.One(random.New(w.options.Seed, "scheme "+strconv.Itoa(int(epoch))), evicts, evicts, comesAndGoes, dawdles, grinds)
}

// conspiracy is what a witness of the gang makes of an honest proof. Where the gang is more of
// the committee than may lie it names itself alone: nobody else's result can count, and everybody
// else can be found late. Where it is a quorum it signs a root and a replica of nothing as well.
func (p *process) conspiracy(proof coordinator.WitnessRound) coordinator.WitnessRound {
	s := p.machine.history().state
	round := s.RoundOfStep(proof.Step)
	proof.Claim = falseClaim(proof.Step)
	switch p.world.lies.Below(6) { // to choose what audits look at, or to be heard without a say in it
	case 0:
		proof.Reveal[0] ^= 1
	case 1:
		proof.Reveal = [32]byte{}
	}
	if round == nil {
		return proof
	}
	elected := p.world.cast.GangElected(round, s.Config)
	if elected <= int(round.WitnessesElected)-int(round.WitnessesNeeded) {
		return proof
	}
	own := coordinator.WitnessRound{Step: proof.Step, Replica: proof.Replica, Reveal: proof.Reveal, Claim: proof.Claim}
	for _, a := range round.Assignments(s.Config) {
		id := round.Members[a.Member]
		if p.world.cast.InGang(id) {
			own.Participants.Add(round.Seed, id[:])
		}
	}
	if elected >= int(round.WitnessesNeeded) {
		own.CommitmentsRoot, own.Replica = gangModel(proof.Step), gangModel(proof.Step)
	}
	return own
}

// withhold keeps back what the member committed to, for its whole Warmup or for a while: it has seen
// by then what honest members revealed.
func (p *process) withhold(ready coordinator.Ready) coordinator.Ready {
	grinding := p.world.schemeOf(ready.Epoch) == grinds
	if grinding && p.machine.Index%3 == 0 || p.world.lies.Chance(300) {
		ready.Reveal[0] ^= 1
	}
	return ready
}

// dawdle is how much later than others a member of the gang is done with a batch.
func (p *process) dawdle() int64 {
	if p.world.schemeOf(p.machine.history().state.Progress.Epoch) != dawdles {
		return 0
	}
	return p.world.lies.Between(2*second, 4*second)
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
		if m := p.world.cast.Find([32]byte(id)); m != nil && !m.Lies(scenario.Gang) {
			accused = append(accused, id)
		}
	}
	if len(accused) > 0 {
		p.sendAside(coordinator.HealthCheck{Step: state.Progress.Step - 1, Clients: accused})
	}
}

// comeAndGo gives up the seat of some of the gang in some rounds, and takes it back, or one that was
// never theirs, as often as they are let. Some leave when they have revealed, as if that took it back.
func (p *process) comeAndGo(state *coordinator.State) {
	aim := p.world.schemeOf(state.Progress.Epoch)
	me := coordinator.ClientID(p.machine.ID)
	member, ok := state.Member(me)
	healthy := ok && member.State == coordinator.Healthy
	switch {
	case p.machine.Index%2 != 0:
	case state.RunState == coordinator.Warmup && aim == grinds && healthy && slices.Contains(state.Epoch.Ready, me),
		state.RunState == coordinator.RoundTrain && aim == comesAndGoes && healthy && p.world.lies.Chance(500):
		p.sendAside(coordinator.Withdraw{Client: me})
	case state.RunState == coordinator.RoundTrain && !healthy:
		p.sendAside(coordinator.Return{Epoch: state.Progress.Epoch})
	}
}

// frame makes a false proof that an honest member signed two results.
func (p *process) frame(state *coordinator.State) {
	for _, s := range p.world.registry.OfStep(state.Progress.Step) {
		victim := p.world.cast.Find(s.Author)
		if !victim.Honest() || !p.world.lies.Chance(100) {
			continue
		}
		other := s.Announcement
		other.Blob[0] ^= 1
		forged := wire.SignAnnouncement(p.machine.Key, other)
		copy(forged[1:], victim.ID[:])
		if proof, ok := wire.NewEquivocation(wire.SignAnnouncement(victim.Key, s.Announcement), forged); ok {
			p.sendAside(proof)
		}
		return
	}
}

// hides reports whether the gang keeps the records of one history from clients that are shown the other.
func (p *process) hides(other *process) bool {
	return p.machine.history() != other.machine.history() && (p.machine.Lies(scenario.Gang) || other.machine.Lies(scenario.Gang))
}
