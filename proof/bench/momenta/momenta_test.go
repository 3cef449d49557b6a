package momenta

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/psyche-go/psyche/core/audit"
)

// rig is a trainer of two small tensors after some honest steps, and a step to audit.
type rig struct {
	cut    *Cutting
	random *rand.Rand
	state  *State
	other  *State
	update [][]float32
	old    [][]float32
}

func newRig(t *testing.T, signs bool) *rig {
	t.Helper()
	shapes := audit.Shapes{{Chunks: 3, Rows: 8, Cols: 8, K: 4}, {Chunks: 2, Rows: 1, Cols: 8, K: 4}}
	cut, err := New(shapes, Options{Decay: 0.9, TopK: 4, Edge: 8, Signs: signs, Run: [32]byte{1}})
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{cut: cut, random: rand.New(rand.NewPCG(1, 2)), state: cut.Begin(), other: cut.Begin()}
	for step := range uint32(3) {
		r.old, r.state, r.other = r.drawn(), r.step(t, r.state, step+1), r.step(t, r.other, step+1)
	}
	r.other = r.step(t, r.other, 4)
	r.update = r.drawn()
	return r
}

func (r *rig) step(t *testing.T, from *State, step uint32) *State {
	t.Helper()
	to, err := r.cut.Advance(from, step, r.drawn(), nil)
	if err != nil {
		t.Fatal(err)
	}
	return to
}

func (r *rig) drawn() [][]float32 {
	all := r.cut.Zeros()
	for i := range all {
		for j := range all[i] {
			all[i][j] = float32(r.random.NormFloat64())
		}
	}
	return all
}

// judge audits all chunks of a step that adds the given update to the momentum.
func (r *rig) judge(t *testing.T, added [][]float32) (audit.Outcome, audit.Report) {
	t.Helper()
	to, err := r.cut.Advance(r.state, 4, added, nil)
	if err != nil {
		t.Fatal(err)
	}
	all := &audit.Reference{Shapes: r.cut.Shapes, Step: 4, Decay: r.cut.Decay, Signs: r.cut.Signs, Longest: math.Inf(1), Most: math.Inf(1)}
	for i, s := range r.cut.Shapes {
		for c := range s.Chunks {
			chunk := r.update[i][c*s.Rows*s.Cols:][:s.Rows*s.Cols]
			all.Updates, all.Usual = append(all.Updates, chunk), append(all.Usual, Length(chunk))
		}
	}
	claim, err := r.cut.Claim(r.state, to, Key(3), All(r.cut.Shapes))
	if err != nil {
		t.Fatal(err)
	}
	report := Reference(all, Key(3), All(r.cut.Shapes)).Check(claim)
	return report.Judge(audit.F32Limits), report
}

// TestOnlyTheGradientGivesAttackersAway checks that an honest step passes, that attackers break no
// rule of the opening, and that no attack passes.
func TestOnlyTheGradientGivesAttackersAway(t *testing.T) {
	for _, signs := range []bool{true, false} {
		r := newRig(t, signs)
		if outcome, report := r.judge(t, r.update); outcome != audit.Passed || report.Error > 1e-5 {
			t.Fatalf("an honest step (signs %v): %v, error %v", signs, outcome, report.Error)
		}
		half := scaled(r.update, 0.5)
		for _, a := range append(Single(), Injection) {
			scene := &Scene{
				Cutting: r.cut, Random: r.random, Step: 1, Own: r.state, Honest: r.state,
				Update: r.update, Old: r.old, Half: half, Foreign: r.old, Others: r.other.Taken,
			}
			outcome, report := r.judge(t, a.Fake(scene))
			if a.Name == "sign-flip in a tenth of the chunks" {
				continue // it may change none of the five chunks
			}
			if outcome != audit.Strange {
				t.Errorf("%s (signs %v): %v, fault %v, error %v; want %v", a.Name, signs, outcome, report.Fault, report.Error, audit.Strange)
			}
		}
	}
}

// TestCopiesAreCopies checks that a copy sends the entries of a different member, and that a
// negated copy sends the opposite entries.
func TestCopiesAreCopies(t *testing.T) {
	r := newRig(t, true)
	for _, sign := range []float32{1, -1} {
		scene := &Scene{Cutting: r.cut, Random: r.random, Own: r.state, Update: r.update, Others: r.other.Taken}
		to, err := r.cut.Advance(r.state, 4, scene.copy(sign), nil)
		if err != nil {
			t.Fatal(err)
		}
		o := Compare(r.cut.Shapes, r.other.Taken, to.Taken)
		if same, opposite := o.Same == o.Entries, o.Opposite == o.Entries; o.Entries == 0 || same != (sign > 0) || opposite != (sign < 0) {
			t.Errorf("sign %v: of %d entries %d are the same and %d are opposite", sign, o.Entries, o.Same, o.Opposite)
		}
	}
}

// TestAdvanceInPlace checks that the previous content of a state's memory has no effect, and that
// the source state stays unchanged.
func TestAdvanceInPlace(t *testing.T) {
	r := newRig(t, true)
	before := Copied(r.state.Momentum)
	fresh, err := r.cut.Advance(r.state, 4, r.update, nil)
	if err != nil {
		t.Fatal(err)
	}
	again, err := r.cut.Advance(r.state, 4, r.update, &State{Momentum: r.drawn()})
	if err != nil {
		t.Fatal(err)
	}
	for i := range fresh.Momentum {
		for j, v := range fresh.Momentum[i] {
			if again.Momentum[i][j] != v || r.state.Momentum[i][j] != before[i][j] {
				t.Fatalf("tensor %d, element %d: %v in new memory, %v in reused memory; source state %v, was %v",
					i, j, v, again.Momentum[i][j], before[i][j], r.state.Momentum[i][j])
			}
		}
	}
}

// TestDriftPasses has a trainer that subtracts the mean gradient from its gradient, by less than
// the tolerance of audits in bf16. It checks that the trainer is not accused, even if its hardware
// differs from the accuser's.
func TestDriftPasses(t *testing.T) {
	for _, a := range []Attack{Drift, DriftSent} {
		r := newRig(t, true)
		scene := &Scene{Cutting: r.cut, Own: r.state, Update: r.update, Mean: r.old}
		for i, s := range r.cut.Shapes {
			for c := range s.Chunks {
				scene.Usual = append(scene.Usual, Length(r.update[i][c*s.Rows*s.Cols:][:s.Rows*s.Cols]))
			}
		}
		_, report := r.judge(t, a.Fake(scene))
		if accuser := (&audit.Reference{Limits: audit.BF16Limits}).Wider(); report.Judge(accuser.Limits) != audit.Passed || report.Error < audit.BF16Limits.Error {
			t.Errorf("%s: fault %v, error %v; want no fault, and an error above %v", a.Name, report.Fault, report.Error, audit.BF16Limits.Error)
		}
	}
}
