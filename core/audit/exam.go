package audit

import (
	"math"

	"github.com/psyche-go/psyche/core/codec"
	"github.com/psyche-go/psyche/core/merkle"
)

// Reference contains an auditor's data about a step: the run's rules, and the auditor's own
// gradient for each challenged chunk, as it is added to the momentum.
type Reference struct {
	Shapes  Shapes
	Step    uint32
	Trainer [32]byte
	Decay   float32
	Signs   bool // results contain signs instead of values
	// Coarse means that results contain rounded values: each is between zero and twice the exact
	// value, and the rounding error stays in the momentum.
	Coarse bool
	Chunks []uint32
	// Updates are the gradients of the chunks, clipped and multiplied by the learning rate. If nil,
	// only the consistency of the opening is checked.
	Updates [][]float32
	// Usual contains, for each chunk, the length that its update would have if all elements of its
	// tensor had equal updates.
	Usual  []float64
	Limits Limits // allowed differences between honest trainers
	// Shaky means that rounding may have a large effect: see Recomputation.Shaken.
	Shaky bool
	// Tolerance contains, for each chunk, the rounding tolerance of its update if updates are
	// changes of weights. It is nil if updates are gradients.
	Tolerance []float64
	// Longest is the maximum length that the momentum can have by now: the sum of β^i·η·clip over
	// the run's steps. It is infinite if gradients are not clipped.
	Longest float64
	// Most is the maximum combined length of the step's updates of all chunks, η·clip. It is
	// infinite if gradients are not clipped.
	Most float64
}

// Claim contains the trainer's statements about the step.
type Claim struct {
	Opening Opening
	// Result is the trainer's result, a TensorResult for each of the shapes.
	Result []codec.TensorResult
	// Header is the header of the result.
	Header codec.Header
	// PreviousRoot is the momentum root in the header of the trainer's result of step
	// Header.Previous; zero if Previous is 0.
	PreviousRoot [32]byte
}

// Binds reports whether the opening belongs to the claim's result and to these chunks. If so, the
// trainer has committed to the opening, even if another member sent it.
func (c *Claim) Binds(shapes Shapes, chunks []uint32) bool {
	return c.binds(shapes, chunks) == FaultNone
}

// binds implements Binds and returns the fault that it found.
func (c *Claim) binds(shapes Shapes, chunks []uint32) Fault {
	o := c.Opening
	if o.check(shapes) != nil || o.Step != c.Header.Step || o.Trainer != c.Header.Trainer || o.Previous != c.Header.Previous || len(o.Chunks) != len(chunks) {
		return FaultChallenge
	}
	for i := range o.Chunks {
		if o.Chunks[i].Chunk != chunks[i] {
			return FaultChallenge
		}
		if !committed(o.Chunks[i], *c, shapes.Chunks()) {
			return FaultPath
		}
	}
	return FaultNone
}

// Fault is a fault of a claim other than an error above a limit.
type Fault uint8

const (
	FaultNone      Fault = iota
	FaultChallenge       // the claim opens another step, or other chunks
	FaultPath            // the opened values do not match the commitment
	FaultSent            // the sent values differ from the values taken from the momentum
	FaultSelection       // the values taken are not the largest coefficients of the momentum
	FaultLength          // the momentum, or the update, is longer than clipped gradients allow
)

var faultNames = [...]string{"none", "challenge", "path", "sent", "selection", "length"}

func (f Fault) String() string {
	if int(f) < len(faultNames) {
		return faultNames[f]
	}
	return "unknown"
}

// Meaning describes the fault for people.
func (f Fault) Meaning() string {
	switch f {
	case FaultChallenge:
		return "the opening is of another step, or of other chunks"
	case FaultPath:
		return "the opened values do not match the commitment in the result"
	case FaultSent:
		return "the sent values differ from the values taken from the momentum"
	case FaultSelection:
		return "the taken values are not the largest coefficients of the momentum"
	case FaultLength:
		return "the momentum or the update is longer than clipped gradients allow"
	}
	return f.String()
}

