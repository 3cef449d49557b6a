package audit

// Limits are the maximum errors of a claim relative to the verifier's computation. Differences in
// hardware do not explain larger errors.
type Limits struct {
	Error float64 // of all chunks together
	Chunk float64 // of a chunk; at most Stray chunks may exceed it
	Stray int
	Worst float64 // of any chunk
}

// doubt is the factor between the limits for an accusation and for a jury's verdict. Gradients of
// two machines differ by rounding. If the limits were equal, a trainer could place itself exactly at
// the limit, so that an honest accuser finds the error above the limit, an honest jury finds it
// below, and the accuser loses its seat.
const doubt = 1.5

// toleranceDoubt is the factor between the rounding tolerances of an accuser and of a jury. Each
// knows only its own sample of the rounding errors, and the samples differ.
const toleranceDoubt = 2

// Wider returns a reference for accusations. Its limits are wider than the limits of e, which
// jurors use.
func (r *Reference) Wider() *Reference {
	wider, l := *r, r.Limits
	wider.Limits = Limits{Error: doubt * l.Error, Chunk: doubt * l.Chunk, Stray: l.Stray, Worst: doubt * l.Worst}
	wider.Tolerance = nil
	for _, b := range r.Tolerance {
		wider.Tolerance = append(wider.Tolerance, toleranceDoubt*b)
	}
	return &wider
}

// Outcome is the outcome of an audit.
type Outcome string

const (
	Passed  Outcome = "passed"
	Faulty  Outcome = "faulty"  // the opened values break a rule, independent of the gradient
	Strange Outcome = "strange" // the gradient does not belong to the batch
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

// Calibrated limits (docs/audit.md). No limits exist for a trainer and a verifier that compute in
// different types, because the gradients of some batches are mostly bf16 noise. A result therefore
// contains the type in which its trainer computed, and auditors compute in that type.
var (
	// F32Limits apply if trainer and verifier both compute in f32.
	F32Limits = Limits{Error: 2e-4, Chunk: 1e-3, Stray: 1, Worst: 5e-3}
	// BF16Limits apply if trainer and verifier both compute in bf16.
	BF16Limits = Limits{Error: 0.05, Chunk: 0.1, Stray: 1, Worst: 0.25}
	// LocalLimits apply to the weight changes of local steps if both compute in f32. The length of
	// an AdamW step does not depend on the size of the gradient, so a gradient that is little more
	// than rounding error may lead to a full step in the opposite direction.
	LocalLimits = Limits{Error: 0.01, Chunk: 0.05, Stray: 1, Worst: 0.2}
)

// Precision is the type that a gradient was computed in.
type Precision uint8

// Calibrated types.
const (
	F32 Precision = iota
	BF16
)

// Code returns the value for the type in the header of a result, where 0 means no type.
func (p Precision) Code() uint8 { return uint8(p) + 1 }

func (p Precision) String() string {
	if p == BF16 {
		return "bf16"
	}
	return "f32"
}

// Limits returns the limits for a trainer and a verifier that both compute in the type.
func (p Precision) Limits() Limits {
	if p == BF16 {
		return BF16Limits
	}
	return F32Limits
}
