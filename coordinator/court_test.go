package coordinator

import (
	"fmt"
	"slices"
	"testing"
)

// court is a run in which a verifier has judged a trainer.
type court struct {
	*run
	verifier, trainer ClientID
	accuser, accused  ClientID // of both; by a fault of trainers until tried has another one
	step              uint32   // in which verifier verified
}

// auditedRun returns a run of so many members, of which four tenths verify, in the second round of
// its epoch.
func auditedRun(t testing.TB, members int) *run {
	t.Helper()
	config := longConfig()
	config.VerificationPercent, config.EjectionEpochs = 40, 2
	var names []string
	for i := range members {
		names = append(names, fmt.Sprintf("m%03d", i))
	}
	r := newRun(t, config, names...)
	r.round()
	return r
}

// newCourt returns a run of so many members in which all verifiers have judged, and one of them
// with its target, which has another part in this round.
func newCourt(t testing.TB, members int) *court {
	t.Helper()
	r := auditedRun(t, members)
	r.auditAll()
	c := &court{run: r, step: r.Progress.Step}
	verifiers := r.CurrentRound().verifiers(r.Config)
	for _, member := range verifiers {
		id := r.CurrentRound().Members[member]
		audit, _ := r.AuditOf(c.step, id)
		target, _ := r.CurrentRound().MemberIndex(audit.Trainer)
		if !slices.Contains(verifiers, target) {
			c.verifier, c.trainer = id, audit.Trainer
			c.accuser, c.accused = c.verifier, c.trainer
			return c
		}
	}
	t.Fatal("every verifier audits another one")
	return nil
}

// round plays what is left of the round: all but who is silent prove, and nobody audits.
func (r *run) round() {
	r.t.Helper()
	step := r.Progress.Step
	r.until(RoundTrain)
	if r.silent == (ClientID{}) {
		r.witnessAll()
	} else {
		round, proof := r.CurrentRound(), r.witnessOf(nameOf(r.silent))
		for _, i := range round.ElectedWitnesses(r.Config) {
			if id := round.Members[i]; id != r.silent && r.isHealthy(id) {
				r.mustID(id, proof)
			}
		}
	}
	for r.Progress.Step == step {
		r.now += second
		r.Tick(r.now, r.testDraw(r.now))
	}
}

// rounds plays so many rounds in which all audit, but those named.
func (r *run) rounds(n int, but ...ClientID) {
	r.t.Helper()
	for range n {
		r.auditAll(but...)
		r.round()
	}
}

// auditAll lets all that have to audit seal and judge, but those named.
func (r *run) auditAll(but ...ClientID) {
	r.t.Helper()
	for _, id := range clientIDs(r.Epoch.Clients) {
		for _, audit := range r.Audits(id) {
			if slices.Contains(but, id) || audit.Judged || id == r.silent {
				continue
			}
			if !audit.Sealed {
				r.mustID(id, SealVerdict{Step: audit.Step, Seal: [32]byte{1}})
			}
			r.mustID(id, Verdict{Step: audit.Step, Body: [32]byte{1}})
		}
	}
}

// tried lets one of both accuse the other of a fault and plays to the next round, in which there is a jury.
func (c *court) tried(fault Fault) *Trial {
	c.t.Helper()
	if fault.OfVerifier() {
		c.accused, c.accuser = c.verifier, c.trainer
	}
	c.mustID(c.accuser, Accuse{Step: c.step, Client: c.accused, Fault: fault})
	c.rounds(1)
	return c.Trial(c.accused)
}

// vote lets so many jurors that have not voted do so.
func (c *court) vote(guilty bool, jurors int) {
	c.t.Helper()
	for _, id := range slices.Clone(c.Trial(c.accused).Jury) {
		if trial := c.Trial(c.accused); jurors > 0 && trial != nil && !trial.HasVoted(id) {
			c.mustID(id, Vote{Step: c.step, Client: c.accused, Guilty: guilty, Body: [32]byte{1}})
			jurors--
		}
	}
	if jurors > 0 {
		c.t.Fatalf("the trial was over before %d jurors had voted", jurors)
	}
}

func (c *court) open() { c.mustID(c.accused, Open{Step: c.step, Blob: [32]byte{9}}) }

func (c *court) check() {
	c.t.Helper()
	if err := c.Check(); err != nil {
		c.t.Fatalf("%v\n%s", err, c.String())
	}
	if back, err := Decode(c.AppendTo(nil)); err != nil || back.Hash() != c.Hash() {
		c.t.Fatalf("does not go through its bytes: %v\n%s", err, c.String())
	}
}
