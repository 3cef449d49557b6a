package llama_test

import (
	"errors"
	"math"
	"testing"

	"github.com/psyche-go/psyche/files/safetensors"
	"github.com/psyche-go/psyche/learn/model/llama"
	"github.com/psyche-go/psyche/learn/model/modeltest"
	"github.com/psyche-go/psyche/learn/torch"
	"github.com/psyche-go/psyche/learn/torch/torchtest"
)

func engines(t *testing.T, n int) []*torch.Engine {
	t.Helper()
	out := make([]*torch.Engine, n)
	for i := range out {
		out[i] = torchtest.Engine(t)
	}
	return out
}

func ints(t safetensors.Tensor) []int32 {
	out := make([]int32, len(t.Data)/8)
	for i := range out {
		out[i] = int32(t.Data[8*i]) | int32(t.Data[8*i+1])<<8 | int32(t.Data[8*i+2])<<16 | int32(t.Data[8*i+3])<<24
	}
	return out
}

// TestSplitAgainstReference compares the gradients of a split model with the gradients of the
// reference, which has no engines.
func TestSplitAgainstReference(t *testing.T) {
	for _, test := range []struct {
		name      string
		engines   int
		compute   torch.DType
		tolerance float64
	}{
		{"gqa", 2, torch.F32, 1e-5}, {"tied", 2, torch.F32, 1e-5}, {"mha", 4, torch.F32, 1e-5}, {"long", 2, torch.F32, 1e-5},
		{"gqa", 1, torch.F32, 1e-5}, {"gqa", 2, torch.BF16, 0.05}, {"qwen3", 2, torch.F32, 1e-5},
		{"qwen2", 2, torch.F32, 1e-5}, {"qwen2_window", 2, torch.F32, 1e-5}, {"mistral_window", 2, torch.F32, 1e-5}, {"smollm3", 2, torch.F32, 1e-5},
		{"granite", 2, torch.F32, 1e-5}, {"granite", 2, torch.BF16, 0.05}, {"gemma", 2, torch.F32, 1e-5},
		{"seed_oss", 2, torch.F32, 1e-5},
	} {
		v, group := readVectors(t, test.name), engines(t, test.engines)
		m, err := llama.New(t.Context(), group[0], v.config, llama.Options{Compute: test.compute}, v.Weights)
		if err != nil {
			t.Fatal(err)
		}
		split, err := m.Split(t.Context(), group)
		if err != nil {
			t.Fatal(err)
		}
		ids, targets := v.Other["ids"], v.Other["targets"]
		loss := 0.0
		for range 2 { // two halves of the gradient add up to the gradient
			if loss, err = split.Gradient(t.Context(), ints(ids), ints(targets), ids.Shape[0], ids.Shape[1], 0.5); err != nil {
				t.Fatal(err)
			}
			taken, err := split.Take(t.Context()) // between two micro-batches
			if err == nil {
				err = split.Put(t.Context(), taken)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		var sums [][]float32
		for _, p := range m.Parameters() {
			sums = append(sums, make([]float32, p.Tensor.Numel()))
		}
		if err := split.AddTo(t.Context(), sums); err != nil {
			t.Fatal(err)
		}
		worst := math.Abs(loss - float64(modeltest.Float32s(t, v.Other["loss"])[0]))
		for i, p := range m.Parameters() {
			worst = max(worst, modeltest.MaxError(t, p.Name, sums[i], v.Gradients[p.Name]))
		}
		t.Logf("%s on %d engines in %s: largest error %.1e", test.name, test.engines, test.compute, worst)
		if worst > test.tolerance {
			t.Errorf("it is above %v", test.tolerance)
		}
		if err := errors.Join(split.Close(t.Context()), m.Close(t.Context())); err != nil {
			t.Error(err)
		}
		if live := torch.LiveTensors(); live != 0 {
			t.Errorf("%d tensors are left", live)
		}
	}
}

func TestSplitThatIsRefused(t *testing.T) {
	group := engines(t, 3)
	v := readVectors(t, "gqa")
	for _, name := range []string{"biases", "attention_bias", "mixtral", "qwen3_moe", "olmo2", "gemma2", "gemma3", "phi3", "gemma_bias", "gpt_oss", "llama4", "llama4_odd",
		"qwen2_moe", "olmo3", "olmoe", "glm", "glm4", "glm4_moe", "minimax_m2", "seed_oss_odd"} {
		whole := newModel(t, group[0], readVectors(t, name))
		if _, err := whole.Split(t.Context(), group[:1]); !errors.Is(err, llama.ErrSplit) {
			t.Errorf("%s: got %v; want error llama.ErrSplit", name, err)
		}
	}
	for engines, o := range map[int]llama.Options{3: {}, 2: {Recompute: true}, 0: {}} {
		m, err := llama.New(t.Context(), group[0], v.config, o, v.Weights)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := m.Split(t.Context(), group[:engines]); !errors.Is(err, llama.ErrSplit) {
			t.Errorf("%d engines, %+v: error %v", engines, o, err)
		}
		if err := m.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
}
