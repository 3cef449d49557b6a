package main

import (
	"context"
	"encoding/json"
	"math/rand/v2"
	"path/filepath"

	"github.com/psyche-go/psyche/files/objstore/gcs/fakegcs"
	"github.com/psyche-go/psyche/proof/testbed"
)

// kind is a small model.
type kind struct {
	architecture string
	config       map[string]any // config.json in addition to llama or deepseek
}

func llama(tied bool) kind {
	return kind{"HfLlama", map[string]any{
		"architectures": []string{"LlamaForCausalLM"}, "model_type": "llama", "vocab_size": vocabulary, "hidden_size": 64,
		"intermediate_size": 128, "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 2, "head_dim": 32,
		"hidden_act": "silu", "max_position_embeddings": 256, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "attention_bias": false,
		"mlp_bias": false, "tie_word_embeddings": tied, "initializer_range": 0.02, "torch_dtype": "float32",
	}}
}

// models are the models of rows. Rare tokens leave rows of untied, and experts without routed
// tokens, without a gradient.
var models = map[string]kind{
	"tied":   llama(true),
	"untied": llama(false),
	"moe": {"HfDeepseek", map[string]any{
		"architectures": []string{"DeepseekV3ForCausalLM"}, "model_type": "deepseek_v3", "vocab_size": vocabulary, "hidden_size": 48,
		"intermediate_size": 96, "moe_intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 2,
		"q_lora_rank": 24, "kv_lora_rank": 16, "qk_nope_head_dim": 16, "qk_rope_head_dim": 8, "v_head_dim": 16,
		"n_routed_experts": 16, "n_shared_experts": 1, "num_experts_per_tok": 2, "first_k_dense_replace": 1, "moe_layer_freq": 1,
		"n_group": 2, "topk_group": 1, "topk_method": "noaux_tc", "scoring_func": "sigmoid", "norm_topk_prob": true,
		"routed_scaling_factor": 2.5, "hidden_act": "silu", "max_position_embeddings": 256, "rms_norm_eps": 1e-6,
		"rope_theta": 10000.0, "attention_bias": false, "tie_word_embeddings": false, "initializer_range": 0.02, "torch_dtype": "float32",
	}},
}

const (
	vocabulary = 256
	common     = 100 // tokens of most sequences
	rareEach   = 700 // one of this many sequences has other tokens
)

// world is the environment of a row's processes.
type world struct {
	model string // folder
	data  testbed.Source
	env   []string
	end   func()
}

// prepare creates a row's model and data in a folder.
func prepare(ctx context.Context, client, dir string, r row, dataAddress string) (w world, err error) {
	config, err := json.Marshal(models[r.Model].config)
	if err != nil {
		return w, err
	}
	if w.model, err = testbed.InitModel(ctx, client, dir, config, "--tokenizer", "none"); err != nil {
		return w, err
	}
	tokens := filepath.Join(dir, "data")
	if err := testbed.WriteTokens(tokens, text(r)); err != nil {
		return w, err
	}
	buckets, end := fakegcs.Start()
	w.env = []string{"STORAGE_EMULATOR_HOST=" + buckets.Host}
	w.data, err = testbed.Serve(r.Data, tokens, dir, r.Length, dataAddress, buckets)
	w.end = func() { w.data.End(); end() }
	return w, err
}

// text returns the sequences of a row. Each token follows from the previous one except for some
// noise, so that there is something to learn. Some sequences have rare tokens.
func text(r row) (tokens []uint16) {
	random := rand.New(rand.NewPCG(1, 2))
	sequences := r.Rounds*r.Batch + r.Batch
	for s := range sequences {
		at := random.IntN(common)
		for range r.Length {
			if at = (at*7 + 13) % common; random.IntN(4) == 0 {
				at = random.IntN(common)
			}
			token := at
			if s%rareEach == rareEach-1 {
				token = common + (at*3+s)%(vocabulary-common)
			}
			tokens = append(tokens, uint16(token))
		}
	}
	return append(tokens, 0)
}
