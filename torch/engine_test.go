package torch_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/psyche-go/psyche/torch"
	"github.com/psyche-go/psyche/torch/torchtest"
)

func TestBackward(t *testing.T) {
	e := torchtest.Engine(t)
	torchtest.Do(t, e, true, func(s *torch.Scope) error {
		x := s.FromFloat32s([]float32{1, 2, 3}, 3).SetRequiresGrad(true)
		x.Mul(x).Sum().Backward()
		if got, want := x.Grad().Float32s(), []float32{2, 4, 6}; !slices.Equal(got, want) {
			t.Errorf("gradient %v, want %v", got, want)
		}
		x.ClearGrad()
		if x.Grad() != nil {
			t.Error("the gradient is still there after ClearGrad")
		}
		return nil
	})
}

func TestGradModeBelongsToDo(t *testing.T) {
	e := torchtest.Engine(t)
	var wg sync.WaitGroup
	for i := range 20 {
		grad := i%2 == 0
		wg.Go(func() {
			err := e.Do(t.Context(), grad, func(s *torch.Scope) error {
				x := s.Full(torch.F32, 1, 2).SetRequiresGrad(true)
				if got := x.MulScalar(2).RequiresGrad(); got != grad {
					t.Errorf("history recorded: %v, want %v", got, grad)
				}
				return s.WithGrad(!grad, func() error {
					if got := x.MulScalar(2).RequiresGrad(); got == grad {
						t.Errorf("WithGrad(%v) had no effect", !grad)
					}
					return nil
				})
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
}

func TestErrors(t *testing.T) {
	e := torchtest.Engine(t)
	var leaked *torch.Tensor
	var old *torch.Scope
	mistake := errors.New("a mistake")
	tests := []struct {
		name string
		fn   func(s *torch.Scope) error
		want string
	}{
		{"libtorch refuses", func(s *torch.Scope) error {
			leaked, old = s.Zeros(torch.F32, 2, 3), s
			leaked.Matmul(leaked)
			return nil
		}, "Matmul"},
		{"after its scope", func(*torch.Scope) error { leaked.Neg(); return nil }, "scope it was made in ended"},
		{"ended scope", func(*torch.Scope) error { old.Zeros(torch.F32, 1); return nil }, "after its function returned"},
		{"nil tensor", func(s *torch.Scope) error { s.Zeros(torch.F32, 1).Add(nil); return nil }, "nil"},
		{"wrong byte count", func(s *torch.Scope) error { s.FromBytes(make([]byte, 3), torch.F32, 1); return nil }, "3 bytes"},
		{"negative size", func(s *torch.Scope) error { s.Zeros(torch.F32, -1); return nil }, "negative"},
		{"not f32", func(s *torch.Scope) error { s.Zeros(torch.I64, 1).Float32s(); return nil }, "i64[1] on cpu"},
		{"not contiguous", func(s *torch.Scope) error { s.Zeros(torch.F32, 2, 3).Transpose(0, 1).Float32s(); return nil }, "contiguous"},
		{"token out of range", func(s *torch.Scope) error {
			s.Zeros(torch.F32, 4, 2).Embedding(s.FromInt32s([]int32{4}, 1))
			return nil
		}, "Embedding"},
		{"own error", func(*torch.Scope) error { return mistake }, "a mistake"},
		{"own panic", func(*torch.Scope) error { panic(mistake) }, "panic in Do: a mistake"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			err := e.Do(t.Context(), false, test.fn)
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Fatalf("error %v, want one with %q", err, test.want)
			}
			if strings.Contains(test.want, "mistake") != errors.Is(err, mistake) {
				t.Errorf("errors.Is does not find the cause in %v", err)
			}
		})
	}
	err := e.Do(t.Context(), false, func(*torch.Scope) error {
		return e.Do(t.Context(), false, func(*torch.Scope) error { return nil })
	})
	if !errors.Is(err, torch.ErrNested) {
		t.Errorf("nested Do: %v", err)
	}
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	if err := e.Do(cancelled, false, func(*torch.Scope) error { t.Error("ran"); return nil }); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled Do: %v", err)
	}
}

func TestDoOnAClosedEngine(t *testing.T) {
	torchtest.Load(t)
	e, err := torch.NewEngine(torch.CPU)
	if err != nil {
		t.Fatal(err)
	}
	before := torch.LiveTensors()
	torchtest.Do(t, e, false, func(s *torch.Scope) error { s.Keep(s.Zeros(torch.F32, 8)); return nil })
	if err := errors.Join(e.Close(), e.Close()); err != nil {
		t.Fatal(err)
	}
	if err := e.Do(t.Context(), false, func(*torch.Scope) error { return nil }); !errors.Is(err, torch.ErrClosed) {
		t.Errorf("Do after Close: %v", err)
	}
	if live := torch.LiveTensors(); live != before {
		t.Errorf("%d tensors live after Close, %d before", live, before)
	}
}

func TestScopesFreeWhatIsNotKept(t *testing.T) {
	e := torchtest.Engine(t)
	before := torch.LiveTensors()
	var kept *torch.Tensor
	torchtest.Do(t, e, false, func(s *torch.Scope) error {
		kept = s.Keep(s.Full(torch.F32, 7, 2))
		var lifted *torch.Tensor
		err := s.Sub(func(s *torch.Scope) error {
			s.Zeros(torch.F32, 3)
			lifted = s.Lift(kept.MulScalar(2))
			return nil
		})
		if got := lifted.Float32s(); got[1] != 14 {
			t.Errorf("the lifted tensor holds %v", got)
		}
		if live := torch.LiveTensors(); live != before+2 {
			t.Errorf("%d tensors live, want the kept and the lifted one above %d", live, before)
		}
		return err
	})
	if live := torch.LiveTensors(); live != before+1 {
		t.Errorf("%d tensors live after Do, want the kept one above %d", live, before)
	}
	if got := kept.Float32s(); got[0] != 7 {
		t.Errorf("kept tensor holds %v", got)
	}
	torchtest.Do(t, e, false, func(*torch.Scope) error { kept.Free(); return nil })
	if live := torch.LiveTensors(); live != before {
		t.Errorf("%d tensors live after Free, want %d", live, before)
	}
}

// TestLoopsShareTheThreads: compiled without OpenMP the loops of the shim are right, but run
// on one thread.
func TestLoopsShareTheThreads(t *testing.T) {
	torchtest.Engine(t) // or skip
	for _, want := range []int{1, 2} {
		e, err := torch.NewEngineThreads(torch.CPU, want)
		if err != nil {
			t.Fatal(err)
		}
		got, err := e.LoopThreads(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if got != want {
			t.Errorf("a loop of an engine of %d threads runs on %d", want, got)
		}
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	}
}
