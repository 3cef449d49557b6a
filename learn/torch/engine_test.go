package torch_test

import (
	"context"
	"errors"
	"math"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/psyche-go/psyche/base/golden"
	"github.com/psyche-go/psyche/learn/torch"
	"github.com/psyche-go/psyche/learn/torch/torchtest"
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
			t.Error("the gradient still exists after ClearGrad")
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
		op   string // names the operation in errors with text of libtorch or a stack
	}{
		{"libtorch refuses", func(s *torch.Scope) error {
			leaked, old = s.Zeros(torch.F32, 2, 3), s
			leaked.Matmul(leaked)
			return nil
		}, "Matmul"},
		{"after its scope", func(*torch.Scope) error { leaked.Neg(); return nil }, ""},
		{"ended scope", func(*torch.Scope) error { old.Zeros(torch.F32, 1); return nil }, ""},
		{"nil tensor", func(s *torch.Scope) error { s.Zeros(torch.F32, 1).Add(nil); return nil }, ""},
		{"wrong byte count", func(s *torch.Scope) error { s.FromBytes(make([]byte, 3), torch.F32, 1); return nil }, ""},
		{"negative size", func(s *torch.Scope) error { s.Zeros(torch.F32, -1); return nil }, "Full"},
		{"not f32", func(s *torch.Scope) error { s.Zeros(torch.I64, 1).Float32s(); return nil }, ""},
		{"not contiguous", func(s *torch.Scope) error { s.Zeros(torch.F32, 2, 3).Transpose(0, 1).Float32s(); return nil }, ""},
		{"token out of range", func(s *torch.Scope) error {
			s.Zeros(torch.F32, 4, 2).Embedding(s.FromInt32s([]int32{4}, 1))
			return nil
		}, "Embedding"},
		{"own error", func(*torch.Scope) error { return mistake }, ""},
		{"own panic", func(*torch.Scope) error { panic(mistake) }, "Do"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			err := e.Do(t.Context(), false, test.fn)
			if test.op == "" {
				golden.Message(t, test.name, err)
			} else if err == nil || !strings.Contains(err.Error(), test.op) {
				t.Fatalf("error %v, want an error with the operation %s", err, test.op)
			}
			if strings.HasPrefix(test.name, "own ") != errors.Is(err, mistake) {
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

func TestScopesFreeTensorsThatAreNotKept(t *testing.T) {
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

// TestLoopsShareTheThreads checks that the shim was compiled with OpenMP. Without OpenMP its loops
// give correct results, but run on one thread.
func TestLoopsShareTheThreads(t *testing.T) {
	torchtest.Engine(t) // skips the test without libtorch
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

// TestThreadsComputeTheSame checks results with several threads: each thread's part of a loop must
// begin at the end of the previous part. Matrix products may add in a different order, so the test
// compares only results without them bit for bit.
func TestThreadsComputeTheSame(t *testing.T) {
	torchtest.Load(t)
	type answers struct {
		y, loss   []float32
		gradients [][]float32
		adamw     []float32
		narrow    []float32
	}
	compute := func(threads int, dtype torch.DType) (a answers) {
		e, err := torch.NewEngineThreads(torch.CPU, threads)
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := e.Close(); err != nil {
				t.Error(err)
			}
		}()
		torchtest.Do(t, e, true, func(s *torch.Scope) error {
			l, in := newLayer(s, torch.F32)
			a.y = slices.Clone(l.fused(l.x.To(dtype), false).Detach().To(torch.F32).Float32s())
			targets := make([]int32, 2*layerTokens)
			for i := range targets {
				targets[i] = int32(i % 24)
			}
			for range 2 { // gradients accumulate
				y := l.fused(l.x.To(dtype), false).Reshape(2*layerTokens, 24)
				loss := y.LinearCrossEntropy(l.attention.Query, s.FromInt32s(targets, int64(len(targets))))
				loss.Backward()
				a.loss = slices.Clone(loss.Detach().Float32s())
			}
			for _, tensor := range in {
				a.gradients = append(a.gradients, slices.Clone(tensor.Grad().Float32s()))
			}
			return nil
		})
		torchtest.Do(t, e, false, func(s *torch.Scope) error {
			const n = 100_003
			numbers := make([]float32, n)
			for i := range numbers {
				numbers[i] = float32(i%977)/977 - 0.5
			}
			p, g := s.FromFloat32s(numbers, n), s.FromFloat32s(numbers, n).MulScalar(3)
			m, v := s.Zeros(torch.F32, n), s.Zeros(torch.F32, n)
			torch.AdamW{Beta1: 0.9, Beta2: 0.95, Epsilon: 1e-8, WeightDecay: 0.1}.Step(p, g, m, v, 0.01, 1)
			a.adamw = slices.Clone(p.Float32s())
			a.narrow = slices.Clone(p.To(torch.BF16).To(torch.F32).Float32s())
			return nil
		})
		return a
	}
	far := func(got, want []float32) float64 {
		difference, size := 0.0, 0.0
		for i := range want {
			difference += math.Pow(float64(got[i]-want[i]), 2)
			size += math.Pow(float64(want[i]), 2)
		}
		return math.Sqrt(difference / size)
	}
	for dtype, tolerance := range map[torch.DType]float64{torch.F32: 1e-6, torch.BF16: 1e-2} {
		one, three := compute(1, dtype), compute(3, dtype)
		if d := far(three.y, one.y); !(d < tolerance) {
			t.Errorf("%s: the layer differs by %.1e from the layer of one thread", dtype, d)
		}
		if d := far(three.loss, one.loss); !(d < tolerance) {
			t.Errorf("%s: the loss differs by %.1e", dtype, d)
		}
		for i := range one.gradients {
			if d := far(three.gradients[i], one.gradients[i]); !(d < 5*tolerance) {
				t.Errorf("%s: gradient %d is %.1e away", dtype, i, d)
			}
		}
		if !slices.Equal(three.adamw, one.adamw) || !slices.Equal(three.narrow, one.narrow) {
			t.Errorf("%s: a step of AdamW, or its rounding, depends on the threads", dtype)
		}
	}
}

// TestShare checks that Share gives the tensor's own memory, and that the memory outlives the
// tensor and the engine.
func TestShare(t *testing.T) {
	torchtest.Load(t)
	e, err := torch.NewEngine(torch.CPU)
	if err != nil {
		t.Fatal(err)
	}
	const elements = 1 << 20
	var values []float32
	var memory *torch.Memory
	err = e.Do(t.Context(), false, func(s *torch.Scope) error {
		kept := s.Keep(s.Full(torch.F32, 7, elements))
		values, memory = kept.Float32s(), kept.Share()
		return nil
	})
	if err = errors.Join(err, e.Close()); err != nil {
		t.Fatal(err)
	}
	other := torchtest.Engine(t)
	err = other.Do(t.Context(), false, func(s *torch.Scope) error {
		for range 8 { // one of these tensors would reuse freed memory
			s.Keep(s.Full(torch.F32, 1, elements))
		}
		return nil
	})
	if err != nil || values[0] != 7 || slices.Min(values) != 7 || slices.Max(values) != 7 {
		t.Errorf("the memory has %v to %v, error %v", slices.Min(values), slices.Max(values), err)
	}
	runtime.KeepAlive(memory)
}
