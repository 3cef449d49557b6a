package model_test

import (
	"testing"

	"github.com/psyche-go/psyche/learn/model"
)

func TestPadding(t *testing.T) {
	for text, want := range map[string]int32{
		`{"architectures":["LlamaForCausalLM"],"vocab_size":8}`:                         -1,
		`{"architectures":["LlamaForCausalLM"],"vocab_size":8,"pad_token_id":3}`:        3,
		`{"architectures":["LlamaForCausalLM"],"vocab_size":8,"pad_token_id":-1}`:       7,
		`{"architectures":["LlamaForCausalLM"],"vocab_size":8,"pad_token_id":8}`:        -1,
		`{"architectures":["LlamaForCausalLM"],"vocab_size":8,"pad_token_id":-9}`:       -1,
		`{"architectures":["LlamaForCausalLM"],"vocab_size":8,"pad_token_id":"x"}`:      -1,
		`{"architectures":["Gemma2ForCausalLM"],"vocab_size":8}`:                        0,
		`{"architectures":["Gemma3ForCausalLM"],"vocab_size":8,"pad_token_id":null}`:    -1,
		`{"architectures":["Olmo2ForCausalLM"],"vocab_size":8,"rms_norm_eps":NaN}`:      1,
		`{"architectures":["Phi3ForCausalLM"],"vocab_size":32064}`:                      32000,
		`{"architectures":["Phi3ForCausalLM"],"vocab_size":64}`:                         -1,
		`{"architectures":["SmolLM3ForCausalLM"],"vocab_size":128256,"pad_token_id":0}`: 0,
		`{"architectures":["SmolLM3ForCausalLM"],"vocab_size":128256}`:                  128004,
		`{"architectures":["DeepseekV3ForCausalLM"],"vocab_size":8,"pad_token_id":2}`:   2,
		`{"architectures":[],"vocab_size":8,"pad_token_id":2}`:                          -1,
		`{`: -1,
	} {
		id, found := model.Padding([]byte(text))
		if !found {
			id = -1
		}
		if id != want {
			t.Errorf("%s: %d, want %d", text, id, want)
		}
	}
}
