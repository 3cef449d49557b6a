package audit

// Limits say how far a claim may be from the verifier's computation. Errors beyond them are
// not those of other hardware.
type Limits struct {
	Error float64 // of all chunks together
	Chunk float64 // of a chunk; more than Stray chunks above it fail
	Stray int
	Worst float64 // of any chunk
}

// doubt is how much farther off a claim has to be for an accusation than for a verdict of a jury.
// Gradients of two machines differ by rounding. Without a distance between the two, a trainer could put
// itself right at the limit, so that an honest accuser finds it beyond and an honest jury does not, and
// the accuser loses its seat.
const doubt = 1.5

// blurDoubt is how many times as much of what rounding changes who accuses allows for as a jury does: each knows a
// sample of it only, its own, and these differ.
const blurDoubt = 2

// Wider returns the reference by which somebody is accused, where jurors judge by e.
func (e *Reference) Wider() *Reference {
	wider, l := *e, e.Limits
	wider.Limits = Limits{Error: doubt * l.Error, Chunk: doubt * l.Chunk, Stray: l.Stray, Worst: doubt * l.Worst}
	wider.Blur = nil
	for _, b := range e.Blur {
		wider.Blur = append(wider.Blur, blurDoubt*b)
	}
	return &wider
}

// Outcome is what an audit comes to.
type Outcome string

const (
	Passed  Outcome = "passed"
	Faulty  Outcome = "faulty"  // what was opened breaks a rule, whatever the gradient is
	Strange Outcome = "strange" // the gradient is not that of the batch
)

// Judge compares a report with limits.
func (r Report) Judge(l Limits) Outcome {
	if r.Fault != FaultNone {
		return Faulty
	}
	above, worst := 0, 0.0
	for _, f := range r.Chunks {
		worst = max(worst, f.Error)
		if !(f.Error <= l.Chunk) {
			above++
		}
	}
	if !(r.Error <= l.Error) || !(worst <= l.Worst) || above > l.Stray {
		return Strange
	}
	return Passed
}

// Limits that were calibrated (docs/audit.md). There are none for a trainer and a verifier that
// compute in different types: the gradients of some batches are mostly the noise of bf16. So a result
// says which type its trainer computed in, and auditors compute in that.
var (
	// F32Limits are for a trainer and a verifier that both compute in f32.
	F32Limits = Limits{Error: 2e-4, Chunk: 1e-3, Stray: 1, Worst: 5e-3}
	// BF16Limits are for a trainer and a verifier that both compute in bf16.
	BF16Limits = Limits{Error: 0.05, Chunk: 0.1, Stray: 1, Worst: 0.25}
	// LocalLimits are for how far local steps lead that both make in f32. AdamW makes as long a step of a
	// gradient that is hardly more than its rounding as of any other, and that step may go the other way.
	LocalLimits = Limits{Error: 0.01, Chunk: 0.05, Stray: 1, Worst: 0.2}
)

// Precision is the type that a gradient was computed in.
type Precision uint8

// The types that were calibrated.
const (
	F32 Precision = iota
	BF16
)

// Code is what the header of a result says of the type: 0 stands for none.
func (p Precision) Code() uint8 { return uint8(p) + 1 }

func (p Precision) String() string {
	if p == BF16 {
		return "bf16"
	}
	return "f32"
}

// Limits returns those for a trainer and a verifier that both compute in the type.
func (p Precision) Limits() Limits {
	if p == BF16 {
		return BF16Limits
	}
	return F32Limits
}
