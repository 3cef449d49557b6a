package audit_test

import (
	"math"
	"testing"

	"github.com/psyche-go/psyche/core/audit"
	"github.com/psyche-go/psyche/core/codec"
	"github.com/psyche-go/psyche/core/merkle"
	"github.com/psyche-go/psyche/learn/distro"
)

var limits = audit.Limits{Error: 0.1, Chunk: 0.2, Stray: 1, Worst: 0.5}

// TestHonestStepsPass checks honest steps, also after steps that no witness held and that were
// rolled back.
func TestHonestStepsPass(t *testing.T) {
	r := newRig(t)
	for step := uint32(1); step <= 12; step++ {
		g := r.gradient()
		r.train(step, g)
		report := r.reference(r.all(), r.perturbed(g, 0.01)).Check(r.claim(r.all()))
		if report.Judge(limits) != audit.Passed || report.Error < 0.005 || report.Error > 0.02 {
			t.Fatalf("step %d: fault %v, error %v, want no fault and about 0.01", step, report.Fault, report.Error)
		}
		if step%3 == 0 {
			r.rollback()
		}
	}
}

// TestExactGradientHasNoError checks that rounding alone causes an error of at most 2·10⁻⁶.
func TestExactGradientHasNoError(t *testing.T) {
	r := newRig(t)
	for step := uint32(1); step <= 20; step++ {
		g := r.gradient()
		r.train(step, g)
		if report := r.reference(r.all(), g).Check(r.claim(r.all())); report.Fault != audit.FaultNone || report.Error > 2e-6 {
			t.Errorf("step %d: fault %v, error %v", step, report.Fault, report.Error)
		}
	}
}

// TestFalseClaimsAreFound checks one false claim for each rule, in the third step of an otherwise
// honest trainer.
func TestFalseClaimsAreFound(t *testing.T) {
	change := func(g [][]float32, f func(v float32) float32) {
		for _, tensor := range g {
			for i, v := range tensor {
				tensor[i] = f(v)
			}
		}
	}
	for _, c := range []struct {
		name   string
		before func(r *rig)                                     // changes the momentum before the step
		train  func(r *rig, g [][]float32)                      // changes the gradient g that is trained
		claim  func(r *rig, c *audit.Claim, e *audit.Reference) // changes the claim or the reference
		want   audit.Outcome
		fault  audit.Fault
	}{
		{name: "none", want: audit.Passed},
		{name: "sign", train: func(_ *rig, g [][]float32) { change(g, func(v float32) float32 { return -v }) }, want: audit.Strange},
		{name: "nothing trained", train: func(_ *rig, g [][]float32) { change(g, func(float32) float32 { return 0 }) }, want: audit.Strange},
		{name: "twice as large", train: func(_ *rig, g [][]float32) { change(g, func(v float32) float32 { return 2 * v }) }, want: audit.Strange},
		{name: "noise of the same size", train: func(r *rig, g [][]float32) { copy(g, r.gradient()) }, want: audit.Strange},
		{name: "momentum changed between steps", before: func(r *rig) { change(r.deltas, func(v float32) float32 { return -v }) }, want: audit.Strange},
		{name: "another momentum is opened", claim: func(_ *rig, c *audit.Claim, _ *audit.Reference) { c.Opening.Chunks[0].Before.Momentum[3] = 0 },
			want: audit.Faulty, fault: audit.FaultPath},
		{name: "another value was taken", claim: func(_ *rig, c *audit.Claim, _ *audit.Reference) { c.Opening.Chunks[0].After.Taken.Values[0] *= 1.5 },
			want: audit.Faulty, fault: audit.FaultPath},
		{name: "another root", claim: func(_ *rig, c *audit.Claim, _ *audit.Reference) { c.PreviousRoot[0] ^= 1 }, want: audit.Faulty, fault: audit.FaultPath},
		{name: "sent another sign", claim: func(_ *rig, c *audit.Claim, _ *audit.Reference) { c.Result = flipped(c.Result) }, want: audit.Faulty, fault: audit.FaultSent},
		{name: "sent another value", claim: func(_ *rig, c *audit.Claim, e *audit.Reference) { e.Signs = false; c.Result = doubled(c.Result) },
			want: audit.Faulty, fault: audit.FaultSent},
		{name: "opens other chunks", claim: func(_ *rig, c *audit.Claim, _ *audit.Reference) { c.Opening.Chunks = c.Opening.Chunks[1:] },
			want: audit.Faulty, fault: audit.FaultChallenge},
		{name: "opens another step", claim: func(_ *rig, c *audit.Claim, e *audit.Reference) { e.Step++ }, want: audit.Faulty, fault: audit.FaultChallenge},
		{name: "goes on from another step", claim: func(_ *rig, c *audit.Claim, _ *audit.Reference) { c.Header.Previous = 1 },
			want: audit.Faulty, fault: audit.FaultChallenge},
		{name: "goes on from no step", before: func(r *rig) { r.history = nil }, want: audit.Faulty, fault: audit.FaultLength,
			claim: func(_ *rig, _ *audit.Claim, e *audit.Reference) { e.Most = 35 }},
		{name: "goes on from no step, below the bound", before: func(r *rig) { r.history = nil }, want: audit.Strange},
		{name: "added more than gradients", train: func(_ *rig, g [][]float32) { change(g, func(v float32) float32 { return 2 * v }) },
			claim: func(_ *rig, _ *audit.Claim, e *audit.Reference) { e.Most = 60 }, want: audit.Faulty, fault: audit.FaultLength},
		{name: "longer than gradients", claim: func(_ *rig, c *audit.Claim, e *audit.Reference) { e.Longest = 1 }, want: audit.Faulty, fault: audit.FaultLength},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t)
			r.train(1, r.gradient())
			r.train(2, r.gradient())
			if c.before != nil {
				c.before(r)
			}
			g := r.gradient()
			trained := r.perturbed(g, 0)
			if c.train != nil {
				c.train(r, trained)
			}
			r.train(3, trained)
			claim, reference := r.claim(r.all()), r.reference(r.all(), g)
			if c.claim != nil {
				c.claim(r, &claim, reference)
			}
			report := reference.Check(claim)
			if c.want == audit.Faulty { // these faults are found without a gradient
				reference.Updates, reference.Usual = nil, nil
				if light := reference.Check(claim); light.Fault != c.fault {
					t.Errorf("without a gradient: fault %v, want %v", light.Fault, c.fault)
				}
			}
			if got := report.Judge(limits); got != c.want || report.Fault != c.fault {
				t.Errorf("%v, fault %v, error %v; want %v, fault %v", got, report.Fault, report.Error, c.want, c.fault)
			}
		})
	}
}

