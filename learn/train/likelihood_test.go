package train

import (
	"errors"
	"math"
	"slices"
	"testing"

	"github.com/psyche-go/psyche/learn/model"
)

func toyEvaluator(t *testing.T, o Options) *Evaluator {
	t.Helper()
	requireTorch(t)
	o.Model, o.MicroBatch, o.Threads = toyModel(t, 3), 1, 1
	e, err := NewEvaluator(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.Close() })
	return e
}

// TestLikelihoodsAddUp checks that the likelihood of a continuation is the product of the
// likelihoods of its tokens one after the other, and that the probabilities of all tokens add up to
// 1. It also checks that a long context loses its beginning.
func TestLikelihoodsAddUp(t *testing.T) {
	e := toyEvaluator(t, Options{})
	before := make([]int32, 100) // the model sees 64
	for i := range before {
		before[i] = int32(i * i % 100)
	}
	ask := func(before []int32, continuations ...[]int32) []float64 {
		t.Helper()
		out, err := e.LogLikelihoods(t.Context(), before, continuations)
		if err != nil || len(out) != len(continuations) {
			t.Fatal(out, err)
		}
		return out
	}
	every := make([][]int32, 128)
	for i := range every {
		every[i] = []int32{int32(i)}
	}
	sum := 0.0
	for _, l := range ask(before, every...) {
		sum += math.Exp(l)
	}
	if math.Abs(sum-1) > 1e-6 {
		t.Errorf("all tokens have the probability %v", sum)
	}
	both := ask(before[40:], []int32{5, 9}, []int32{7})
	single := ask(before[40:], []int32{5}, []int32{7})
	after := ask(append(slices.Clone(before[40:]), 5), []int32{9})
	if math.Abs(both[0]-single[0]-after[0]) > 1e-5 || math.Abs(both[1]-single[1]) > 1e-6 {
		t.Errorf("together %v, one by one %v and %v", both, single, after)
	}
	if a, b := ask(before, []int32{3}), ask(before[36:], []int32{3}); math.Abs(a[0]-b[0]) > 1e-6 {
		t.Errorf("whole %v, cut off %v", a, b)
	}
}

func TestLikelihoodsOfTokensThatAreWrong(t *testing.T) {
	e := toyEvaluator(t, Options{})
	for _, c := range []struct {
		before, after []int32
	}{
		{nil, []int32{1}}, {[]int32{1}, nil}, {[]int32{128}, []int32{1}}, {[]int32{1}, []int32{-1}}, {[]int32{1}, make([]int32, 65)},
	} {
		if _, err := e.LogLikelihoods(t.Context(), c.before, [][]int32{c.after}); !errors.Is(err, errTokens) {
			t.Errorf("%v, %v: error %v", c.before, c.after, err)
		}
	}
}

// TestOthersComeFirst checks that Write ends with ErrChanged if another caller changes the weights
// while a text is written.
func TestOthersComeFirst(t *testing.T) {
	e := toyEvaluator(t, Options{})
	tensors, err := model.Init([]byte(toyConfig), 4)
	if err != nil {
		t.Fatal(err)
	}
	written, loaded := 0, make(chan error)
	err = e.Write(t.Context(), []int32{1, 2}, 1000, 0, 1, func(int32) bool {
		if written++; written == 3 {
			ready := make(chan struct{})
			go func() {
				close(ready)
				err := e.lock(t.Context()) // waits for at most one token
				if err == nil {
					err = model.SetWeights(t.Context(), e.model, tensors)
					e.changed()
					e.unlock()
				}
				loaded <- err
			}()
			<-ready
		}
		return true
	})
	if !errors.Is(err, ErrChanged) || written >= 1000 {
		t.Errorf("after %d tokens: error %v", written, err)
	}
	if err := <-loaded; err != nil {
		t.Error(err)
	}
	if err := e.Write(t.Context(), []int32{1, 2}, 1000, 0, 1, func(int32) bool { written = -1; return false }); err != nil || written != -1 {
		t.Errorf("stopped: %v", err)
	}
}
