package deepseek_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/psyche-go/psyche/base/golden"
	"github.com/psyche-go/psyche/files/safetensors"
	"github.com/psyche-go/psyche/learn/model/deepseek"
	"github.com/psyche-go/psyche/learn/model/modeltest"
	"github.com/psyche-go/psyche/learn/torch"
	"github.com/psyche-go/psyche/learn/torch/torchtest"
)

var cases = []string{"v2-lite", "v2-grouped", "v2-normalized", "v3", "v3-halves", "kimi-k2"}

// vectors are reference values from scripts/reference/deepseek_vectors.py.
type vectors struct {
	modeltest.Vectors
	config deepseek.Config
}

func readVectors(t *testing.T, name string) vectors {
	t.Helper()
	v := vectors{Vectors: modeltest.Read(t, name)}
	var err error
	if v.config, err = deepseek.ParseConfig(v.Config); err != nil {
		t.Fatal(err)
	}
	return v
}

func newModel(t *testing.T, e *torch.Engine, v vectors, o deepseek.Options) *deepseek.DeepSeek {
	t.Helper()
	m, err := deepseek.New(t.Context(), e, v.config, o, v.Weights)
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
	for _, name := range cases {
		t.Run(name, func(t *testing.T) {
			v := readVectors(t, name)
			m, err := deepseek.New(t.Context(), e, v.config, deepseek.Options{}, v.Weights)
			if err != nil {
				t.Fatal(err)
			}
			if len(m.Parameters()) != len(v.Gradients) {
				t.Errorf("%d parameters, reference has %d", len(m.Parameters()), len(v.Gradients))
			}
			ids, targets := v.Other["ids"], v.Other["targets"]
			torchtest.Do(t, e, true, func(s *torch.Scope) error {
				input := s.FromBytes(ids.Data, torch.I64, ids.Shape...)
				logits := modeltest.MaxRelativeError(t, "logits", m.Forward(s, input).Contiguous().CopyFloat32s(), modeltest.Float32s(t, v.Other["logits"]))
				loss := m.Loss(s, input, s.FromBytes(targets.Data, torch.I64, targets.Shape...))
				lossError := modeltest.MaxRelativeError(t, "loss", loss.CopyFloat32s(), modeltest.Float32s(t, v.Other["loss"]))
				loss.Backward()
				gradients := 0.0
				for _, p := range m.Parameters() {
					got := make([]float32, p.Tensor.Numel()) // an unused expert has none
					if grad := p.Tensor.Grad(); grad != nil {
						got = grad.Contiguous().CopyFloat32s()
					}
					gradients = max(gradients, modeltest.MaxRelativeError(t, p.Name, got, v.Gradients[p.Name]))
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

// TestBF16 checks that the loss in bf16 is close to the loss in f32, because the same scores select
// the experts.
func TestBF16(t *testing.T) {
	e := torchtest.Engine(t)
	v := readVectors(t, "v3")
	m := newModel(t, e, v, deepseek.Options{Compute: torch.BF16})
	ids, targets := v.Other["ids"], v.Other["targets"]
	torchtest.Do(t, e, true, func(s *torch.Scope) error {
		loss := m.Loss(s, s.FromBytes(ids.Data, torch.I64, ids.Shape...), s.FromBytes(targets.Data, torch.I64, targets.Shape...))
		loss.Backward()
		if d := modeltest.MaxRelativeError(t, "loss", loss.CopyFloat32s(), modeltest.Float32s(t, v.Other["loss"])); d > 0.05 {
			t.Errorf("loss %v, in f32 %v", loss.Item(), modeltest.Float32s(t, v.Other["loss"]))
		}
		for _, p := range m.Parameters() {
			if grad := p.Tensor.Grad(); grad != nil && (grad.DType() != torch.F32 || !s.AllFinite(grad)) {
				t.Errorf("gradient of %s: %s", p.Name, grad)
			}
		}
		return nil
	})
}

func TestOptionsThatAreNotSupported(t *testing.T) {
	e := torchtest.Engine(t)
	v := readVectors(t, "v2-lite")
	if _, err := deepseek.New(t.Context(), e, v.config, deepseek.Options{Compute: torch.F64}, v.Weights); !errors.Is(err, deepseek.ErrOption) {
		t.Errorf("error %v", err)
	}
}

// TestRecomputeIsTheSame checks that recomputed layers have the same losses and gradients as stored
// layers, including the gradients of the loss that balances experts.
func TestRecomputeIsTheSame(t *testing.T) {
	e := torchtest.Engine(t)
	for _, name := range cases {
		v := readVectors(t, name)
		kept, again := newModel(t, e, v, deepseek.Options{}), newModel(t, e, v, deepseek.Options{Recompute: true})
		if off := modeltest.GradientsDiffer(t, e, kept, again, v.Vectors); off > 1e-6 {
			t.Errorf("%s: differs by %.1e", name, off)
		}
		if less, all := deepseek.Activations(v.config, true), deepseek.Activations(v.config, false); less >= all {
			t.Errorf("%s: %d numbers are kept, %d without recompute", name, less, all)
		}
	}
}

// TestStackedExperts checks that checkpoints that stack the experts of a layer, or that contain
// layers for additional tokens, give the same model.
func TestStackedExperts(t *testing.T) {
	e := torchtest.Engine(t)
	v := readVectors(t, "v3")
	v.config.NumNextN = 1
	tensors := append(stack(t, v), safetensors.Tensor{Name: "model.layers.3.eh_proj.weight", DType: safetensors.F32, Shape: []int64{0}})
	m, err := deepseek.New(t.Context(), e, v.config, deepseek.Options{}, tensors)
	if err != nil {
		t.Fatal(err)
	}
	torchtest.Do(t, e, false, func(*torch.Scope) error {
		want := map[string][]byte{}
		for _, w := range v.Weights {
			want[w.Name] = w.Data
		}
		for _, p := range append(m.Parameters(), m.Buffers()...) {
			if string(p.Tensor.Bytes()) != string(want[p.Name]) {
				t.Errorf("%s differs", p.Name)
			}
			delete(want, p.Name)
		}
		if len(want) > 0 {
			t.Errorf("%d tensors are missing", len(want))
		}
		return nil
	})
	if err := m.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

// stack joins the experts of each layer, as transformers stores them in memory.
func stack(t *testing.T, v vectors) []safetensors.Tensor {
	t.Helper()
	c := v.config
	byName := map[string]safetensors.Tensor{}
	var out []safetensors.Tensor
	for _, w := range v.Weights {
		if strings.Contains(w.Name, ".mlp.experts.") {
			byName[w.Name] = w
		} else {
			out = append(out, w)
		}
	}
	for _, layer := range []string{"model.layers.1.", "model.layers.2."} {
		var gateUp, down []byte
		for i := range c.NumExperts {
			get := func(kind string) []byte {
				return byName[layer+"mlp.experts."+string(rune('0'+i))+"."+kind+"_proj.weight"].Data
			}
			gateUp = append(append(gateUp, get("gate")...), get("up")...)
			down = append(down, get("down")...)
		}
		n, h, inner := int64(c.NumExperts), int64(c.HiddenSize), int64(c.Experts.IntermediateSize)
		out = append(out,
			safetensors.Tensor{Name: layer + "mlp.experts.gate_up_proj", DType: safetensors.F32, Shape: []int64{n, 2 * inner, h}, Data: gateUp},
			safetensors.Tensor{Name: layer + "mlp.experts.down_proj", DType: safetensors.F32, Shape: []int64{n, h, inner}, Data: down})
	}
	return out
}

func TestWeightsThatDoNotFit(t *testing.T) {
	e := torchtest.Engine(t)
	v := readVectors(t, "v3")
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
	for name, weights := range map[string][]safetensors.Tensor{
		"no correction": without("model.layers.1.mlp.gate.e_score_correction_bias"),
		"no expert":     without("model.layers.2.mlp.experts.7.up_proj.weight"),
		"short stack": append(without(""), safetensors.Tensor{Name: "model.layers.1.mlp.experts.down_proj", DType: safetensors.F32,
			Shape: []int64{8, 12, 6}, Data: make([]byte, 8)}),
		"layer too many": append(without(""), safetensors.Tensor{Name: "model.layers.3.x"}),
	} {
		_, err := deepseek.New(t.Context(), e, v.config, deepseek.Options{}, weights)
		golden.Message(t, name, err)
		if live := torch.LiveTensors(); live != before {
			t.Errorf("%s: %d tensors are left", name, live-before)
		}
	}
}

// TestStackOfNoExperts checks that the error is about the empty stacks if a config has no experts.
func TestStackOfNoExperts(t *testing.T) {
	e := torchtest.Engine(t)
	v := readVectors(t, "v3")
	v.config.NumExperts, v.config.Experts = 0, deepseek.Experts{}
	for _, test := range []struct {
		name  string
		shape []int64
	}{
		{"model.layers.0.mlp.experts.gate_up_proj", []int64{0, 0, int64(v.config.HiddenSize)}},
		{"model.layers.0.mlp.experts.down_proj", []int64{0, int64(v.config.HiddenSize), 0}},
	} {
		tensors := append(deepseek.Init(v.config, 1, func(int64) {}), safetensors.Tensor{Name: test.name, DType: safetensors.F32, Shape: test.shape})
		_, err := deepseek.New(t.Context(), e, v.config, deepseek.Options{}, tensors)
		golden.Message(t, test.name, err)
	}
}

func TestTooManyTokens(t *testing.T) {
	e := torchtest.Engine(t)
	m := newModel(t, e, readVectors(t, "v2-lite"), deepseek.Options{})
	err := e.Do(t.Context(), false, func(s *torch.Scope) error {
		m.Forward(s, s.Zeros(torch.I64, 1, 161))
		return nil
	})
	golden.Message(t, "161 tokens", err)
}
