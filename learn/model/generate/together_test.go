package generate_test

import (
	"context"
	"errors"
	"math"
	"slices"
	"sync"
	"testing"

	"github.com/psyche-go/psyche/learn/model"
	"github.com/psyche-go/psyche/learn/model/generate"
	"github.com/psyche-go/psyche/learn/model/kvcache"
	"github.com/psyche-go/psyche/learn/torch"
	"github.com/psyche-go/psyche/learn/torch/torchtest"
)

// TestTextsTogether checks that texts of different lengths that are computed in one pass get the
// same logits as each text alone, whether they start in that pass or continue.
func TestTextsTogether(t *testing.T) {
	e := torchtest.Engine(t)
	ids := make([]int32, 40)
	for i := range ids {
		ids[i] = int32(i * i % 23)
	}
	texts := [][]int32{ids[:3], ids[5:36], ids[9:10], ids[2:14]}
	for _, test := range slices.Concat(models, lengthened) {
		m := read(t, e, test.folder, test.context, "100", model.Options{})
		torchtest.Do(t, e, false, func(s *torch.Scope) error {
			row := make([]kvcache.Text, len(texts))
			for i, text := range texts {
				row[i] = kvcache.Text{IDs: text, Cache: m.NewCache()}
				defer row[i].Cache.Free()
			}
			for pass := range 3 {
				got := m.Next(s, row...).CopyFloat32s()
				for i := range row {
					want := alone(s, m, slices.Concat(texts[i], []int32{7, 11}[:pass]))
					for j, logit := range got[i*len(want) : (i+1)*len(want)] {
						if d := math.Abs(float64(logit - want[j])); !(d <= 1e-4) {
							t.Fatalf("%s, pass %d, text %d: logit %d is %v, alone %v", test.folder, pass, i, j, logit, want[j])
						}
					}
					if pass < 2 {
						row[i].IDs = []int32{7, 11}[pass : pass+1]
					}
				}
				if pass == 0 && test.folder == "llama/testdata/phi3_longrope" { // the first text that crosses its limit refuses
					return nil
				}
			}
			return nil
		})
	}
}

// alone returns the logits of the token after ids, computed without a cache.
func alone(s *torch.Scope, m model.Model, ids []int32) []float32 {
	n := int64(len(ids))
	return m.Forward(s, s.FromInt32s(ids, 1, n)).Narrow(1, n-1, 1).Contiguous().CopyFloat32s()
}

// counted is a model that records how many texts are computed at once.
type counted struct {
	model.Model
	mu    sync.Mutex
	texts map[int]int
}

func (c *counted) Next(s *torch.Scope, texts ...kvcache.Text) *torch.Tensor {
	c.mu.Lock()
	c.texts[len(texts)]++
	c.mu.Unlock()
	return c.Model.Next(s, texts...)
}

// TestTogether checks that texts that are generated together equal the texts that are generated
// alone, that a cancelled text does not disturb other texts, and that most passes compute all
// texts.
func TestTogether(t *testing.T) {
	e := torchtest.Engine(t)
	m := &counted{Model: read(t, e, "llama/testdata/tied", "256", "64", model.Options{}), texts: make(map[int]int)}
	prompts := [][]int32{{3, 1, 4}, {1, 5, 9, 2, 6, 5, 3, 5, 8, 9}, {7}, {9, 3, 2}}
	o := greedy
	o.MaxTokens = 120 // beyond the longest sequence
	want := make([][]int32, len(prompts))
	for i, prompt := range prompts {
		want[i] = write(t, m, prompt, o)
	}
	clear(m.texts)
	together := generate.NewTogether(m)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	got, errs := make([][]int32, len(prompts)), make([]error, len(prompts)+1)
	var wait sync.WaitGroup
	for i, prompt := range prompts {
		wait.Go(func() {
			errs[i] = together.Tokens(t.Context(), prompt, o, func(id int32) error {
				got[i] = append(got[i], id)
				return nil
			})
		})
	}
	wait.Go(func() {
		errs[len(prompts)] = together.Tokens(ctx, prompts[0], o, func(int32) error {
			cancel()
			return nil
		})
	})
	wait.Wait()
	for i := range prompts {
		if errs[i] != nil || !slices.Equal(got[i], want[i]) {
			t.Errorf("text %d: %v\ngot  %v\nwant %v", i, errs[i], got[i], want[i])
		}
	}
	if !errors.Is(errs[len(prompts)], context.Canceled) {
		t.Errorf("the cancelled text: %v", errs[len(prompts)])
	}
	t.Logf("passes of so many texts: %v", m.texts)
	if m.texts[4] == 0 {
		t.Error("no pass had all texts")
	}
}