// TestSelection checks a trainer that sends coefficients other than the largest and commits to
// them. Only the check of the selection detects it.
func TestSelection(t *testing.T) {
	r := newRig(t)
	g := r.gradient()
	m := r.train(1, g)
	for i, l := range r.layouts {
		if err := r.kernel.AddBack(l, r.deltas[i], m.taken[i]); err != nil {
			t.Fatal(err)
		}
	}
	for i := range m.taken { // repeat the step without the largest coefficient of each chunk
		shape := r.shapes[i]
		for c := range shape.Chunks {
			at, worst := c*shape.K, 0
			for j := range int(m.taken[i].Counts[c]) {
				if math.Abs(float64(m.taken[i].Values[at+j])) > math.Abs(float64(m.taken[i].Values[at+worst])) {
					worst = j
				}
			}
			values, indices := m.taken[i].Values[at:at+shape.K], m.taken[i].Indices[at:at+shape.K]
			copy(values[worst:], values[worst+1:])
			copy(indices[worst:], indices[worst+1:])
			values[shape.K-1], indices[shape.K-1] = 0, 0
			m.taken[i].Counts[c]--
		}
	}
	commit(r, m)
	report := r.reference(r.all(), g).Check(r.claim(r.all()))
	if report.Fault != audit.FaultSelection || report.Error > 1e-5 {
		t.Errorf("fault %v, error %v", report.Fault, report.Error)
	}
}

// TestCoarseSelection checks rounded values. They must lie between zero and twice the exact value
// and be among the largest coefficients. Small values may be rounded to zero.
func TestCoarseSelection(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(r codec.TensorResult, at, count int) int // changes the entries of a chunk; returns the number of remaining entries
		fault  audit.Fault
	}{
		{"as they are", func(_ codec.TensorResult, _, count int) int { return count }, audit.FaultNone},
		{"rounded up and down", func(r codec.TensorResult, at, count int) int {
			for i := at; i < at+count; i++ {
				r.Values[i] *= []float32{0.4, 1.9}[i%2]
			}
			return count
		}, audit.FaultNone},
		{"more than twice", func(r codec.TensorResult, at, count int) int {
			r.Values[at] *= 2.1
			return count
		}, audit.FaultSelection},
		{"turned", func(r codec.TensorResult, at, count int) int {
			r.Values[at] *= -0.1
			return count
		}, audit.FaultSelection},
		{"without the smallest", func(r codec.TensorResult, at, count int) int { return leaveOut(r, at, count, false) }, audit.FaultNone},
		{"without the largest", func(r codec.TensorResult, at, count int) int { return leaveOut(r, at, count, true) }, audit.FaultSelection},
	} {
		r := newRig(t)
		g := r.gradient()
		m := r.train(1, g)
		for i, l := range r.layouts {
			if err := r.kernel.AddBack(l, r.deltas[i], m.taken[i]); err != nil {
				t.Fatal(err)
			}
			for chunk := range r.shapes[i].Chunks {
				m.taken[i].Counts[chunk] = uint16(c.change(m.taken[i], chunk*r.shapes[i].K, int(m.taken[i].Counts[chunk])))
			}
		}
		commit(r, m)
		reference := r.reference(r.all(), g)
		reference.Coarse = true
		if report := reference.Check(r.claim(r.all())); report.Fault != c.fault {
			t.Errorf("%s: fault %v, want %v", c.name, report.Fault, c.fault)
		}
	}
}

