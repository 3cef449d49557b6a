package llama_test

import (
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/psyche-go/psyche/files/safetensors"
	"github.com/psyche-go/psyche/learn/model/kvcache"
	"github.com/psyche-go/psyche/learn/model/llama"
	"github.com/psyche-go/psyche/learn/model/modeltest"
	"github.com/psyche-go/psyche/learn/model/weights"
	"github.com/psyche-go/psyche/learn/torch"
	"github.com/psyche-go/psyche/learn/torch/torchtest"
)

// variants are the variants of scripts/reference/variant_vectors.py.
var variants = []string{"yarn", "mistral_window", "qwen2_window", "qwen3", "qwen3_yarn", "qwen3_moe", "qwen3_moe_mixed", "mixtral", "olmo2",
	"gemma2", "gemma3", "smollm3", "phi3", "granite", "dynamic", "phi3_part", "phi3_longrope", "phi3_longrope_long",
	"gpt_oss", "gpt_oss_odd", "gpt_oss_bare", "gpt_oss_null", "gemma", "gemma_odd", "gemma_bias", "gemma_bare",
	"llama4", "llama4_odd", "llama4_mixed", "llama4_bare",
	"qwen2_moe", "qwen2_moe_odd", "qwen2_moe_yarn", "qwen2_moe_published",
	"olmo3", "olmo3_odd", "olmo3_ropes", "olmo3_full", "olmo3_published",
	"olmoe", "olmoe_odd", "olmoe_linear", "olmoe_published",
	"glm", "glm_odd", "glm_yarn", "glm_parameters", "glm_published",
	"glm4", "glm4_odd", "glm4_yarn", "glm4_parameters", "glm4_published",
	"glm4_moe", "glm4_moe_odd", "glm4_moe_yarn", "glm4_moe_published",
	"minimax_m2", "minimax_m2_odd", "minimax_m2_yarn", "minimax_m2_published",
	"seed_oss", "seed_oss_odd", "seed_oss_yarn", "seed_oss_published"}

// TestVariantVectors compares with transformers: logits, loss, gradients, text, and the tensors of
// a checkpoint. If PSYCHE_MODEL_VECTORS names a folder, it reads the folders in it instead, and
// writes a checkpoint into each folder, for transformers to load.
func TestVariantVectors(t *testing.T) {
	e := torchtest.Engine(t)
	folders, outside := make([]string, len(variants)), os.Getenv("PSYCHE_MODEL_VECTORS")
	for i, name := range variants {
		folders[i] = filepath.Join("testdata", name)
	}
	if outside != "" {
		folders, _ = filepath.Glob(filepath.Join(outside, "*"))
	}
	worst := map[string]errorsOf{}
	for _, folder := range folders {
		t.Run(filepath.Base(folder), func(t *testing.T) {
			v := modeltest.ReadFolder(t, folder)
			c, err := llama.ParseConfig(v.Config)
			if err != nil {
				t.Fatal(err)
			}
			m := newModel(t, e, vectors{v, c})
			got := compare(t, e, m, v)
			t.Logf("largest error: logits %.1e, loss %.1e, gradients %.1e of the largest", got.logits, got.loss, got.gradients)
			if max(got.logits, got.loss) > 1e-5 || got.gradients > 1e-4 {
				t.Error("an error is above 1e-5, or 1e-4 of gradients")
			}
			worst[c.Architecture] = worst[c.Architecture].or(got)
			if outside != "" {
				writeCheckpoint(t, e, m, folder)
			}
		})
	}
	for architecture, of := range worst {
		t.Logf("%s: logits %.1e, loss %.1e, gradients %.1e", architecture, of.logits, of.loss, of.gradients)
	}
}

// errorsOf has the largest errors: of logits, and of gradients relative to the largest value if it
// is above 1.
type errorsOf struct{ logits, loss, gradients float64 }

func (a errorsOf) or(b errorsOf) errorsOf {
	return errorsOf{max(a.logits, b.logits), max(a.loss, b.loss), max(a.gradients, b.gradients)}
}

