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

// scheme is the coalition's goal in an epoch.
type scheme int

const (
	evicts       scheme = iota // all are present, to exceed the tolerated share of a committee
	comesAndGoes               // half of them give up their seats and take them back
	dawdles                    // their results arrive just before other members stop waiting
	grinds                     // they withhold their committed values, or leave after revealing them
)

// schemeOf returns the coalition's goal in an epoch.
func (w *world) schemeOf(epoch uint32) scheme {
	return random.One(random.New(w.options.Seed, "scheme "+strconv.Itoa(int(epoch))), evicts, evicts, comesAndGoes, dawdles, grinds)
}

// conspiracy returns a false proof of a coalition witness, made from an honest proof. If the
// coalition exceeds the tolerated share of the committee, the proof names only its members: no
// other result can count, and all other members can be found late. If it has a quorum, it also
// signs a false root and replica.
func (p *process) conspiracy(proof coordinator.WitnessRound) coordinator.WitnessRound {
	s := p.machine.history().State()
	round := s.RoundOfStep(proof.Step)
	proof.Claim = falseClaim(proof.Step)
	switch p.world.attacks.Below(6) { // to influence the audits, or to be accepted without influence on them
	case 0:
		proof.Reveal[0] ^= 1
	case 1:
		proof.Reveal = [32]byte{}
	}
	if round == nil {
		return proof
	}
	elected := p.world.cast.CoalitionElected(round, s.Config)
	if elected <= int(round.WitnessesElected)-int(round.WitnessesNeeded) {
		return proof
	}
	own := coordinator.WitnessRound{Step: proof.Step, Replica: proof.Replica, Reveal: proof.Reveal, Claim: proof.Claim}
	for _, a := range round.Assignments(s.Config) {
		id := round.Members[a.Member]
		if p.world.cast.InCoalition(id) {
			own.Participants.Add(round.Seed, id[:])
		}
	}
	if elected >= int(round.WitnessesNeeded) {
		own.CommitmentsRoot, own.Replica = coalitionModel(proof.Step), coalitionModel(proof.Step)
	}
	return own
}

// withhold delays the member's reveal, for its whole Warmup or for a while, until it has seen the
// reveals of honest members.
func (p *process) withhold(ready coordinator.Ready) coordinator.Ready {
	grinding := p.world.schemeOf(ready.Epoch) == grinds
	if grinding && p.machine.Index%3 == 0 || p.world.attacks.Chance(300) {
		ready.Reveal[0] ^= 1
	}
	return ready
}

// dawdle returns the extra time of a coalition member for a batch.
func (p *process) dawdle() int64 {
	if p.world.schemeOf(p.machine.history().State().Progress.Epoch) != dawdles {
		return 0
	}
	return p.world.attacks.Between(2*second, 4*second)
}

// coalitionModel returns the digest that all coalition members report after a step.
func coalitionModel(step uint32) [32]byte {
	return sha256.Sum256(binary.LittleEndian.AppendUint32([]byte("the gang's model"), step))
}

// evict accuses all members without a result in the proofs of the coalition or of other members. It
// is called once in every new phase.
func (p *process) evict(state *coordinator.State) {
	var accused []coordinator.ClientID
	for _, id := range state.Accusable() {
		if m := p.world.cast.Find([32]byte(id)); m != nil && !m.HasRole(scenario.Coalition) {
			accused = append(accused, id)
		}
	}
	if len(accused) > 0 {
		p.sendAside(coordinator.HealthCheck{Step: state.Progress.Step - 1, Clients: accused})
	}
}

// comeAndGo gives up the seats of some coalition members in some rounds, and takes them back, or
// takes seats that they never had, as often as possible. Some leave after their reveal, in an
// attempt to revoke it.
func (p *process) comeAndGo(state *coordinator.State) {
	aim := p.world.schemeOf(state.Progress.Epoch)
	me := coordinator.ClientID(p.machine.ID)
	member, ok := state.Member(me)
	healthy := ok && member.State == coordinator.Healthy
	switch {
	case p.machine.Index%2 != 0:
	case state.RunState == coordinator.Warmup && aim == grinds && healthy && slices.Contains(state.Epoch.Ready, me),
		state.RunState == coordinator.RoundTrain && aim == comesAndGoes && healthy && p.world.attacks.Chance(500):
		p.sendAside(coordinator.Withdraw{Client: me})
	case state.RunState == coordinator.RoundTrain && !healthy:
		p.sendAside(coordinator.Return{Epoch: state.Progress.Epoch})
	}
}

// frame submits a false proof that an honest member signed two results.
func (p *process) frame(state *coordinator.State) {
	for _, s := range p.world.registry.OfStep(state.Progress.Step) {
		victim := p.world.cast.Find(s.Author)
		if !victim.Honest() || !p.world.attacks.Chance(100) {
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

// hides reports whether the coalition hides the records of one history from clients that see the
// other.
func (p *process) hides(other *process) bool {
	return p.machine.history() != other.machine.history() && (p.machine.HasRole(scenario.Coalition) || other.machine.HasRole(scenario.Coalition))
}
