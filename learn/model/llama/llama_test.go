package llama_test

import (
	"context"
	"errors"
	"testing"

	"github.com/psyche-go/psyche/base/golden"
	"github.com/psyche-go/psyche/files/safetensors"
	"github.com/psyche-go/psyche/learn/model/llama"
	"github.com/psyche-go/psyche/learn/model/modeltest"
	"github.com/psyche-go/psyche/learn/model/weights"
	"github.com/psyche-go/psyche/learn/torch"
	"github.com/psyche-go/psyche/learn/torch/torchtest"
)

// vectors are reference values from scripts/reference/llama_vectors.py.
type vectors struct {
	modeltest.Vectors
	config llama.Config
}

func readVectors(t *testing.T, name string) vectors {
	t.Helper()
	v := vectors{Vectors: modeltest.Read(t, name)}
	var err error
	if v.config, err = llama.ParseConfig(v.Config); err != nil {
		t.Fatal(err)
	}
	return v
}

// newModel returns the model of the vectors. It is closed when the test ends.
func newModel(t *testing.T, e *torch.Engine, v vectors) *llama.Llama {
	t.Helper()
	return newModelIn(t, e, v, llama.Options{})
}

func newModelIn(t *testing.T, e *torch.Engine, v vectors, o llama.Options) *llama.Llama {
	t.Helper()
	m, err := llama.New(t.Context(), e, v.config, o, v.Weights)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Close(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	return m
}

func TestAgainstReference(t *testing.T) {
	e := torchtest.Engine(t)
	const tolerance = 1e-4
	for _, name := range []string{"gqa", "tied", "llama3", "linear", "mha", "long", "biases", "attention_bias", "mistral", "qwen2", "qwen2_tied"} {
		t.Run(name, func(t *testing.T) {
			v := readVectors(t, name)
			m, err := llama.New(t.Context(), e, v.config, llama.Options{}, v.Weights)
			if err != nil {
				t.Fatal(err)
			}
			if len(m.Parameters()) != len(v.Gradients) {
				t.Errorf("%d parameters, reference has %d", len(m.Parameters()), len(v.Gradients))
			}
			ids, targets := v.Other["ids"], v.Other["targets"]
			torchtest.Do(t, e, true, func(s *torch.Scope) error {
				input := s.FromBytes(ids.Data, torch.I64, ids.Shape...)
				logits := modeltest.MaxError(t, "logits", m.Forward(s, input).Contiguous().CopyFloat32s(), modeltest.Float32s(t, v.Other["logits"]))
				loss := m.Loss(s, input, s.FromBytes(targets.Data, torch.I64, targets.Shape...))
				lossError := modeltest.MaxError(t, "loss", loss.CopyFloat32s(), modeltest.Float32s(t, v.Other["loss"]))
				loss.Backward()
				gradients := 0.0
				for _, p := range m.Parameters() {
					gradients = max(gradients, modeltest.MaxError(t, p.Name, p.Tensor.Grad().Float32s(), v.Gradients[p.Name]))
				}
				t.Logf("largest error: logits %.1e, loss %.1e, gradients %.1e", logits, lossError, gradients)
				if max(logits, lossError, gradients) > tolerance {
					t.Errorf("an error is above %v", tolerance)
				}
				return nil
			})
			if err := m.Close(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	if live := torch.LiveTensors(); live != 0 {
		t.Errorf("%d tensors live after the models were closed", live)
	}
}

// TestTrainingKeepsMemoryFlat checks that a model trains: the loss on one batch decreases. The
// memory that remains after a step must be constant.
func TestTrainingKeepsMemoryFlat(t *testing.T) {
	e := torchtest.Engine(t)
	v := readVectors(t, "tied")
	m := newModel(t, e, v)
	ids, targets := v.Other["ids"], v.Other["targets"]
	var first, last float64
	var live int64
	for step := range 300 {
		torchtest.Do(t, e, true, func(s *torch.Scope) error {
			loss := m.Loss(s, s.FromBytes(ids.Data, torch.I64, ids.Shape...), s.FromBytes(targets.Data, torch.I64, targets.Shape...))
			loss.Backward()
			last = loss.Item()
			return s.WithGrad(false, func() error {
				for _, p := range m.Parameters() {
					p.Tensor.AddInPlace(p.Tensor.Grad(), -0.05)
					p.Tensor.ClearGrad()
				}
				return nil
			})
		})
		switch step {
		case 0:
			first, live = last, torch.LiveTensors()
		default:
			if now := torch.LiveTensors(); now != live {
				t.Fatalf("step %d leaves %d tensors, step 0 left %d", step, now, live)
			}
		}
	}
	if last > first/2 {
		t.Errorf("loss went from %.3f to %.3f in 300 steps", first, last)
	}
}

func TestWeightsThatDoNotFit(t *testing.T) {
	e := torchtest.Engine(t)
	v := readVectors(t, "tied")
	before := torch.LiveTensors()
	without := func(drop string) []safetensors.Tensor {
		var out []safetensors.Tensor
		for _, w := range v.Weights {
			if w.Name != drop {
				out = append(out, w)
			}
		}
		return out
	}
	head := v.Weights[0]
	for _, w := range v.Weights {
		if w.Name == "model.embed_tokens.weight" {
			head = w
		}
	}
	head.Name = "lm_head.weight"
	other := head
	other.Data = append([]byte{1}, head.Data[1:]...)
	short := head
	short.Name, short.Data = "model.norm.weight", make([]byte, 60)
	short.Shape = []int64{16}
	table := func(name string) safetensors.Tensor {
		return safetensors.Tensor{Name: name, DType: safetensors.F32, Shape: []int64{1}, Data: make([]byte, 4)}
	}
	tests := []struct {
		name    string
		weights []safetensors.Tensor
		ok      bool
	}{
		{"tied head stored too", append(without(""), head), true},
		{"rotary table of a layer", append(without(""), table("model.layers.0.self_attn.rotary_emb.inv_freq")), true},
		{"rotary table of the model", append(without(""), table("model.rotary_emb.inv_freq")), true},
		{"caches of a layer", append(without(""), table("model.layers.1.self_attn.rotary_emb.cos_cached"), table("model.layers.1.self_attn.rotary_emb.sin_cached")), true},
		{"caches of the model", append(without(""), table("model.rotary_emb.cos_cached"), table("model.rotary_emb.original_inv_freq"), table("rope.freqs")), true},
		{"masks and positions", append(without(""), table("model.layers.0.self_attn.masked_bias"), table("model.position_ids")), true},
		{"a bias of attention", append(without(""), table("model.layers.0.self_attn.bias")), false},
		{"table of a layer too many", append(without(""), table("model.layers.9.self_attn.rotary_emb.cos_cached")), false},
		{"another cache", append(without(""), table("model.layers.0.self_attn.rotary_emb.tan_cached")), false},
		{"tied head differs", append(without(""), other), false},
		{"missing", without("model.layers.1.mlp.up_proj.weight"), false},
		{"twice", append(without(""), v.Weights[0]), false},
		{"unknown", append(without(""), safetensors.Tensor{Name: "x"}), false},
		{"short data", append(without("model.norm.weight"), short), false},
		{"shape", append(without("model.norm.weight"), safetensors.Tensor{Name: "model.norm.weight", DType: "F32", Shape: []int64{4, 4}, Data: make([]byte, 64)}), false},
		{"type", append(without("model.norm.weight"), safetensors.Tensor{Name: "model.norm.weight", DType: "I32", Shape: []int64{16}, Data: make([]byte, 64)}), false},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			m, err := llama.New(t.Context(), e, v.config, llama.Options{}, test.weights)
			if test.ok {
				if err != nil {
					t.Fatal(err)
				}
				if err := m.Close(t.Context()); err != nil {
					t.Error(err)
				}
			} else {
				golden.Message(t, test.name, err)
			}
			if live := torch.LiveTensors(); live != before {
				t.Errorf("%d tensors are left", live-before)
			}
		})
	}
}

// TestFurtherLayersAreLeftOut loads checkpoints with tensors after the last layer. The model leaves
// out num_nextn_predict_layers layers and refuses tensors of additional layers.
func TestFurtherLayersAreLeftOut(t *testing.T) {
	e := torchtest.Engine(t)
	v := readVectors(t, "glm4_moe_published")
	for name, fits := range map[string]bool{
		"model.layers.2.eh_proj.weight": true, "model.layers.2.mlp.experts.0.up_proj.weight": true,
		"model.layers.3.eh_proj.weight": false, "model.layers.1.eh_proj.weight": false, "model.layers.x.eh_proj.weight": false,
	} {
		further := safetensors.Tensor{Name: name, DType: safetensors.F32, Shape: []int64{1}, Data: make([]byte, 4)}
		m, err := llama.New(t.Context(), e, v.config, llama.Options{}, append(v.Weights[:len(v.Weights):len(v.Weights)], further))
		if fits != (err == nil) || err != nil && !errors.Is(err, weights.ErrMismatch) {
			t.Errorf("%s: %v", name, err)
		}
		if err == nil {
			if err := m.Close(t.Context()); err != nil {
				t.Error(err)
			}
		}
	}
}

func TestTooManyTokens(t *testing.T) {
	e := torchtest.Engine(t)
	v := readVectors(t, "mha")
	m, err := llama.New(t.Context(), e, v.config, llama.Options{}, v.Weights)
	if err != nil {
		t.Fatal(err)
	}
	err = e.Do(t.Context(), false, func(s *torch.Scope) error {
		m.Forward(s, s.Zeros(torch.I64, 1, 257))
		return nil
	})
	golden.Message(t, "257 tokens", err)
}

// TestRecomputeIsTheSame checks that recomputed layers, or recomputed sublayers, have the same
// losses and gradients as stored layers.
func TestRecomputeIsTheSame(t *testing.T) {
	e := torchtest.Engine(t)
	names := append([]string{"gqa", "tied", "mha", "long", "biases", "attention_bias", "mistral", "qwen2", "qwen2_tied"}, variants...)
	for _, name := range names {
		v := readVectors(t, name)
		for _, compute := range []torch.DType{torch.F32, torch.BF16} {
			kept, again := newModelIn(t, e, v, llama.Options{Compute: compute}), newModelIn(t, e, v, llama.Options{Compute: compute, Recompute: true})
			limit := 1e-6
			if compute == torch.BF16 {
				limit = 1e-2
			}
			off := modeltest.GradientsDiffer(t, e, kept, again, v.Vectors)
			t.Logf("%s: %.1e", name, off)
			if off > limit {
				t.Errorf("%s in %s: differs by %.1e", name, compute, off)
			}
		}
		if less, all := llama.Activations(v.config, true), llama.Activations(v.config, false); less >= all && v.config.NumHiddenLayers > 2 {
			t.Errorf("%s: %d numbers are kept, %d without recompute", name, less, all)
		}
	}
}

func TestWeightsRoundTrip(t *testing.T) {
	for _, name := range []string{"gqa", "biases", "mistral", "qwen2"} {
		t.Run(name, func(t *testing.T) { roundTrip(t, name) })
	}
}

func roundTrip(t *testing.T, name string) {
	e := torchtest.Engine(t)
	v := readVectors(t, name)
	m := newModel(t, e, v)
	torchtest.Do(t, e, false, func(*torch.Scope) error {
		for i, got := range weights.Export(m.Parameters()) {
			if want := v.Weights[i]; got.Name != want.Name || string(got.Data) != string(want.Data) {
				t.Errorf("%s was read as %s with different bits", want.Name, got.Name)
			}
		}
		return nil
	})
}
