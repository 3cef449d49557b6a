package toy_test

import (
	"errors"
	"testing"

	"github.com/psyche-go/psyche/assign"
	"github.com/psyche-go/psyche/audit"
	"github.com/psyche-go/psyche/audit/toy"
	"github.com/psyche-go/psyche/distro/codec"
)

// TestHonestStepsPass at both lags, whatever counts; another gradient does not.
func TestHonestStepsPass(t *testing.T) {
	for _, lag := range []uint32{1, 2} {
		o, headers, counted := &toy.Optimizer{Trainer: [32]byte{7}}, map[uint32]codec.Header{}, map[uint32]bool{}
		chunks := []uint32{0, 5, 31}
		for step := uint32(1); step <= 12; step++ {
			gradient := toy.Gradient([32]byte{byte(step)}, [][]int32{{1, int32(step)}})
			payload, err := o.Step(step, assign.BatchID{Start: 1, End: 2}, gradient)
			if err != nil || len(payload) > toy.MaxSize() {
				t.Fatalf("%d bytes, %v", len(payload), err)
			}
			header, result, err := toy.Decode(payload)
			if err != nil {
				t.Fatal(err)
			}
			headers[step], counted[step] = header, step%3 != 0
			opening, err := o.Open(step, chunks)
			if err != nil {
				t.Fatal(err)
			}
			for honest, g := range map[bool][]float32{true: gradient, false: toy.Gradient([32]byte{99}, nil)} {
				exam, err := toy.Exam(step, [32]byte{7}, chunks, g)
				if err != nil {
					t.Fatal(err)
				}
				previous := opening.Previous
				report := exam.Check(audit.Claim{
					Opening: opening, Result: result, Header: header,
					PreviousRoot: headers[previous].Momentum, EarlierRoot: headers[opening.Earlier].Momentum,
					PreviousReturned: previous != 0 && !counted[previous] && previous+lag <= step,
				})
				if passed := report.Judge(audit.F32Limits) == audit.Passed; passed != honest {
					t.Errorf("lag %d, step %d, honest %v: fault %v, error %v", lag, step, honest, report.Fault, report.Error)
				}
			}
			if step >= lag {
				o.Settle(step+1-lag, counted[step+1-lag])
			}
		}
	}
}

func TestOnlyTheNewestIsOpened(t *testing.T) {
	o := &toy.Optimizer{}
	if _, err := o.Open(1, nil); !errors.Is(err, toy.ErrStep) {
		t.Errorf("nothing was trained: %v", err)
	}
	for step := uint32(1); step <= 2; step++ {
		if _, err := o.Step(step, assign.BatchID{End: 1}, toy.Gradient([32]byte{}, nil)); err != nil {
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
	for step := uint32(1); step <= 100; step++ {
		p.Note(step, [32]byte{byte(step)})
	}
	if w, err := p.At(60); err != nil || w != [32]byte{60} {
		t.Errorf("%x, %v", w[:1], err)
	}
	p.Note(50, [32]byte{1}) // the run went back
	for _, step := range []uint32{1, 60} {
		if _, err := p.At(step); !errors.Is(err, toy.ErrStep) {
			t.Errorf("step %d: %v", step, err)
		}
	}
}