// TestSlowReader checks that a text whose reader accepts nothing delays the other texts by at most
// one pause.
func TestSlowReader(t *testing.T) {
	e := torchtest.Engine(t)
	together := generate.NewTogether(read(t, e, "llama/testdata/tied", "256", "64", model.Options{}))
	o := greedy
	stuck, free := make(chan struct{}), make(chan struct{})
	var wait sync.WaitGroup
	wait.Go(func() {
		_ = together.Tokens(t.Context(), []int32{1}, o, func(int32) error {
			select {
			case <-stuck:
			default:
				close(stuck)
			}
			<-free
			return nil
		})
	})
	<-stuck
	if err := together.Tokens(t.Context(), []int32{2}, o, func(int32) error { return nil }); err != nil {
		t.Error(err)
	}
	close(free)
	wait.Wait()
}

// fragile is a model that fails if a text has a certain token, before or after its caches have the
// tokens of a pass.
type fragile struct {
	model.Model
	token int32
	late  bool
}

func (f *fragile) Next(s *torch.Scope, texts ...kvcache.Text) (logits *torch.Tensor) {
	if f.late {
		logits = f.Model.Next(s, texts...)
	}
	for _, t := range texts {
		if slices.Contains(t.IDs, f.token) {
			panic(&torch.Error{Op: "fragile", Message: "no memory"})
		}
	}
	if !f.late {
		logits = f.Model.Next(s, texts...)
	}
	return logits
}

// TestOneFails checks that only the text that makes a pass fail is lost.
func TestOneFails(t *testing.T) {
	e := torchtest.Engine(t)
	m := read(t, e, "llama/testdata/tied", "256", "64", model.Options{})
	prompts := [][]int32{{3, 1, 4}, {1, 5, 9, 2, 6, 5, 3, 5, 8, 9}, {7}}
	o := greedy
	o.MaxTokens = 120
	want := make([][]int32, len(prompts))
	known := make(map[int32]bool)
	for i, prompt := range prompts {
		want[i] = write(t, m, prompt, o)
		for _, id := range slices.Concat(prompt, want[i]) {
			known[id] = true
		}
	}
	bad := int32(0)
	for known[bad] {
		bad++
	}
	for _, late := range []bool{false, true} {
		before := torch.LiveTensors()
		together := generate.NewTogether(&fragile{Model: m, token: bad, late: late})
		got, errs := make([][]int32, len(prompts)), make([]error, len(prompts))
		var wait sync.WaitGroup
		for i, prompt := range prompts {
			wait.Go(func() {
				errs[i] = together.Tokens(t.Context(), prompt, o, func(id int32) error {
					got[i] = append(got[i], id)
					return nil
				})
			})
		}
		for range 10 {
			wait.Go(func() {
				err := together.Tokens(t.Context(), []int32{2, bad}, o, func(int32) error { return nil })
				if _, ok := errors.AsType[*torch.Error](err); !ok {
					t.Errorf("the text that cannot be computed: %v", err)
				}
			})
		}
		wait.Wait()
		for i := range prompts {
			if errs[i] != nil || !slices.Equal(got[i], want[i]) {
				t.Errorf("late %v, text %d: %v\ngot  %v\nwant %v", late, i, errs[i], got[i], want[i])
			}
		}
		if live := torch.LiveTensors(); live != before {
			t.Errorf("%d tensors are left", live-before)
		}
	}
}
