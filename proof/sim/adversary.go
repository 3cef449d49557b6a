package sim

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"

	"github.com/psyche-go/psyche/core/assign"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/proof/sim/check"
	"github.com/psyche-go/psyche/proof/sim/model"
	"github.com/psyche-go/psyche/proof/sim/scenario"
	"github.com/psyche-go/psyche/record/backend"
	"github.com/psyche-go/psyche/record/wire"
)

// decoys is the number of empty commitments that a HiddenResult announces for a batch, which is
// more than a client keeps.
const decoys = 2 + coordinator.MaxWitnesses + 8

// Submit implements env.Backend. A Byzantine client submits something other than its node's action.
func (p *process) Submit(ctx context.Context, a coordinator.Action) error {
	if report, is := a.(coordinator.ReportCheckpoint); is {
		report.HeldOut = check.HonestHeldOut
		if !p.machine.Honest() {
			report.HeldOut = falseClaim(report.Step).Loss
		}
		a = report
	}
	if change := p.world.rules.submits; change != nil {
		a = change(p, a)
	}
	if p.machine.HasRole(scenario.LyingWitness) {
		switch honest := a.(type) {
		case coordinator.WitnessRound:
			a = p.distort(honest)
		case coordinator.ReportCheckpoint:
			if p.world.attacks.Chance(400) {
				honest.Digest[p.world.attacks.Below(32)] ^= 1
				a = honest
			}
		}
	}
	if _, proof := a.(coordinator.WitnessRound); proof && p.world.rules.holdsProofs {
		if err := p.wait(ctx, p.world.now+12*second); err != nil {
			return err
		}
	}
	if _, proof := a.(coordinator.WitnessRound); proof && p.world.rules.reports && p.trainer.step != 0 && p.machine.Honest() {
		report := coordinator.ReportCheckpoint{Step: p.trainer.step + 1, Digest: p.trainer.applied().Digest(p.trainer.step)}
		if err := p.send(ctx, report); errors.Is(err, errStopped) { // if it is refused, the checker notices
			return err
		}
	}
	if p.machine.HasRole(scenario.Coalition) {
		switch honest := a.(type) {
		case coordinator.WitnessRound:
			a = p.conspiracy(honest)
		case coordinator.ReportCheckpoint:
			honest.Digest = coalitionModel(honest.Step)
			a = honest
		case coordinator.Ready:
			a = p.withhold(honest)
		}
	}
	if p.machine.Roles&(scenario.Coalition|scenario.Slanderer) != 0 {
		switch honest := a.(type) {
		case coordinator.Vote:
			vote, votes := p.perverts(honest)
			if !votes {
				return backend.ErrDisconnected
			}
			a = vote
		case coordinator.Accuse:
			if p.machine.HasRole(scenario.Coalition) {
				return backend.ErrDisconnected // the member makes its own accusations
			}
		}
	}
	return p.send(ctx, a)
}

// equivocate makes a second result of the batch in message and sends each result to one half of the
// other members. It reports whether it did.
func (p *process) equivocate(message []byte) bool {
	s, known := p.world.registry.Open(message)
	if !known || s.Author != p.machine.ID || p.trainer == nil {
		return false
	}
	variant := byte(1 + p.world.attacks.Below(3))
	other := model.NewResult(&p.trainer.model, s.Announcement.Step, s.Announcement.Batch, p.machine.ID, variant)
	if first := p.blobs[s.Announcement.Blob]; len(first) > model.ResultSize {
		other = append(other, first[model.ResultSize:]...)
	}
	hash, _ := p.Put(other)
	a := s.Announcement
	a.Blob, a.Size = hash, uint32(len(other))
	second := p.Sign(a)
	for to := range p.world.machines {
		if p.world.attacks.Chance(500) {
			p.gossip(to, message)
		} else {
			p.gossip(to, second)
		}
	}
	p.world.inform(p, message, second)
	return true
}

// inform makes an honest member submit the proof that a trainer signed two results, as a member
// does that receives both.
func (w *world) inform(equivocator *process, one, other []byte) {
	proof, ok := wire.NewEquivocation(one, other)
	informer := w.machines[w.attacks.Below(len(w.machines))]
	if !ok || !informer.Honest() {
		return // only other members receive it
	}
	w.after(second/2, func() {
		if p := informer.process; p != nil && !p.ended && p.friends[equivocator.machine.Index] {
			p.sendAside(proof)
		}
	})
}

// falseClaim returns a claim that is far too low in one round and far too high in the next.
func falseClaim(step uint32) coordinator.Claim {
	if step%2 == 0 {
		return coordinator.Claim{Loss: 1, Speed: 1<<32 - 1}
	}
	return coordinator.Claim{Loss: 1<<16 - 1, Speed: 1}
}

