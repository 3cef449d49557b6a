package train

import (
	"slices"
	"strings"
	"testing"

	"github.com/psyche-go/psyche/files/checkpoint"
	"github.com/psyche-go/psyche/files/safetensors"
	"github.com/psyche-go/psyche/learn/model"
)

const (
	toyExperts = `"vocab_size":128,"hidden_size":32,"intermediate_size":64,"moe_intermediate_size":24,"num_hidden_layers":2,
"num_attention_heads":2,"q_lora_rank":24,"kv_lora_rank":16,"qk_nope_head_dim":12,"qk_rope_head_dim":8,"v_head_dim":12,
"n_routed_experts":4,"num_experts_per_tok":2,"first_k_dense_replace":1,"n_group":2,"topk_group":1,"max_position_embeddings":64}`
	toyV2 = `{"architectures":["DeepseekV2ForCausalLM"],"topk_method":"group_limited_greedy","aux_loss_alpha":0.01,` + toyExperts
	toyV3 = `{"architectures":["DeepseekV3ForCausalLM"],` + toyExperts
)

// Models with special features: toyQwen3MoE has experts, and norms of queries and keys. toyGPTOSS
// and toyLlama4 have stacked experts; toyGPTOSS also has sinks and biases. toyGemma3 has windows,
// two kinds of positions, and norms that add one to their weights.
const (
	toyQwen3MoE = `{"architectures":["Qwen3MoeForCausalLM"],"vocab_size":128,"hidden_size":32,"intermediate_size":64,
"num_hidden_layers":2,"num_attention_heads":2,"num_key_value_heads":1,"max_position_embeddings":64,"num_experts":4,
"num_experts_per_tok":2,"moe_intermediate_size":16,"norm_topk_prob":true}`
	toyGPTOSS = `{"architectures":["GptOssForCausalLM"],"vocab_size":128,"hidden_size":32,"intermediate_size":16,"head_dim":16,
"num_hidden_layers":2,"num_attention_heads":2,"num_key_value_heads":1,"max_position_embeddings":64,"num_local_experts":4,
"num_experts_per_tok":2,"sliding_window":5}`
	toyLlama4 = `{"architectures":["Llama4ForCausalLM"],"vocab_size":128,"hidden_size":32,"intermediate_size":16,"head_dim":16,
"num_hidden_layers":2,"num_attention_heads":2,"num_key_value_heads":1,"max_position_embeddings":64,"num_local_experts":4,
"intermediate_size_mlp":48,"interleave_moe_layer_step":2,"no_rope_layer_interval":2,"attention_chunk_size":5}`
	toyGemma3 = `{"architectures":["Gemma3ForCausalLM"],"vocab_size":128,"hidden_size":32,"intermediate_size":64,"head_dim":16,
"num_hidden_layers":2,"num_attention_heads":2,"num_key_value_heads":1,"max_position_embeddings":64,"sliding_window":5,
"sliding_window_pattern":2}`
)

// toyQwen2MoE has a gated expert that every token uses. toyGLM4MoE has experts in groups, corrects
// their scores, and rotates a part of each head.
const (
	toyQwen2MoE = `{"architectures":["Qwen2MoeForCausalLM"],"vocab_size":128,"hidden_size":32,"intermediate_size":64,
"num_hidden_layers":2,"num_attention_heads":2,"num_key_value_heads":1,"max_position_embeddings":64,"num_experts":4,
"num_experts_per_tok":2,"moe_intermediate_size":16,"shared_expert_intermediate_size":24}`
	toyGLM4MoE = `{"architectures":["Glm4MoeForCausalLM"],"vocab_size":128,"hidden_size":32,"intermediate_size":64,
"num_hidden_layers":2,"num_attention_heads":2,"num_key_value_heads":1,"max_position_embeddings":64,"n_routed_experts":4,
"num_experts_per_tok":2,"n_group":2,"topk_group":1,"moe_intermediate_size":16,"use_qk_norm":true,"attention_bias":true}`
)

// TestExpertsTrain checks that replicas of models with experts train with DisTrO, stay equal, and
// leave the untrained tensors unchanged.
func TestExpertsTrain(t *testing.T) {
	for name, text := range map[string]string{"v2": toyV2, "v3": toyV3, "qwen3_moe": toyQwen3MoE, "gpt_oss": toyGPTOSS, "llama4": toyLlama4, "qwen2_moe": toyQwen2MoE, "glm4_moe": toyGLM4MoE} {
		t.Run(name, func(t *testing.T) {
			tensors, err := model.Init([]byte(text), 1)
			if err != nil {
				t.Fatal(err)
			}
			corrections := 0
			for i := range tensors {
				if strings.HasSuffix(tensors[i].Name, "e_score_correction_bias") {
					corrections++
					tensors[i] = safetensors.FromFloat32s(tensors[i].Name, tensors[i].Shape, []float32{0.01, 0, -0.02, 0.03})
				}
			}
			if (corrections > 0) != (name == "v3" || name == "glm4_moe") {
				t.Fatalf("%d corrections", corrections)
			}
			start := checkpoint.Snapshot{Files: []checkpoint.File{{Name: checkpoint.ConfigFile, Data: []byte(text)}}, Tensors: tensors}
			members := [2]*Trainer{}
			for i := range members {
				members[i] = newTestTrainer(t, func(o *Options) { o.Model, o.TrainerID = start, [32]byte{byte(i)} })
			}
			var first, last float64
			for step := uint32(1); step <= 25; step++ {
				var payloads [][]byte
				last = 0
				for i, member := range members {
					begin := uint64(2*i) % 8
					batch := toyBatch(begin, begin+2)
					payload, loss, err := member.Train(t.Context(), step, batch, nil)
					if err != nil {
						t.Fatal(err)
					}
					payloads, last = append(payloads, payload), last+loss/2
				}
				if step == 1 {
					first = last
				}
				for _, member := range members {
					if err := member.Apply(t.Context(), step, payloads, nil, true); err != nil {
						t.Fatal(err)
					}
				}
			}
			if !(last < first*0.75) {
				t.Errorf("loss went from %.3f to %.3f in 25 steps", first, last)
			}
			if digest(t, members[0]) != digest(t, members[1]) {
				t.Error("the replicas differ")
			}
			checkFixed(t, members[0], start)
		})
	}
}

// checkFixed checks that exactly the untrained tensors have their initial values.
func checkFixed(t *testing.T, trainer *Trainer, start checkpoint.Snapshot) {
	t.Helper()
	now, err := trainer.Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(now.Tensors) != len(start.Tensors) {
		t.Fatalf("%d tensors, there were %d", len(now.Tensors), len(start.Tensors))
	}
	for i, tensor := range now.Tensors {
		fixed := strings.HasSuffix(tensor.Name, "e_score_correction_bias")
		if same := slices.Equal(tensor.Data, start.Tensors[i].Data); same != fixed {
			t.Errorf("%s is as it was: %t, want %t", tensor.Name, same, fixed)
		}
	}
	if err := trainer.Load(t.Context(), start); err != nil {
		t.Error(err)
	}
}
