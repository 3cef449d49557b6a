package toy_test

import (
	"errors"
	"testing"

	"github.com/psyche-go/psyche/core/assign"
	"github.com/psyche-go/psyche/core/audit"
	"github.com/psyche-go/psyche/core/audit/toy"
	"github.com/psyche-go/psyche/core/codec"
)

// TestHonestStepsPass checks that honest steps pass, whichever earlier steps are held, and that
// steps with a different gradient do not pass.
func TestHonestStepsPass(t *testing.T) {
	part, headers := &toy.Part{Optimizer: toy.Optimizer{Trainer: [32]byte{7}}}, map[uint32]codec.Header{}
	chunks := []uint32{0, 5, 31}
	held := uint32(0)
	for step := uint32(1); step <= 12; step++ {
		gradient := toy.Gradient([32]byte{byte(step)}, [][]int32{{1, int32(step)}})
		payload, err := part.Optimizer.Step(step, assign.BatchID{Start: 1, End: 2}, gradient, [32]byte{8})
		if err != nil || len(payload) > toy.MaxSize() {
			t.Fatalf("%d bytes, %v", len(payload), err)
		}
		header, result, err := toy.Decode(payload)
		if err != nil {
			t.Fatal(err)
		}
		if header.Previous != held || header.Precision != audit.F32.Code() || header.Batch != [32]byte{8} {
			t.Errorf("step %d: header %+v", step, header)
		}
		headers[step] = header
		opening, err := part.Open(step, chunks)
		if err != nil {
			t.Fatal(err)
		}
		claim := audit.Claim{Opening: opening, Result: result, Header: header, PreviousRoot: headers[held].Momentum}
		if !claim.Binds(toy.Shapes(), chunks) || part.CheckLight(claim) != audit.FaultNone {
			t.Errorf("step %d: fault %v without a gradient", step, part.CheckLight(claim))
		}
		for honest, g := range map[bool][]float32{true: gradient, false: toy.Gradient([32]byte{99}, nil)} {
			reference, err := toy.Reference(step, [32]byte{7}, chunks, g)
			if err != nil {
				t.Fatal(err)
			}
			report := reference.Check(claim)
			if passed := report.Judge(audit.F32Limits) == audit.Passed; passed != honest {
				t.Errorf("step %d, honest %v: fault %v, error %v", step, honest, report.Fault, report.Error)
			}
		}
		if err := part.SetAttested(step, step%3 != 0); err != nil {
			t.Fatal(err)
		}
		if step%3 != 0 {
			held = step
		}
	}
}

func TestOnlyTheNewestIsOpened(t *testing.T) {
	o := &toy.Optimizer{}
	if _, err := o.Open(1, nil); !errors.Is(err, toy.ErrStep) {
		t.Errorf("nothing was trained: %v", err)
	}
	for step := uint32(1); step <= 2; step++ {
		if _, err := o.Step(step, assign.BatchID{End: 1}, toy.Gradient([32]byte{}, nil), [32]byte{}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := o.Open(1, nil); !errors.Is(err, toy.ErrStep) {
		t.Errorf("an old step: %v", err)
	}
	if _, err := o.Open(2, []uint32{32}); !errors.Is(err, audit.ErrInvalid) {
		t.Errorf("no such chunk: %v", err)
	}
	o.Reset()
	if _, err := o.Open(2, nil); !errors.Is(err, toy.ErrStep) {
		t.Errorf("forgotten: %v", err)
	}
}

func TestPast(t *testing.T) {
	var p toy.Past
	for step := uint32(1); step <= 5000; step++ {
		p.Note(step, [32]byte{byte(step)})
	}
	if w, err := p.At(4900); err != nil || w != [32]byte{0x24} {
		t.Errorf("got %x, %v; want nil error and [32]byte{0x24}", w[:1], err)
	}
	p.Note(4800, [32]byte{1}) // the run was rolled back
	for _, step := range []uint32{1, 4900} {
		if _, err := p.At(step); !errors.Is(err, toy.ErrStep) {
			t.Errorf("step %d: %v", step, err)
		}
	}
}
