package deepseek_test

import (
	"context"
	"errors"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/psyche-go/psyche/model/deepseek"
	"github.com/psyche-go/psyche/safetensors"
	"github.com/psyche-go/psyche/torch"
	"github.com/psyche-go/psyche/torch/torchtest"
)

var cases = []string{"v2-lite", "v2-grouped", "v2-normalized", "v3", "v3-halves"}

// vectors are reference values made by scripts/reference/deepseek_vectors.py.
type vectors struct {
	config    deepseek.Config
	weights   []safetensors.Tensor
	gradients map[string][]float32
	other     map[string]safetensors.Tensor // ids, targets, logits, loss
}

func readVectors(t *testing.T, name string) vectors {
	t.Helper()
	dir := filepath.Join("testdata", name)
	config, err := os.ReadFile(filepath.Join(dir, "config.json"))
	if err != nil {
		t.Fatal(err)
	}
	v := vectors{gradients: map[string][]float32{}, other: map[string]safetensors.Tensor{}}
	if v.config, err = deepseek.ParseConfig(config); err != nil {
		t.Fatal(err)
	}
	tensors, _, err := safetensors.Read(filepath.Join(dir, "vectors.safetensors"))
	if err != nil {
		t.Fatal(err)
	}
	for _, tensor := range tensors {
		switch kind, name, _ := strings.Cut(tensor.Name, "/"); kind {
		case "weight":
			tensor.Name = name
			v.weights = append(v.weights, tensor)
		case "gradient":
			v.gradients[name] = float32s(t, tensor)
		default:
			v.other[kind] = tensor
		}
	}
	return v
}

func float32s(t *testing.T, tensor safetensors.Tensor) []float32 {
	t.Helper()
	values, err := tensor.Float32s()
	if err != nil {
		t.Fatal(err)
	}
	return values
}

// maxError is the largest difference, relative to the largest value where that is above 1.
func maxError(t *testing.T, name string, got, want []float32) float64 {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%s: %d numbers, want %d", name, len(got), len(want))
	}
	worst, largest := 0.0, 1.0
	for i := range got {
		difference := math.Abs(float64(got[i]) - float64(want[i]))
		if math.IsNaN(difference) {
			t.Fatalf("%s[%d] is %v, want %v", name, i, got[i], want[i])
		}
		worst, largest = max(worst, difference), max(largest, math.Abs(float64(want[i])))
	}
	return worst / largest
}

