package weights

import (
	"testing"

	"github.com/psyche-go/psyche/files/safetensors"
)

// TestWithoutBuffers checks that tensors that older programs saved are left out, and that similar
// names are kept. ColossalAI, Meta and transformers saved such names for Llama, Gemma 3, Phi 3,
// GPT-2, GPT-NeoX and CLIP.
func TestWithoutBuffers(t *testing.T) {
	line, square := []int64{8}, []int64{1, 1, 8, 8}
	for _, test := range []struct {
		name  string
		shape []int64
		drop  bool
	}{
		{"model.layers.0.self_attn.rotary_emb.inv_freq", line, true},
		{"model.layers.0.self_attn.rotary_emb.cos_cached", square, true},
		{"model.layers.1.self_attn.rotary_emb.sin_cached", square, true},
		{"model.layers.0.attention.rotary_emb.inv_freq", line, true},
		{"model.layers.0.rotary_emb.inv_freq", line, true},
		{"model.rotary_emb.inv_freq", line, true},
		{"model.rotary_emb.original_inv_freq", line, true},
		{"model.rotary_emb.cos_cached", square, true},
		{"model.rotary_emb_local.inv_freq", line, true},
		{"model.layers.0.self_attn.rotary_emb.long_inv_freq", line, true},
		{"rotary_emb.inv_freq", line, true},
		{"rope.freqs", line, true},
		{"model.layers.1.self_attn.rope.freqs", line, true},
		{"freqs_cis", line, true},
		{"model.position_ids", []int64{1, 8}, true},
		{"model.embeddings.position_ids", []int64{1, 8}, true},
		{"model.causal_mask", square, true},
		{"model.layers.0.attn.masked_bias", nil, true},
		{"model.layers.0.attention.masked_bias", nil, true},
		{"model.layers.0.attn.bias", square, true},
		{"model.layers.0.self_attn.bias", square, true},
		{"model.layers.0.self_attn.bias", line, false},
		{"model.layers.0.attn.bias", []int64{1, 1, 8, 9}, false},
		{"model.layers.0.mlp.bias", square, false},
		{"model.layers.2.self_attn.rotary_emb.inv_freq", line, false}, // of an additional layer
		{"model.layers.-1.self_attn.rotary_emb.inv_freq", line, false},
		{"model.layers.00.self_attn.rotary_emb.inv_freq", line, false},
		{"model.layers.0.self_attn.rotary_emb.tan_cached", line, false},
		{"model.layers.0.self_attn.rotary_emb.weight", line, false},
		{"model.layers.0.self_attn.rotary_emb.inv_freq.weight", line, false},
		{"model.layers.0.self_attn.q_proj.inv_freq", line, false},
		{"model.layers.0.self_attn.q_proj.bias", line, false},
		{"model.layers.0.self_attn.k_scale", line, false},
		{"model.embed_positions.weight", line, false},
		{"model.inv_freq", line, false},
		{"transformer.h.0.attn.bias", square, false},
		{"model.model.rotary_emb.inv_freq", line, false},
	} {
		left := WithoutBuffers([]safetensors.Tensor{{Name: test.name, Shape: test.shape}, {Name: "model.norm.weight"}}, 2)
		if dropped := len(left) == 1; dropped != test.drop || left[len(left)-1].Name != "model.norm.weight" {
			t.Errorf("%s %v: left out %v, want %v", test.name, test.shape, dropped, test.drop)
		}
	}
}
