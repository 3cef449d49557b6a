package main

import (
	"path/filepath"
	"strings"
	"testing"
)

const toyDeepSeek = `{"architectures":["DeepseekV3ForCausalLM"],"model_type":"deepseek_v3","vocab_size":256,"hidden_size":24,
"intermediate_size":32,"moe_intermediate_size":12,"num_hidden_layers":2,"num_attention_heads":2,"kv_lora_rank":12,
"qk_nope_head_dim":8,"qk_rope_head_dim":4,"v_head_dim":8,"n_routed_experts":4,"num_experts_per_tok":2,"n_group":2,
"topk_group":1,"first_k_dense_replace":1,"aux_loss_alpha":0.001,"max_position_embeddings":32,"eos_token_id":null}`

// A model with experts is made, trained on several engines, measured, and writes text.
func TestExpertsFromConfigToText(t *testing.T) {
	requireTorch(t)
	_, data := toy(t)
	dir := t.TempDir()
	model, trained := filepath.Join(dir, "model"), filepath.Join(dir, "trained")
	out := succeed(t, "init-model", "--config", write(t, filepath.Join(dir, "config.json"), []byte(toyDeepSeek)), "--output", model)
	if !strings.Contains(out, "DeepseekV3ForCausalLM") {
		t.Errorf("init-model printed %q", out)
	}
	solo := []string{"solo", "--model", model, "--data-path", data, "--seq-len", "16", "--total-batch", "4", "--micro-batch", "2",
		"--steps", "3", "--optimizer", "distro", "--threads", "1"}
	succeed(t, append(solo, "--data-parallelism", "2", "--save", trained)...)
	fail(t, exitFailure, "tensor parallelism", append(solo, "--tensor-parallelism", "2")...)
	succeed(t, append(solo, "--recompute")...)
	text := succeed(t, "generate", "--model", trained, "--prompt", "What", "--max-tokens", "40", "--temperature", "0", "--threads", "1")
	if !strings.HasPrefix(text, "What") || len(text) < 20 {
		t.Errorf("it wrote %q", text)
	}
}
