package train

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/psyche-go/psyche/base/golden"
	"github.com/psyche-go/psyche/files/checkpoint"
	"github.com/psyche-go/psyche/learn/model"
	"github.com/psyche-go/psyche/learn/torch"
)

// splitConfig has a head count and an inner width that can be halved; the output head is not tied.
const splitConfig = `{"architectures":["LlamaForCausalLM"],"model_type":"llama","vocab_size":128,"hidden_size":32,
"intermediate_size":64,"num_hidden_layers":2,"num_attention_heads":8,"num_key_value_heads":4,"max_position_embeddings":64}`

var parallelisms = []Parallelism{{Data: 1, Tensor: 1}, {Data: 2}, {Data: 3}, {Tensor: 2}, {Data: 2, Tensor: 2}, {Tensor: 4}}

func snapshotOf(t testing.TB, text string) checkpoint.Snapshot {
	t.Helper()
	tensors, err := model.Init([]byte(text), 1)
	if err != nil {
		t.Fatal(err)
	}
	return checkpoint.Snapshot{Files: []checkpoint.File{{Name: checkpoint.ConfigFile, Data: []byte(text)}}, Tensors: tensors}
}

func parallelTrainer(t *testing.T, text string, p Parallelism) *Trainer {
	t.Helper()
	return newTestTrainer(t, func(o *Options) {
		o.Model, o.Parallel = snapshotOf(t, text), p
		if strings.Contains(text, "Llama") {
			return
		}
		o.MicroBatch = 1 // sequences are balanced separately, so the cut does not change the balance loss
	})
}