// distort returns a false proof of a Byzantine witness, made from an honest proof.
func (p *process) distort(proof coordinator.WitnessRound) coordinator.WitnessRound {
	r := p.world.attacks
	state := p.machine.history().State()
	proof.Claim = falseClaim(proof.Step)
	switch r.Below(8) {
	case 0: // saw nothing
		proof = coordinator.WitnessRound{Step: proof.Step, Replica: proof.Replica, Reveal: proof.Reveal, Claim: proof.Claim}
	case 1: // saw everything
		for i := range proof.Commitments {
			proof.Commitments[i], proof.Participants[i] = ^uint64(0), ^uint64(0)
		}
	case 2:
		proof.CommitmentsRoot[r.Below(32)] ^= 1
	case 3:
		proof.Replica[r.Below(32)] ^= 1
	case 4: // the maximum number of bits
		clear(proof.Commitments[:])
		clear(proof.Participants[:])
		if round := state.CurrentRound(); round != nil {
			for range round.Assignments(state.Config) {
				bit := r.Below(2560)
				proof.Commitments[bit/64] |= 1 << (bit % 64)
			}
			for _, id := range round.Members {
				proof.Participants.Add(round.Seed, id[:])
			}
		}
	case 5: // for the second results, and for nonexistent results
		if round := state.RoundOfStep(proof.Step); round != nil {
			clear(proof.Commitments[:])
			for i, a := range round.Assignments(state.Config) {
				known := p.world.registry.Of(proof.Step, a.Batch, [32]byte(round.Members[a.Member]))
				if len(known) > 0 && i%5 != 0 {
					blob := known[len(known)-1].Announcement.Blob
					proof.Commitments.Add(round.Seed, blob[:])
				}
			}
		}
	case 7: // not the committed value
		proof.Reveal[r.Below(32)] ^= 1
	case 6: // the right root, and a filter for the items that hide other members' results
		if round := state.RoundOfStep(proof.Step); round != nil {
			clear(proof.Commitments[:])
			room := len(round.Assignments(state.Config)) // the maximum number of bits of a filter
			for _, m := range p.world.machines {
				for i := 0; i < decoys && room > 0 && m.HasRole(scenario.HiddenResult); i++ {
					blob := m.decoy(proof.Step, i)
					proof.Commitments.Add(round.Seed, blob[:])
					room--
				}
			}
		}
	}
	return proof
}

// decoy returns a commitment of nothing.
func (m *machine) decoy(step uint32, number int) [32]byte {
	return sha256.Sum256(fmt.Appendf(nil, "decoy %d %d %d", m.Index, step, number))
}

// hide announces two decoys instead of the result in message to a quarter of the other members. It
// reports whether it did.
func (p *process) hide(message []byte) bool {
	s, known := p.world.registry.Open(message)
	if !known || s.Author != p.machine.ID {
		return false
	}
	p.hidden = s.Announcement
	for to := range p.world.machines {
		if !p.hidesFrom(to, s.Announcement.Step) {
			p.gossip(to, message)
			continue
		}
		for i := range 2 {
			p.gossip(to, p.signDecoy(s.Announcement, i))
		}
	}
	return true
}

func (p *process) hidesFrom(to int, step uint32) bool { return (to+int(step))%4 == 0 }

func (p *process) signDecoy(a wire.ResultAnnouncement, number int) []byte {
	a.Blob = p.machine.decoy(a.Step, number)
	return p.Sign(a)
}

// flood announces all decoys to the members that a result was hidden from, after the round and
// before they can ask other members.
func (p *process) flood(state *coordinator.State) {
	step := p.hidden.Step
	running := state.RunState == coordinator.RoundTrain || state.RunState == coordinator.RoundWitness
	if step == 0 || running && state.Progress.Step <= step {
		return
	}
	for to := range p.world.machines {
		for i := 0; i < decoys && p.hidesFrom(to, step); i++ {
			p.gossip(to, p.signDecoy(p.hidden, i))
		}
	}
	p.hidden = wire.ResultAnnouncement{}
}

// conspire submits false accusations of healthy members, and proofs of clients that were not
// elected. It is called once in every new phase.
func (p *process) conspire(state *coordinator.State) {
	p.flood(state)
	if p.machine.HasRole(scenario.Coalition) {
		p.evict(state)
		p.comeAndGo(state)
		p.frame(state)
	}
	round := state.CurrentRound()
	if round == nil {
		return
	}
	if p.machine.HasRole(scenario.FalseAccuser) && p.world.attacks.Chance(500) && len(round.Members) > 1 {
		accused := round.Members[p.world.attacks.Below(len(round.Members))]
		step := state.Progress.Step - uint32(p.world.attacks.Below(2))
		p.sendAside(coordinator.HealthCheck{Step: step, Clients: []coordinator.ClientID{accused}})
		if accused != coordinator.ClientID(p.machine.ID) { // its own signature is in the proof
			p.sendAside(p.framing(accused, step))
		}
	}
	if p.machine.HasRole(scenario.LyingWitness) && state.RunState == coordinator.RoundTrain && p.world.attacks.Chance(500) {
		proof := coordinator.WitnessRound{Step: round.Step}
		for _, id := range round.Members {
			proof.Participants.Add(round.Seed, id[:])
		}
		p.sendAside(proof)
	}
}

// framing returns a proof against a different member, made from this client's signatures.
func (p *process) framing(accused coordinator.ClientID, step uint32) coordinator.Equivocation {
	batch := assign.BatchID{End: 1}
	proof, _ := wire.NewEquivocation(
		wire.SignAnnouncement(p.machine.Key, wire.ResultAnnouncement{Step: step, Batch: batch, Blob: [32]byte{1}, Size: 1}),
		wire.SignAnnouncement(p.machine.Key, wire.ResultAnnouncement{Step: step, Batch: batch, Blob: [32]byte{2}, Size: 1}))
	proof.Client = accused
	return proof
}