func compare(t *testing.T, e *torch.Engine, m *llama.Llama, v modeltest.Vectors) (out errorsOf) {
	t.Helper()
	if len(m.Parameters()) != len(v.Gradients) {
		t.Errorf("%d parameters, reference has %d", len(m.Parameters()), len(v.Gradients))
	}
	ids, targets := v.Other["ids"], v.Other["targets"]
	torchtest.Do(t, e, true, func(s *torch.Scope) error {
		input := s.FromBytes(ids.Data, torch.I64, ids.Shape...)
		out.logits = modeltest.MaxRelativeError(t, "logits", m.Forward(s, input).Contiguous().CopyFloat32s(), modeltest.Float32s(t, v.Other["logits"]))
		loss := m.Loss(s, input, s.FromBytes(targets.Data, torch.I64, targets.Shape...))
		out.loss = modeltest.MaxError(t, "loss", loss.CopyFloat32s(), modeltest.Float32s(t, v.Other["loss"]))
		loss.Backward()
		for _, p := range m.Parameters() {
			got := make([]float32, p.Tensor.Numel()) // zero for an unused expert
			if grad := p.Tensor.Grad(); grad != nil {
				got = grad.Contiguous().CopyFloat32s()
			}
			out.gradients = max(out.gradients, modeltest.MaxRelativeError(t, p.Name, got, v.Gradients[p.Name]))
			p.Tensor.ClearGrad()
		}
		return nil
	})
	if want := ints(v.Other["greedy"]); !slices.Equal(greedy(t, e, m, want[:5], len(want)), want) {
		t.Errorf("wrote %v, want %v", greedy(t, e, m, want[:5], len(want)), want)
	}
	torchtest.Do(t, e, false, func(*torch.Scope) error {
		for i, got := range weights.Export(stored(m)) {
			if want := v.Weights[i]; got.Name != want.Name || !slices.Equal(got.Shape, want.Shape) || string(got.Data) != string(want.Data) {
				t.Errorf("%s was read as %s with different bits", want.Name, got.Name)
			}
		}
		return nil
	})
	return out
}

// stored lists the tensors of a model's checkpoint, sorted by name.
func stored(m *llama.Llama) []torch.Parameter {
	all := slices.Concat(m.Parameters(), m.Buffers())
	weights.SortByName(all)
	return all
}

// greedy appends the most likely tokens to a text, with a cache, until it has a given length.
func greedy(t *testing.T, e *torch.Engine, m *llama.Llama, text []int32, length int) []int32 {
	t.Helper()
	text = slices.Clone(text)
	cache, fresh := m.NewCache(), text
	for len(text) < length {
		if cache.Crosses(int64(len(fresh))) {
			cache.Reset()
			fresh = text
		}
		torchtest.Do(t, e, false, func(s *torch.Scope) error {
			logits := m.Next(s, kvcache.Text{IDs: fresh, Cache: cache}).CopyFloat32s()
			text = append(text, int32(slices.Index(logits, slices.Max(logits))))
			fresh = text[len(text)-1:]
			return nil
		})
	}
	torchtest.Do(t, e, false, func(*torch.Scope) error { cache.Free(); return nil })
	return text
}

// writeCheckpoint writes a model's tensors to the folder of its vectors.
func writeCheckpoint(t *testing.T, e *torch.Engine, m *llama.Llama, folder string) {
	t.Helper()
	written := filepath.Join(folder, "written")
	config, err := os.ReadFile(filepath.Join(folder, "config.json"))
	if err == nil {
		err = os.MkdirAll(written, 0o755)
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(written, "config.json"), config, 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
	torchtest.Do(t, e, false, func(*torch.Scope) error {
		return safetensors.Write(filepath.Join(written, "model.safetensors"), weights.Export(stored(m)), map[string]string{"format": "pt"})
	})
}

// TestVariantsInBF16 computes every kind of layer in bf16. Losses differ from f32 by the rounding
// of bf16. In one model a token selects different experts, and the loss of transformers in bf16
// also differs by 0.023.
func TestVariantsInBF16(t *testing.T) {
	e := torchtest.Engine(t)
	for _, name := range variants {
		v := readVectors(t, name)
		m, err := llama.New(t.Context(), e, v.config, llama.Options{Compute: torch.BF16}, v.Weights)
		if err != nil {
			t.Fatal(err)
		}
		ids, targets := v.Other["ids"], v.Other["targets"]
		torchtest.Do(t, e, true, func(s *torch.Scope) error {
			loss := m.Loss(s, s.FromBytes(ids.Data, torch.I64, ids.Shape...), s.FromBytes(targets.Data, torch.I64, targets.Shape...))
			loss.Backward()
			if off := math.Abs(loss.Item()/float64(modeltest.Float32s(t, v.Other["loss"])[0]) - 1); off > 0.03 {
				t.Errorf("%s: relative error of the loss %.3f", name, off)
			}
			return nil
		})
		if got := greedy(t, e, m, ints(v.Other["greedy"])[:5], 10); len(got) != 10 {
			t.Errorf("%s: wrote %v", name, got)
		}
		if err := m.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
}
