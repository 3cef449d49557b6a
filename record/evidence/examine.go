package evidence

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

// Rules are the settings of a run that determine the format of its results.
type Rules struct {
	Chunk, TopK int
	Signs       bool // DisTrO: results contain signs instead of values
	Levels      int  // local steps: bits of a value; 0: DisTrO
}

// RulesOf returns the rules for an optimizer. audited is false if its results cannot be audited.
func RulesOf(o config.Optimizer) (r Rules, audited bool) {
	switch d, l := o.Distro, o.LocalSteps; {
	case d != nil:
		return Rules{Chunk: int(d.CompressionChunk), TopK: int(d.CompressionTopK), Signs: d.Quantize1Bit}, true
	case l != nil:
		return Rules{Chunk: int(l.CompressionChunk), TopK: int(l.CompressionTopK), Levels: int(l.ValueBits)}, true
	}
	return Rules{}, false
}

// Shapes returns how the tensors of a model are cut into chunks. tensors contains their shapes, in
// the order of their names.
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

// Finding is the result of examining an evidence file.
type Finding struct {
	Accused identity.ID // signer of the result
	Step    uint32
	Fault   audit.Fault // proven by the bytes; FaultNone: none
	Chunks  int         // number of opened chunks
	Faulty  int         // number of opened chunks with a fault
}

// Examine examines an evidence file of the run with a hash. An error, which wraps ErrInvalid, means that
// the evidence file proves nothing: it contains a wrong signature, hash or path, or belongs to another
// run or model.
//
// A fault counts only if the accused's own bytes prove it. There are two such faults: the values
// that the accused sent differ from the values that it took out of its momentum, or it did not take
// the largest coefficients. The previous state is known only by the root in an earlier result, for
// which the evidence file has only the accuser's word, so Examine draws no conclusion from it. For
// the values of local steps it compares only the signs, because their size depends on the learning
// rate.
func (e File) Examine(run [32]byte, shapes audit.Shapes, rules Rules) (Finding, error) {
	accused, announced, err := wire.OpenAnnouncement(e.Announcement, run)
	if err != nil {
		return Finding{}, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	if len(e.Result) != int(announced.Size) || blake3.Sum256(e.Result) != announced.Blob {
		return Finding{}, fmt.Errorf("%w: the result differs from the accused's announcement", ErrInvalid)
	}
	claim, err := e.claim(shapes, rules)
	if err != nil {
		return Finding{}, fmt.Errorf("%w: %w: is this the run's model?", ErrInvalid, err)
	}
	if h := claim.Header; h.Trainer != accused || h.Step != announced.Step {
		return Finding{}, fmt.Errorf("%w: the result names another member or step", ErrInvalid)
	}
	chunks := make([]uint32, len(claim.Opening.Chunks))
	for i, c := range claim.Opening.Chunks {
		chunks[i] = c.Chunk
	}
	if !claim.Binds(shapes, chunks) {
		return Finding{}, fmt.Errorf("%w: the opened values do not match the commitment of the result", ErrInvalid)
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

// claim decodes the accused member's claim about the step.
func (e File) claim(shapes audit.Shapes, rules Rules) (c audit.Claim, err error) {
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