// leaveOut removes the smallest or the largest entry of a chunk that has more than one entry.
func leaveOut(r codec.TensorResult, at, count int, largest bool) int {
	if count < 2 {
		return count
	}
	out := at
	for i := at; i < at+count; i++ {
		if bigger := math.Abs(float64(r.Values[i])) > math.Abs(float64(r.Values[out])); bigger == largest && i != out {
			out = i
		}
	}
	copy(r.Values[out:at+count], r.Values[out+1:at+count])
	copy(r.Indices[out:at+count], r.Indices[out+1:at+count])
	r.Values[at+count-1], r.Indices[at+count-1] = 0, 0
	return count - 1
}

// commit makes m, with its present m.taken, the rig's newest step.
func commit(r *rig, m *made) {
	var leaves [][32]byte
	for i, l := range r.layouts {
		minus := codec.TensorResult{Counts: m.taken[i].Counts, Indices: m.taken[i].Indices}
		for _, v := range m.taken[i].Values {
			minus.Values = append(minus.Values, 0-v)
		}
		if err := r.kernel.AddBack(l, r.deltas[i], minus); err != nil {
			r.t.Fatal(err)
		}
		copy(m.momentum[i], r.deltas[i])
		_, ofTensor, err := r.kernel.Leaves(l, r.deltas[i], m.taken[i])
		if err != nil {
			r.t.Fatal(err)
		}
		leaves = append(leaves, ofTensor...)
	}
	*m = made{header: m.header, momentum: m.momentum, taken: m.taken, tree: merkle.NewTree(leaves)}
	m.header.Momentum = m.tree.Root()
}

func flipped(results []codec.TensorResult) []codec.TensorResult { return scaled(results, -1) }
func doubled(results []codec.TensorResult) []codec.TensorResult { return scaled(results, 2) }

func scaled(results []codec.TensorResult, by float32) []codec.TensorResult {
	var all []codec.TensorResult
	for _, r := range results {
		other := codec.TensorResult{Counts: r.Counts, Indices: r.Indices}
		for _, v := range r.Values {
			other.Values = append(other.Values, v*by)
		}
		all = append(all, other)
	}
	return all
}

// TestSmallLearningRates checks small learning rates, as at the end of a cosine schedule, at which
// a step vanishes in the rounding of the momentum. Honest steps pass, and a changed momentum is
// detected.
func TestSmallLearningRates(t *testing.T) {
	for _, rate := range []float32{1, 1e-2, 1e-4, 1e-6, 1e-8, 0} {
		r := newRig(t)
		for step := range uint32(40) {
			r.train(step+1, r.gradient())
		}
		g := r.gradient()
		for i := range g {
			for j := range g[i] {
				g[i][j] *= rate
			}
		}
		r.train(41, g)
		report := r.scaledExam(g, rate).Check(r.claim(r.all()))
		if outcome := report.Judge(audit.F32Limits); outcome != audit.Passed || report.Error > audit.F32Limits.Error/5 {
			t.Errorf("learning rate times %v: %v, error %v", rate, outcome, report.Error)
		}
		for _, f := range report.Chunks {
			if f.Error > audit.F32Limits.Chunk/2 {
				t.Errorf("learning rate times %v, chunk %d: error %v", rate, f.Chunk, f.Error)
			}
		}
		turned := make([][]float32, len(g))
		for i, delta := range r.deltas {
			turned[i] = make([]float32, len(delta))
			for j := range turned[i] {
				turned[i][j] = g[i][j] - 0.1*decay*delta[j]
			}
		}
		r.train(42, turned)
		if outcome := r.scaledExam(g, rate).Check(r.claim(r.all())).Judge(audit.BF16Limits); outcome != audit.Strange {
			t.Errorf("learning rate times %v, momentum shorter by a tenth: %v", rate, outcome)
		}
	}
}

// scaledExam returns the reference for a gradient that the learning rate has scaled by rate. The
// usual size is scaled too.
func (r *rig) scaledExam(gradient [][]float32, rate float32) *audit.Reference {
	e := r.reference(r.all(), gradient)
	for i := range e.Usual {
		e.Usual[i] = float64(rate) * math.Sqrt(float64(len(e.Updates[i])))
	}
	return e
}

