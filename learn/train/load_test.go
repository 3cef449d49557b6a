package train

import (
	"errors"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/psyche-go/psyche/files/checkpoint"
	"github.com/psyche-go/psyche/files/safetensors"
)

// published returns tensors in the form of a published model's folder.
type published func(t *testing.T, tensors []safetensors.Tensor) []safetensors.Tensor

func withRotaryTables(_ *testing.T, tensors []safetensors.Tensor) []safetensors.Tensor {
	for _, layer := range []string{"0", "1"} {
		for _, table := range []string{"inv_freq", "cos_cached", "sin_cached"} {
			tensors = append(tensors, safetensors.FromFloat32s("model.layers."+layer+".self_attn.rotary_emb."+table, []int64{2}, []float32{1, 0.1}))
		}
	}
	return append(tensors, safetensors.FromFloat32s("model.rotary_emb.inv_freq", []int64{2}, []float32{1, 0.1}))
}

func withTiedHead(t *testing.T, tensors []safetensors.Tensor) []safetensors.Tensor {
	head := tensors[find(t, tensors, "model.embed_tokens.weight")]
	head.Name = "lm_head.weight"
	return append(tensors, head)
}

func withNextLayer(_ *testing.T, tensors []safetensors.Tensor) []safetensors.Tensor {
	return append(tensors, safetensors.FromFloat32s("model.layers.2.eh_proj.weight", []int64{1}, []float32{1}))
}

// withStackedExperts joins the experts of toyV3's only layer with experts.
func withStackedExperts(t *testing.T, tensors []safetensors.Tensor) []safetensors.Tensor {
	const layer, experts, hidden, inner = "model.layers.1.mlp.experts.", 4, 32, 24
	var gateUp, down []byte
	for i := range experts {
		data := func(kind string) []byte {
			return tensors[find(t, tensors, layer+strconv.Itoa(i)+"."+kind+"_proj.weight")].Data
		}
		gateUp, down = slices.Concat(gateUp, data("gate"), data("up")), append(down, data("down")...)
	}
	rest := slices.DeleteFunc(tensors, func(w safetensors.Tensor) bool { return strings.HasPrefix(w.Name, layer) })
	return append(rest,
		safetensors.Tensor{Name: layer + "gate_up_proj", DType: safetensors.F32, Shape: []int64{experts, 2 * inner, hidden}, Data: gateUp},
		safetensors.Tensor{Name: layer + "down_proj", DType: safetensors.F32, Shape: []int64{experts, hidden, inner}, Data: down})
}

func find(t *testing.T, tensors []safetensors.Tensor, name string) int {
	t.Helper()
	at := slices.IndexFunc(tensors, func(w safetensors.Tensor) bool { return w.Name == name })
	if at < 0 {
		t.Fatalf("no tensor %s", name)
	}
	return at
}

// TestLoadTakesWhatNewTakes loads folders of published models into a trainer that has already
// trained a step. It checks that the trainer then has the same weights as a trainer created from
// the folder.
func TestLoadTakesWhatNewTakes(t *testing.T) {
	v3 := func(keys string) string { return strings.Replace(toyV3, "{", "{"+keys+",", 1) }
	for name, test := range map[string]struct {
		config string
		as     published
	}{
		"llama: rotary tables": {toyConfig, withRotaryTables},
		"llama: tied head":     {toyConfig, withTiedHead},
		"v3: rotary tables":    {toyV3, withRotaryTables},
		"v3: tied head":        {v3(`"tie_word_embeddings":true`), withTiedHead},
		"v3: next-token layer": {v3(`"num_nextn_predict_layers":1`), withNextLayer},
		"v3: stacked experts":  {toyV3, withStackedExperts},
	} {
		t.Run(name, func(t *testing.T) {
			own := snapshotOf(t, test.config)
			folder := checkpoint.Snapshot{Files: own.Files, Tensors: test.as(t, slices.Clone(own.Tensors))}
			made := newTestTrainer(t, func(o *Options) { o.Model = folder })
			trainer := newTestTrainer(t, func(o *Options) { o.Model = own }, onDevices(1))
			if _, err := trainer.Step(t.Context(), 1, toyBatch(0, 2)); err != nil {
				t.Fatal(err)
			}
			if digest(t, trainer) == digest(t, made) {
				t.Fatal("the step moved nothing")
			}
			if err := trainer.Load(t.Context(), folder); err != nil {
				t.Fatal(err)
			}
			want := digest(t, made)
			if digest(t, trainer) != want {
				t.Error("the weights differ from a trainer made from the folder")
			}
			folder.Tensors[0].Shape = []int64{1}
			if err := trainer.Load(t.Context(), folder); !errors.Is(err, errModel) {
				t.Errorf("error = %v, want errModel", err)
			}
			if digest(t, trainer) != want {
				t.Error("a folder that was refused changed weights")
			}
		})
	}
}
