package llama_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/psyche-go/psyche/base/golden"
	"github.com/psyche-go/psyche/files/safetensors"
	"github.com/psyche-go/psyche/learn/model/llama"
	"github.com/psyche-go/psyche/learn/model/modeltest"
	"github.com/psyche-go/psyche/learn/model/weights"
	"github.com/psyche-go/psyche/learn/torch/torchtest"
)

// TestWeightsOfFourBits checks that the error names the tensor and a remedy.
func TestWeightsOfFourBits(t *testing.T) {
	v := readVectors(t, "gpt_oss")
	for _, kind := range []string{"blocks", "scales"} {
		name := "model.layers.0.mlp.experts.gate_up_proj_" + kind
		packed := safetensors.Tensor{Name: name, DType: "U8", Shape: []int64{1}, Data: make([]byte, 1)}
		_, err := llama.New(t.Context(), torchtest.Engine(t), v.config, llama.Options{}, append(slices.Clone(v.Weights), packed))
		if !errors.Is(err, weights.ErrMismatch) {
			t.Errorf("error %v, want ErrMismatch", err)
		}
		golden.Message(t, kind, err)
	}
}

// TestInitOfStackedExperts checks that new biases are zeros, and that sinks and matrices are
// random.
func TestInitOfStackedExperts(t *testing.T) {
	c, err := llama.ParseConfig([]byte(as("GptOssForCausalLM", "gpt_oss", `"num_key_value_heads": 2, "head_dim": 4, "num_experts": 4`)))
	if err != nil {
		t.Fatal(err)
	}
	for _, tensor := range llama.Init(c, 1, func(int64) {}) {
		values := modeltest.Float32s(t, tensor)
		zeros := !slices.ContainsFunc(values, func(v float32) bool { return v != 0 })
		if bias := strings.HasSuffix(tensor.Name, "bias"); zeros != bias {
			t.Errorf("%s is all zeros: %t, want %t", tensor.Name, zeros, bias)
		}
		if ones := !slices.ContainsFunc(values, func(v float32) bool { return v != 1 }); ones != strings.Contains(tensor.Name, "norm") {
			t.Errorf("%s is all ones: %t", tensor.Name, ones)
		}
	}
}