func gradientOf(t *testing.T, trainer *Trainer) (loss float64, gradients [][]float32) {
	t.Helper()
	err := trainer.gradient(t.Context(), toyBatch(3, 10), func(_ *torch.Scope, mean float64, tensors []*torch.Tensor) error {
		loss = mean
		for _, tensor := range tensors {
			gradients = append(gradients, slices.Clone(tensor.Float32s()))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return loss, gradients
}

// TestParallelGradients checks that the gradient is the same for any number of engines, and that
// its bits do not depend on which engine is faster.
func TestParallelGradients(t *testing.T) {
	for name, text := range map[string]string{"tied": toyConfig, "split": splitConfig, "v2": toyV2, "v3": toyV3} {
		want, gradients := gradientOf(t, parallelTrainer(t, text, Parallelism{}))
		largest := norm(gradients)
		for _, p := range parallelisms {
			if p.Tensor > 1 && name != "split" {
				continue
			}
			trainer := parallelTrainer(t, text, p)
			loss, got := gradientOf(t, trainer)
			if d := farthest(got, gradients); d > 1e-5 || abs(loss-want) > 1e-5 {
				t.Errorf("%s, %+v: gradient (norm %v) differs by %v, loss %v from %v", name, p, largest, d, loss, want)
			}
			for range 3 {
				if _, again := gradientOf(t, trainer); !sameBits(got, again) {
					t.Errorf("%s, %+v: another time the gradient has other bits", name, p)
				}
			}
		}
	}
}

func abs(v float64) float64 { return max(v, -v) }

// TestParallelReplicasStayEqual checks that members of a run with different numbers of engines have
// the same weights.
func TestParallelReplicasStayEqual(t *testing.T) {
	var members []*Trainer
	for _, p := range []Parallelism{{}, {Data: 2}, {Tensor: 2}, {Data: 2, Tensor: 2}} {
		members = append(members, newTestTrainer(t, func(o *Options) {
			o.Model, o.Parallel, o.TrainerID = snapshotOf(t, splitConfig), p, [32]byte{byte(len(members))}
		}))
	}
	var first, last float64
	for step := uint32(1); step <= 8; step++ {
		var payloads [][]byte
		for i, member := range members {
			payload, loss, err := member.Train(t.Context(), step, toyBatch(uint64(4*i), uint64(4*i+4)), nil)
			if err != nil {
				t.Fatal(err)
			}
			if payloads = append(payloads, payload); i == 2 {
				last = loss
			}
		}
		if step == 1 {
			first = last
		}
		for _, member := range members {
			if err := member.Apply(t.Context(), step, payloads, nil, true); err != nil {
				t.Fatal(err)
			}
		}
		for i, member := range members[1:] {
			if digest(t, member) != digest(t, members[0]) {
				t.Fatalf("after step %d member %d differs", step, i+1)
			}
		}
	}
	if !(last < first) {
		t.Errorf("loss went from %v to %v", first, last)
	}
}

// TestEnginesShareWeights checks that all engines see weights that are loaded, or changed by AdamW.
func TestEnginesShareWeights(t *testing.T) {
	for _, p := range []Parallelism{{Data: 2}, {Tensor: 2}} {
		o := toyOptions(t)
		o.Model, o.Parallel = snapshotOf(t, splitConfig), p
		several, err := NewAdamW(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		o.Parallel = Parallelism{}
		one, err := NewAdamW(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		for step := uint32(1); step <= 5; step++ {
			a, err := several.Step(t.Context(), step, toyBatch(0, 4))
			if err != nil {
				t.Fatal(err)
			}
			b, err := one.Step(t.Context(), step, toyBatch(0, 4))
			if err != nil || abs(a-b) > 1e-4 {
				t.Fatalf("%+v: loss of step %d is %v, on one engine %v, error %v", p, step, a, b, err)
			}
		}
		if err := errors.Join(several.Close(), one.Close()); err != nil {
			t.Error(err)
		}
	}
}

// countdown is a context that is cancelled after a number of calls of Err, from any goroutine.
type countdown struct {
	context.Context
	left atomic.Int64
}

func (c *countdown) Err() error {
	if c.left.Add(-1) < 0 {
		return context.Canceled
	}
	return nil
}

// TestCancelledParallelGradient checks that a cancelled gradient leaves no trace in later
// gradients, and no tensors in memory.
func TestCancelledParallelGradient(t *testing.T) {
	for _, p := range []Parallelism{{Data: 2}, {Tensor: 2}} {
		trainer := parallelTrainer(t, splitConfig, p)
		_, want := gradientOf(t, trainer)
		live := torch.LiveTensors()
		parts, _, err := trainer.cut(toyBatch(3, 10))
		if err != nil {
			t.Fatal(err)
		}
		for _, looks := range []int64{0, 1, 4, 7, 12} {
			ctx := &countdown{Context: t.Context()}
			ctx.left.Store(looks)
			for _, w := range trainer.parallel.workers {
				var err error
				for _, part := range parts {
					if _, err = w.add(ctx, part, 0.5); err != nil {
						break
					}
				}
				if !errors.Is(err, context.Canceled) && looks < 4 {
					t.Errorf("%+v: error %v after %d looks at the context", p, err, looks)
				}
			}
			if err := drop(t.Context(), trainer.parallel.workers); err != nil {
				t.Fatal(err)
			}
			if now := torch.LiveTensors(); now != live {
				t.Errorf("%+v: %d tensors are left", p, now-live)
			}
			if _, got := gradientOf(t, trainer); !sameBits(got, want) {
				t.Errorf("%+v: another gradient after a cancelled one", p)
			}
		}
		done, cancel := context.WithCancel(t.Context())
		cancel()
		if _, _, err := trainer.Train(done, 1, toyBatch(0, 4), nil); !errors.Is(err, context.Canceled) {
			t.Errorf("error %v", err)
		}
	}
}

func TestParallelismThatIsRefused(t *testing.T) {
	for name, test := range map[string]struct {
		text string
		p    Parallelism
	}{
		"data -1":            {splitConfig, Parallelism{Data: -1}},
		"tensor 100000":      {splitConfig, Parallelism{Tensor: 100000}},
		"tensor 3 of 4":      {splitConfig, Parallelism{Tensor: 3}},
		"other architecture": {toyV3, Parallelism{Tensor: 2}},
	} {
		o := toyOptions(t)
		o.Model, o.Parallel = snapshotOf(t, test.text), test.p
		_, err := New(t.Context(), o)
		golden.Message(t, name, err)
		_, err = NewAdamW(t.Context(), o)
		golden.Message(t, name+", AdamW", err)
	}
}
