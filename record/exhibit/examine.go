package exhibit

import (
	"fmt"
	"math"

	"lukechampine.com/blake3"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/core/audit"
	"github.com/psyche-go/psyche/core/codec"
	"github.com/psyche-go/psyche/record/config"
	"github.com/psyche-go/psyche/record/wire"
)

// Rules are what a run says of its results.
type Rules struct {
	Chunk, TopK int
	Signs       bool // DisTrO's results hold signs, not values
	Levels      int  // bits of a value of local steps; 0: it is DisTrO
}

// RulesOf returns those of an optimizer; false of one whose results nobody audits.
func RulesOf(o config.Optimizer) (r Rules, audited bool) {
	switch d, l := o.Distro, o.LocalSteps; {
	case d != nil:
		return Rules{Chunk: int(d.CompressionChunk), TopK: int(d.CompressionTopK), Signs: d.Quantize1Bit}, true
	case l != nil:
		return Rules{Chunk: int(l.CompressionChunk), TopK: int(l.CompressionTopK), Levels: int(l.ValueBits)}, true
	}
	return Rules{}, false
}

// Shapes returns how a model is cut whose tensors have these shapes, in the order of their names.
func Shapes(tensors [][]int64, rules Rules) (audit.Shapes, error) {
	shapes := make(audit.Shapes, len(tensors))
	for i, shape := range tensors {
		var err error
		if shapes[i], err = audit.Cut(shape, rules.Chunk, rules.TopK); err != nil {
			return nil, fmt.Errorf("tensor %d: %w", i, err)
		}
	}
	return shapes, nil
}

// Finding is what an exhibit shows.
type Finding struct {
	Accused identity.ID // it signed the result
	Step    uint32
	Fault   audit.Fault // that the bytes prove; FaultNone: none
	Chunks  int         // that were opened
	Faulty  int         // of them
}

// Examine looks at what an exhibit shows in a run of that hash. An error, which wraps ErrExhibit, says that
// it shows nothing of anybody: a signature, a hash or a path of it is wrong, or it is of another run or model.
//
// Of the faults those count that the accused's own bytes prove: that it sent something else than what it
// took out of its momentum, or that it did not take the largest coefficients. What went before is known
// by the root in an earlier result, which is the accuser's word here: nothing is concluded from it. Of the values
// of local steps only the signs are compared with what was taken: their size is that of the learning rate.
func (e Exhibit) Examine(run [32]byte, shapes audit.Shapes, rules Rules) (Finding, error) {
	accused, announced, err := wire.OpenAnnouncement(e.Announcement, run)
	if err != nil {
		return Finding{}, fmt.Errorf("%w: %w", ErrExhibit, err)
	}
	if len(e.Result) != int(announced.Size) || blake3.Sum256(e.Result) != announced.Blob {
		return Finding{}, fmt.Errorf("%w: its result differs from the accused's announcement", ErrExhibit)
	}
	claim, err := e.claim(shapes, rules)
	if err != nil {
		return Finding{}, fmt.Errorf("%w: %w: is this the run's model?", ErrExhibit, err)
	}
	if h := claim.Header; h.Trainer != accused || h.Step != announced.Step {
		return Finding{}, fmt.Errorf("%w: its result names another member or step", ErrExhibit)
	}
	chunks := make([]uint32, len(claim.Opening.Chunks))
	for i, c := range claim.Opening.Chunks {
		chunks[i] = c.Chunk
	}
	if !claim.Binds(shapes, chunks) {
		return Finding{}, fmt.Errorf("%w: the opened values do not match the commitment of the result", ErrExhibit)
	}
	found := Finding{Accused: accused, Step: announced.Step, Chunks: len(chunks)}
	report := (&audit.Reference{
		Shapes: shapes, Step: announced.Step, Trainer: accused, Signs: rules.Signs || rules.Levels > 0, Coarse: rules.Levels > 0,
		Chunks: chunks, Longest: math.Inf(1), Most: math.Inf(1),
	}).Check(claim)
	for _, c := range report.Chunks {
		if c.Fault == audit.FaultSent || c.Fault == audit.FaultSelection {
			found.Faulty++
			if found.Fault == audit.FaultNone {
				found.Fault = c.Fault
			}
		}
	}
	return found, nil
}

// claim reads what the accused says of the step.
func (e Exhibit) claim(shapes audit.Shapes, rules Rules) (c audit.Claim, err error) {
	layouts := make([]codec.TensorLayout, len(shapes))
	for i, s := range shapes {
		layouts[i] = codec.TensorLayout{Chunks: s.Chunks, ChunkSize: s.Rows * s.Cols, K: s.K}
	}
	if rules.Levels > 0 {
		c.Header, c.Result, err = codec.DecodeLevels(e.Result, layouts, rules.Levels)
	} else {
		c.Header, c.Result, err = codec.Decode(e.Result, layouts, rules.Signs)
	}
	if err != nil {
		return c, err
	}
	c.PreviousRoot = e.Previous
	c.Opening, err = audit.DecodeOpening(e.Opening, shapes)
	return c, err
}
