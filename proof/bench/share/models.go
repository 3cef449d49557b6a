package main

func llama(tied bool) map[string]any {
	return map[string]any{
		"architectures": []string{"LlamaForCausalLM"}, "model_type": "llama", "vocab_size": vocabulary, "hidden_size": 64,
		"intermediate_size": 128, "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 2, "head_dim": 32,
		"hidden_act": "silu", "max_position_embeddings": 256, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "attention_bias": false,
		"mlp_bias": false, "tie_word_embeddings": tied, "initializer_range": 0.02, "torch_dtype": "float32",
	}
}

// models are the config.json of each model. Rare words leave rows of the embeddings in untied, and
// experts without routed tokens, without a gradient.
var models = map[string]map[string]any{
	"tied":   llama(true),
	"untied": llama(false),
	"moe": {
		"architectures": []string{"DeepseekV3ForCausalLM"}, "model_type": "deepseek_v3", "vocab_size": vocabulary, "hidden_size": 48,
		"intermediate_size": 96, "moe_intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 2,
		"q_lora_rank": 24, "kv_lora_rank": 16, "qk_nope_head_dim": 16, "qk_rope_head_dim": 8, "v_head_dim": 16,
		"n_routed_experts": 16, "n_shared_experts": 1, "num_experts_per_tok": 2, "first_k_dense_replace": 1, "moe_layer_freq": 1,
		"n_group": 2, "topk_group": 1, "topk_method": "noaux_tc", "scoring_func": "sigmoid", "norm_topk_prob": true,
		"routed_scaling_factor": 2.5, "hidden_act": "silu", "max_position_embeddings": 256, "rms_norm_eps": 1e-6,
		"rope_theta": 10000.0, "attention_bias": false, "tie_word_embeddings": false, "initializer_range": 0.02, "torch_dtype": "float32",
	},
}