// Report is the difference between a claim and the auditor's computation.
type Report struct {
	Fault  Fault   // the first fault that was found
	Error  float64 // of all chunks together: length of the differences relative to the length of the updates
	Chunks []ChunkReport
}

// ChunkReport is the difference between one chunk of a claim and the auditor's computation.
type ChunkReport struct {
	Chunk uint32
	Fault Fault
	// Error is the relative error of the gradient: the length of the difference between the gradient
	// implied by the trainer's momentum and the auditor's gradient, less what rounding explains,
	// divided by the length of the auditor's gradient. If the auditor's gradient is short compared
	// with its tensor's gradient, the divisor is a fraction of the usual length instead.
	Error float64
	// Length is the length of the momentum before the step.
	Length float64

	difference, against float64 // Error is their ratio
	claimed             float64 // length of the update claimed for the step, less the part that rounding explains
}

const (
	// rounding is the tolerance of float32 sums, relative to the length of their chunk. The kernels
	// stay below a fifth of it (proof/bench/audit).
	rounding = 1.0 / (1 << 19)
	// small is the fraction of the usual update that replaces smaller updates as the reference. In a
	// chunk whose gradient nearly vanishes, the errors come from the terms that cancelled.
	small = 0.25
	// resolution is a fraction of a momentum's length. If an update is shorter, the momentum's bits
	// cannot show it.
	resolution = 1.0 / (1 << 18)
	// floor is the rounding tolerance of the implied update, as a fraction of the momentum's lengths
	// before and after the step. Both momenta are rounded. A difference up to floor does not count
	// as an error. An update with a very small learning rate is smaller than floor. The differences
	// of the kernels stay below a third of floor, and with chunks of 64 × 64 below a tenth.
	floor = 1.0 / (1 << 21)
	// minTolerances is the assumed minimum length of an update, as a multiple of its rounding
	// tolerance (Tolerance). It corresponds to the constant resolution, which is eight times floor.
	minTolerances = 8
	// nothing is a length that is indistinguishable from zero: kernels set elements of the momentum
	// below 2⁻¹⁰⁰ to zero, and a chunk has up to 2¹⁴ of them. The rounding of larger elements is
	// relative to their length.
	nothing = 0x1p-92
	// Least is the minimum size of the largest coefficient of a chunk for the chunk to be sent.
	// Values that are indistinguishable from zero do not add up to it.
	Least = 0x1p-70
)

// Check compares a claim with the auditor's data about the step. It never fails: every mismatch is
// a fault in the report.
func (r *Reference) Check(c Claim) Report {
	if c.Header.Step != r.Step || c.Header.Trainer != r.Trainer || len(c.Result) != len(r.Shapes) {
		return Report{Fault: FaultChallenge}
	}
	report, differences, against, claimed := Report{Fault: c.binds(r.Shapes, r.Chunks)}, 0.0, 0.0, 0.0
	if report.Fault != FaultNone {
		return report
	}
	for i := range r.Chunks {
		f := r.chunk(i, c)
		if report.Fault == FaultNone {
			report.Fault = f.Fault
		}
		differences += f.difference * f.difference
		against += f.against * f.against
		claimed += f.claimed * f.claimed
		report.Chunks = append(report.Chunks, f)
	}
	report.Error = ratio(math.Sqrt(differences), math.Sqrt(against))
	if report.Fault == FaultNone && math.Sqrt(claimed) > r.Most*(1+rounding) {
		report.Fault = FaultLength
	}
	return report
}

// chunk checks the i-th chunk of the challenge.
func (r *Reference) chunk(i int, c Claim) ChunkReport {
	o := c.Opening.Chunks[i]
	tensor, within, _ := r.Shapes.Find(o.Chunk)
	shape := r.Shapes[tensor]
	f := ChunkReport{Chunk: o.Chunk}
	after := wide(o.After.Momentum)
	taken := o.After.Taken.dense(shape.size())
	full := sum(after, inverse(taken, shape.Rows, shape.Cols), 1)
	before := make([]float64, shape.size()) // zeros if the momentum started at this step
	copy(before, wide(o.Before.Momentum))
	coefficients := forward(full, shape.Rows, shape.Cols)
	switch {
	case !sentIs(c.Result[tensor], within, shape.K, o.After.Taken, r.Signs):
		f.Fault = FaultSent
	case !r.largest(coefficients, o.After.Taken, shape.K, rounding*length(full)+nothing):
		f.Fault = FaultSelection
	case max(length(before), length(after)) > r.Longest*(1+rounding)+nothing:
		f.Fault = FaultLength
	}
	r.compare(&f, i, full, before, c.Opening.Step-c.Opening.Previous)
	return f
}

