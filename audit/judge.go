package audit

// Limits say how far a claim may be from the verifier's computation. Errors beyond them are
// not those of other hardware.
type Limits struct {
	Error float64 // of all chunks together
	Chunk float64 // of a chunk; more than Stray chunks above it fail
	Stray int
	Worst float64 // of any chunk
}

// Outcome is what an audit comes to.
type Outcome uint8

const (
	Passed   Outcome = iota + 1
	Faulty           // what was opened breaks a rule, whatever the gradient is
	Strange          // the gradient is not that of the batch
	Unopened         // nothing was opened in time
)

var outcomeNames = map[Outcome]string{Passed: "passed", Faulty: "faulty", Strange: "strange", Unopened: "unopened"}

func (o Outcome) String() string {
	if name, ok := outcomeNames[o]; ok {
		return name
	}
	return "unknown"
}

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

// Limits that were calibrated (docs/audit.md).
var (
	// AnyLimits are for a run whose members compute in whatever they like: f32 or bf16.
	AnyLimits = Limits{Error: 0.03, Chunk: 0.3, Stray: 1, Worst: 0.6}
	// ExactLimits are for a run whose members all compute in f32.
	ExactLimits = Limits{Error: 2e-4, Chunk: 1e-3, Stray: 1, Worst: 5e-3}
)