// TestNothingIsSentOfAChunk checks that a trainer may send nothing of a chunk. All of it then stays
// in the momentum.
func TestNothingIsSentOfAChunk(t *testing.T) {
	r := newRig(t)
	g := r.gradient()
	m := r.train(1, g)
	for i, l := range r.layouts {
		if err := r.kernel.AddBack(l, r.deltas[i], m.taken[i]); err != nil {
			t.Fatal(err)
		}
		m.taken[i] = l.Codec(topK).NewResult()
	}
	commit(r, m)
	if report := r.reference(r.all(), g).Check(r.claim(r.all())); report.Judge(limits) != audit.Passed {
		t.Errorf("fault %v, error %v", report.Fault, report.Error)
	}
}

// TestNothingOfNoGradient checks that a trainer cannot add anything, however small, to the momentum
// of a chunk if the auditor's gradient of the chunk is exactly zero.
func TestNothingOfNoGradient(t *testing.T) {
	for _, c := range []struct {
		name  string
		added float32 // the usual gradients have the size 1
		found bool
	}{{"nothing", 0, false}, {"less than can be distinguished from zero", 0x1p-97, false}, {"a little", 1e-20, true}, {"more", 1e-4, true}} {
		r := newRig(t)
		for step := uint32(1); step <= 8; step++ {
			g := r.gradient()
			clear(g[0])
			trained := r.perturbed(g, 0)
			for i := range trained[0][:16] { // a part of the first row of chunks
				trained[0][i] = c.added
			}
			r.train(step, trained)
			report := r.reference(r.all(), g).Check(r.claim(r.all()))
			if found := report.Judge(audit.F32Limits) != audit.Passed; found != c.found {
				t.Errorf("%s, step %d: fault %v, error %v", c.name, step, report.Fault, report.Error)
			}
		}
	}
}

// TestHardlyAnythingIsNotSent checks that values which an audit cannot distinguish from zero must
// not be sent, because they contain no information about the model.
func TestHardlyAnythingIsNotSent(t *testing.T) {
	r := newRig(t)
	g := r.gradient()
	for _, tensor := range g {
		for i := range tensor {
			tensor[i] *= 0x1p-80
		}
	}
	m := r.train(1, g)
	if m.taken[0].Counts[0] != 0 {
		t.Fatal("an honest trainer sends a tiny value")
	}
	for i, l := range r.layouts {
		clear(r.deltas[i])
		var err error
		if m.taken[i], err = r.kernel.Encode(l, r.deltas[i], g[i], distro.EncodeParams{LR: 1, TopK: topK}); err != nil {
			t.Fatal(err)
		}
		if err := r.kernel.AddBack(l, r.deltas[i], m.taken[i]); err != nil {
			t.Fatal(err)
		}
	}
	commit(r, m)
	if report := r.reference(r.all(), g).Check(r.claim(r.all())); report.Fault != audit.FaultSelection {
		t.Errorf("fault %v, error %v", report.Fault, report.Error)
	}
}

// TestMissedSteps checks that a momentum decays with the steps of the run, also with steps that its
// trainer missed.
func TestMissedSteps(t *testing.T) {
	for name, c := range map[string]struct {
		times float64 // additional factor of the momentum
		want  audit.Outcome
	}{"as the rules want": {1, audit.Passed}, "decayed once": {math.Pow(decay, -3), audit.Strange}} {
		r := newRig(t)
		r.train(1, r.gradient())
		r.train(3, r.gradient())
		for _, delta := range r.deltas {
			for i := range delta {
				delta[i] = float32(c.times * float64(delta[i]))
			}
		}
		g := r.gradient()
		r.train(7, g)
		if report := r.reference(r.all(), g).Check(r.claim(r.all())); report.Judge(limits) != c.want {
			t.Errorf("%s: fault %v, error %v", name, report.Fault, report.Error)
		}
	}
}

// TestVanishedGradients checks a chunk whose gradient has become zero, for example the embedding of
// a token that no longer occurs. Its momentum decays to numbers with only few digits in float32.
func TestVanishedGradients(t *testing.T) {
	r := newRig(t)
	r.train(1, r.gradient())
	for step := uint32(2); step <= 1500; step++ {
		g := r.gradient()
		clear(g[0])
		clear(g[1][:16])
		r.train(step, g)
		reference, claim := r.scaledExam(g, 1), r.claim(r.all())
		if report := reference.Check(claim); report.Judge(audit.F32Limits) != audit.Passed {
			t.Fatalf("step %d: fault %v, error %v", step, report.Fault, report.Error)
		}
		r.history = r.history[len(r.history)-2:]
	}
}