func newModel(t *testing.T, e *torch.Engine, v vectors, o deepseek.Options) *deepseek.DeepSeek {
	t.Helper()
	m, err := deepseek.New(t.Context(), e, v.config, o, v.weights)
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
			m, err := deepseek.New(t.Context(), e, v.config, deepseek.Options{}, v.weights)
			if err != nil {
				t.Fatal(err)
			}
			if len(m.Parameters()) != len(v.gradients) {
				t.Errorf("%d parameters, reference has %d", len(m.Parameters()), len(v.gradients))
			}
			ids, targets := v.other["ids"], v.other["targets"]
			torchtest.Do(t, e, true, func(s *torch.Scope) error {
				input := s.FromBytes(ids.Data, torch.I64, ids.Shape...)
				logits := maxError(t, "logits", m.Forward(s, input).Contiguous().CopyFloat32s(), float32s(t, v.other["logits"]))
				loss := m.Loss(s, input, s.FromBytes(targets.Data, torch.I64, targets.Shape...))
				lossError := maxError(t, "loss", loss.CopyFloat32s(), float32s(t, v.other["loss"]))
				loss.Backward()
				gradients := 0.0
				for _, p := range m.Parameters() {
					got := make([]float32, p.Tensor.Numel()) // an expert that nobody chose has none
					if grad := p.Tensor.Grad(); grad != nil {
						got = grad.Contiguous().CopyFloat32s()
					}
					gradients = max(gradients, maxError(t, p.Name, got, v.gradients[p.Name]))
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

// In bf16 the loss is nearly that of f32: experts are chosen by the same scores.
func TestBF16(t *testing.T) {
	e := torchtest.Engine(t)
	v := readVectors(t, "v3")
	m := newModel(t, e, v, deepseek.Options{Compute: torch.BF16})
	ids, targets := v.other["ids"], v.other["targets"]
	torchtest.Do(t, e, true, func(s *torch.Scope) error {
		loss := m.Loss(s, s.FromBytes(ids.Data, torch.I64, ids.Shape...), s.FromBytes(targets.Data, torch.I64, targets.Shape...))
		loss.Backward()
		if d := maxError(t, "loss", loss.CopyFloat32s(), float32s(t, v.other["loss"])); d > 0.05 {
			t.Errorf("loss %v, in f32 %v", loss.Item(), float32s(t, v.other["loss"]))
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
	for _, o := range []deepseek.Options{{Recompute: true}, {Compute: torch.F64}} {
		if _, err := deepseek.New(t.Context(), e, v.config, o, v.weights); !errors.Is(err, deepseek.ErrOption) {
			t.Errorf("%+v: error %v", o, err)
		}
	}
}

// Checkpoints that stack the experts of a layer, or hold layers for further tokens, give
// the same model.
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
		for _, w := range v.weights {
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

// stack joins the experts of each layer, as transformers holds them in memory.
func stack(t *testing.T, v vectors) []safetensors.Tensor {
	t.Helper()
	c := v.config
	byName := map[string]safetensors.Tensor{}
	var out []safetensors.Tensor
	for _, w := range v.weights {
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
		for _, w := range v.weights {
			if w.Name != drop {
				out = append(out, w)
			}
		}
		return out
	}
	for name, test := range map[string]struct {
		weights []safetensors.Tensor
		want    string
	}{
		"no correction": {without("model.layers.1.mlp.gate.e_score_correction_bias"), "model.layers.1.mlp.gate.e_score_correction_bias is missing"},
		"no expert":     {without("model.layers.2.mlp.experts.7.up_proj.weight"), "model.layers.2.mlp.experts.7.up_proj.weight is missing"},
		"short stack": {append(without(""), safetensors.Tensor{Name: "model.layers.1.mlp.experts.down_proj", DType: safetensors.F32,
			Shape: []int64{8, 12, 6}, Data: make([]byte, 8)}), "the first is model.layers.1.mlp.experts.down_proj"},
		"layer too many": {append(without(""), safetensors.Tensor{Name: "model.layers.3.x"}), "the first is model.layers.3.x"},
	} {
		_, err := deepseek.New(t.Context(), e, v.config, deepseek.Options{}, test.weights)
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: error %v, want one with %q", name, err, test.want)
		}
		if live := torch.LiveTensors(); live != before {
			t.Errorf("%s: %d tensors are left", name, live-before)
		}
	}
}

// A config without experts leaves stacks of none to the complaint.
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
		tensors := append(deepseek.Init(v.config, 1), safetensors.Tensor{Name: test.name, DType: safetensors.F32, Shape: test.shape})
		_, err := deepseek.New(t.Context(), e, v.config, deepseek.Options{}, tensors)
		if err == nil || !strings.Contains(err.Error(), "the first is "+test.name) {
			t.Errorf("%s: error %v", test.name, err)
		}
	}
}

func TestTooManyTokens(t *testing.T) {
	e := torchtest.Engine(t)
	m := newModel(t, e, readVectors(t, "v2-lite"), deepseek.Options{})
	err := e.Do(t.Context(), false, func(s *torch.Scope) error {
		m.Forward(s, s.Zeros(torch.I64, 1, 161))
		return nil
	})
	if err == nil || !strings.Contains(err.Error(), "max_position_embeddings is 160") {
		t.Errorf("error %v", err)
	}
}