// compare fills in the numbers of a chunk's report. before is the momentum sinceLast steps earlier.
func (r *Reference) compare(f *ChunkReport, i int, full, before []float64, sinceLast uint32) {
	implied := sum(full, before, -float64(Decayed(r.Decay, sinceLast)))
	lengths := length(before) + length(full)
	f.Length, f.claimed = length(before), max(0, length(implied)-rounding*lengths-nothing)
	if r.Updates == nil {
		return
	}
	update := wide(r.Updates[i])
	own := length(update)
	f.difference = max(0, length(sum(implied, update, -1))-floor*lengths-nothing)
	minimum := resolution * lengths
	if r.Tolerance != nil {
		f.difference, minimum = max(0, f.difference-r.Tolerance[i]), max(minimum, minTolerances*r.Tolerance[i])
	}
	usual := small * r.Usual[i]
	if own == 0 { // the chunk has no gradient at all, so no terms cancelled
		usual = 0
	}
	f.against = math.Sqrt(own*own + usual*usual + minimum*minimum)
	f.Error = ratio(f.difference, f.against)
}

// committed reports whether all opened values are in the Merkle trees that the trainer committed to.
func committed(o Opened, c Claim, leaves int) bool {
	proves := func(root, digest [32]byte, taken Taken, path [][32]byte) bool {
		return merkle.Verify(root, Leaf(digest, taken), int(o.Chunk), leaves, path)
	}
	if !proves(c.Header.Momentum, Digest(o.After.Momentum), o.After.Taken, o.After.Path) {
		return false
	}
	return c.Opening.Previous == 0 || proves(c.PreviousRoot, Digest(o.Before.Momentum), o.Before.Taken, o.Before.Path)
}

// sentIs reports whether a result contains exactly the taken coefficients in a chunk.
func sentIs(r codec.TensorResult, within, k int, taken Taken, signs bool) bool {
	if within >= len(r.Counts) || (within+1)*k > len(r.Indices) || int(r.Counts[within]) != len(taken.Indices) {
		return false
	}
	for i, index := range taken.Indices {
		v := r.Values[within*k+i]
		if r.Indices[within*k+i] != index || math.Signbit(float64(v)) != math.Signbit(float64(taken.Values[i])) || !signs && v != taken.Values[i] {
			return false
		}
	}
	return true
}

// largest reports whether, within a tolerance, the taken coefficients are the k largest, or all
// nonzero coefficients if fewer than k were taken. A trainer may send nothing of a chunk. Rounded
// coefficients that became zero are ignored, because they are smaller than the taken coefficients.
func (r *Reference) largest(coefficients []float64, taken Taken, k int, within float64) bool {
	if len(taken.Indices) == 0 {
		return true
	}
	minimum, maximum := math.Inf(1), 0.0
	for i, index := range taken.Indices {
		v, of, off := float64(taken.Values[i]), coefficients[index], within
		if r.Coarse {
			off += math.Abs(of)
		}
		if math.Abs(of-v) > off {
			return false
		}
		minimum, maximum = min(minimum, math.Abs(of)), max(maximum, math.Abs(v))
	}
	if maximum < Least {
		return false
	}
	if len(taken.Indices) < k && !r.Coarse {
		minimum = 0
	}
	next := 0
	for i, v := range coefficients {
		if next < len(taken.Indices) && int(taken.Indices[next]) == i {
			next++
		} else if math.Abs(v) > minimum+within {
			return false
		}
	}
	return true
}
