package core

import (
	"slices"

	"github.com/psyche-go/psyche/core/coordinator"
)

// Events of a witness.
type (
	// Attest compares the results of a round with the results that the member's proof needs. The caller
	// repeats it after every other event.
	Attest struct {
		Part    *Part
		Round   *coordinator.Round
		Results Results
		Over    bool // the round is over: a witness proves the results that it holds
		Judges  bool // the member is in a jury, and must know when the results are complete
	}

	// Proof follows an event with Ready.Prove. It contains the proof of the results that the member
	// holds, their number, and the number of batches.
	Proof struct {
		coordinator.WitnessRound
		Held, Batches int
	}

	// Accuse examines the members of the previous round; nil: it is unknown.
	Accuse struct{ Previous *Part }
)

// Reports of a witness.
type (
	// Witnessed means that the host accepted a proof.
	Witnessed struct {
		Step          uint32
		Held, Batches int
	}

	// Accused means that the host accepted the report of members without results.
	Accused struct {
		Step    uint32
		Members []coordinator.ClientID
	}
)

func (Attest) event() {}
func (Proof) event()  {}
func (Accuse) event() {}

func (Witnessed) report() {}
func (Accused) report()   {}

// witness decides when a witness sends its proof, and which members it accuses.
type witness struct {
	proves Witnessed // newest submitted proof
}

// attest asks for the proof of an elected witness. During the round, the witness waits until it holds all
// results that can be expected.
func (*witness) attest(c *common, e Attest) {
	p := e.Part
	complete := !e.Over && (p.Elected || !p.reported || e.Judges) && (p.complete(e.Results, c.now) || p.pace.joined && oneIsHonest(e.Round))
	if complete && !p.reported {
		p.reported = true
		c.ready.HeldAll = true
	}
	if p.Elected && (e.Over || complete) && !c.witnessed(e.Round) {
		c.ready.Prove = true
	}
}

// oneIsHonest reports whether more witnesses have proved the round than can be dishonest.
func oneIsHonest(r *coordinator.Round) bool {
	return len(r.Witnesses) > int(r.WitnessesElected)-int(r.WitnessesNeeded)
}

// prove sends a proof. In a run with audits, the proof reveals a value.
func (w *witness) prove(c *common, e Proof) {
	proof := e.WitnessRound
	if me, known := c.state.Member(c.ID); known && c.state.Config.VerificationPercent > 0 {
		proof.Reveal = c.commitments.withProof(me, c.state.Progress.Epoch)
	}
	if c.submit(witnessKind, proof.Step, proof) {
		w.proves = Witnessed{proof.Step, e.Held, e.Batches}
	}
}

// accuse reports members whose results the witnesses of the previous round do not hold, if this member
// was one of these witnesses. The other witnesses do the same, and one report is sufficient.
func (*witness) accuse(c *common, e Accuse) {
	p := e.Previous
	if p == nil || !p.Elected || p.examined == c.state {
		return
	}
	p.examined = c.state
	if p.judged && len(p.suspects) == 0 { // all its witnesses have sent proofs: the set of accusable members can only shrink
		return
	}
	p.judged, p.suspects = true, c.state.Accusable()
	accused := slices.DeleteFunc(slices.Clone(p.suspects), func(id coordinator.ClientID) bool { return id == c.ID })
	if len(accused) > 0 {
		c.submit(healthKind, p.Step, coordinator.HealthCheck{Step: p.Step, Clients: accused})
	}
}

// accepted handles an action that the host accepted.
func (w *witness) accepted(c *common, action coordinator.Action) {
	switch a := action.(type) {
	case coordinator.WitnessRound:
		c.report(w.proves)
	case coordinator.HealthCheck:
		c.report(Accused{a.Step, a.Clients})
	}
}

// witnessed reports whether this client sent its proof of a round, which the state may not show yet.
func (c *common) witnessed(r *coordinator.Round) bool {
	index, takesPart := r.MemberIndex(c.ID)
	return takesPart && (c.Actions.Answered(c.now, witnessKind, r.Step) || slices.ContainsFunc(r.Witnesses, func(w coordinator.Witness) bool { return int(w.Member) == index }))
}
