package llama_test

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/psyche-go/psyche/base/fuzztest"
	"github.com/psyche-go/psyche/base/golden"
	"github.com/psyche-go/psyche/learn/model/hfconfig"
	"github.com/psyche-go/psyche/learn/model/llama"
)

const minimal = `{"architectures": ["LlamaForCausalLM"], "vocab_size": 32, "hidden_size": 16,
	"intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 4`

// Two architectures with small differences.
var (
	mistral = strings.Replace(minimal, "LlamaForCausalLM", "MistralForCausalLM", 1) + `, "model_type": "mistral", "num_key_value_heads": 2`
	qwen2   = strings.Replace(minimal, "LlamaForCausalLM", "Qwen2ForCausalLM", 1) + `, "model_type": "qwen2", "num_key_value_heads": 2`
)

// as returns minimal for a different architecture.
func as(architecture, modelType, more string) string {
	return strings.Replace(minimal, "LlamaForCausalLM", architecture, 1) + `, "model_type": "` + modelType + `", ` + more + `}`
}

// TestVariants checks the defaults of transformers and the numbers of parameters.
func TestVariants(t *testing.T) {
	layer := 2*(2*16*16+2*8*16+3*16*24+2*16) + 2*32*16 + 16 // of 2 layers, with ends
	for text, want := range map[string]struct {
		positions, parameters int
		biases                llama.Biases
	}{
		mistral + `, "sliding_window": null}`: {131072, layer, llama.Biases{}},
		qwen2 + `}`:                           {32768, layer + 2*(16+8+8), llama.Biases{QueryKeyValue: true}},
		minimal + `, "num_key_value_heads": 2, "attention_bias": true}`: {2048, layer + 2*(16+8+8+16), llama.Biases{QueryKeyValue: true, Output: true}},
		minimal + `, "num_key_value_heads": 2, "mlp_bias": true}`:       {2048, layer + 2*(24+24+16), llama.Biases{FeedForward: true}},
	} {
		c, err := llama.ParseConfig([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		if c.MaxPositionEmbeddings != want.positions || c.Biases != want.biases || llama.NumParameters(c) != int64(want.parameters) {
			t.Errorf("%s: %d positions, %+v, %d parameters, want %+v", text, c.MaxPositionEmbeddings, c.Biases, llama.NumParameters(c), want)
		}
	}
}

// TestPublishedSizes compares the parameters of published models with the numbers on their pages.
func TestPublishedSizes(t *testing.T) {
	config := func(architecture string, vocabulary, hidden, inner, layers, heads, keys int, more string) string {
		return fmt.Sprintf(`{"architectures": [%q], "vocab_size": %d, "hidden_size": %d, "intermediate_size": %d, "num_hidden_layers": %d, "num_attention_heads": %d, "num_key_value_heads": %d%s}`,
			architecture, vocabulary, hidden, inner, layers, heads, keys, more)
	}
	for text, want := range map[string]int64{
		config("MistralForCausalLM", 32000, 4096, 14336, 32, 32, 8, ``):                                                                                               7_241_732_096,
		config("Qwen3ForCausalLM", 151936, 1024, 3072, 28, 16, 8, `, "tie_word_embeddings": true`):                                                                    596_049_920,
		config("Qwen3MoeForCausalLM", 151936, 2048, 6144, 48, 32, 4, `, "head_dim": 128, "num_experts": 128, "moe_intermediate_size": 768`):                           30_532_122_624,
		config("MixtralForCausalLM", 32000, 4096, 14336, 32, 32, 8, ``):                                                                                               46_702_792_704,
		config("Olmo2ForCausalLM", 100352, 4096, 11008, 32, 32, 32, ``):                                                                                               7_298_617_344,
		config("Gemma2ForCausalLM", 256000, 2304, 9216, 26, 8, 4, ``):                                                                                                 2_614_341_888,
		config("Gemma3ForCausalLM", 262144, 1152, 6912, 26, 4, 1, ``):                                                                                                 999_885_952,
		config("SmolLM3ForCausalLM", 128256, 2048, 11008, 36, 16, 4, ``):                                                                                              3_075_098_624,
		config("Phi3ForCausalLM", 32064, 3072, 8192, 32, 32, 32, ``):                                                                                                  3_821_079_552,
		config("GptOssForCausalLM", 201088, 2880, 2880, 24, 64, 8, `, "num_local_experts": 32`):                                                                       20_914_757_184,
		config("GptOssForCausalLM", 201088, 2880, 2880, 36, 64, 8, ``):                                                                                                116_829_156_672,
		config("GemmaForCausalLM", 256000, 2048, 16384, 18, 8, 1, ``):                                                                                                 2_506_172_416,
		config("GemmaForCausalLM", 256000, 3072, 24576, 28, 16, 16, ``):                                                                                               8_537_680_896,
		config("Llama4ForCausalLM", 202048, 5120, 8192, 48, 40, 8, ``):                                                                                                107_769_861_120,
		config("Llama4ForCausalLM", 202048, 5120, 8192, 48, 40, 8, `, "num_local_experts": 128, "interleave_moe_layer_step": 2`):                                      400_711_848_960,
		config("Qwen2MoeForCausalLM", 151936, 2048, 5632, 24, 16, 16, ``):                                                                                             14_315_784_192,
		config("Qwen2MoeForCausalLM", 151936, 3584, 18944, 28, 28, 4, `, "num_experts": 64, "moe_intermediate_size": 2560, "shared_expert_intermediate_size": 20480`): 57_408_658_944,
		config("Olmo3ForCausalLM", 100278, 4096, 11008, 32, 32, 32, ``):                                                                                               7_298_011_136,
		config("OlmoeForCausalLM", 50304, 2048, 1024, 16, 16, 16, ``):                                                                                                 6_919_161_856,
		config("GlmForCausalLM", 151552, 4096, 13696, 40, 32, 2, ``):                                                                                                  9_399_951_360,
		config("Glm4ForCausalLM", 151552, 4096, 13696, 40, 32, 2, `, "attention_bias": false`):                                                                        9_400_094_720,
		config("Glm4MoeForCausalLM", 151552, 4096, 10944, 46, 96, 8, `, "head_dim": 128, "attention_bias": true`):                                                     106_852_245_504,
		config("Glm4MoeForCausalLM", 151552, 5120, 12288, 92, 96, 8, `, "head_dim": 128, "attention_bias": true, "use_qk_norm": true, "n_routed_experts": 160, "moe_intermediate_size": 1536, "first_k_dense_replace": 3`): 352_797_814_784,
		config("MiniMaxM2ForCausalLM", 200064, 3072, 1536, 62, 48, 8, ``):                                                                228_689_748_992,
		config("SeedOssForCausalLM", 155136, 5120, 27648, 64, 80, 8, `, "head_dim": 128, "attention_dropout": 0, "residual_dropout": 0`): 36_151_104_512,
		config("GraniteForCausalLM", 49155, 4096, 12800, 40, 32, 8, `, "tie_word_embeddings": true`):                                     8_170_848_256,
	} {
		c, err := llama.ParseConfig([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		if got := llama.NumParameters(c); got != want {
			t.Errorf("%s: %d parameters, published are %d", c.Architecture, got, want)
		}
	}
}

func TestParseConfigDefaults(t *testing.T) {
	c, err := llama.ParseConfig([]byte(minimal + `, "unheard_of": [1]}`))
	if err != nil {
		t.Fatal(err)
	}
	if c.NumKeyValueHeads != 4 || c.HeadDim != 4 || c.MaxPositionEmbeddings != 2048 || c.RMSNormEps != 1e-6 ||
		c.InitializerRange != 0.02 || c.TieWordEmbeddings || c.Rope.Theta != 10000 || c.Rope.Type != "default" {
		t.Errorf("defaults differ from transformers: %+v", c)
	}
	if got, want := llama.NumParameters(c), int64(2*32*16+16+2*(4*16*16+3*16*24+2*16)); got != want {
		t.Errorf("%d parameters, want %d", got, want)
	}
}

func TestParseConfig(t *testing.T) {
	llama3 := `"rope_type": "llama3", "factor": 8, "low_freq_factor": 1, "high_freq_factor": 4, "original_max_position_embeddings": 64`
	tests := []struct {
		name, text string
		ok         bool
	}{
		{"llama3", minimal + `, "rope_scaling": {` + llama3 + `}}`, true},
		{"transformers 5", minimal + `, "rope_parameters": {"rope_theta": 5e5, ` + llama3 + `}}`, true},
		{"default rope", minimal + `, "rope_scaling": {"rope_type": "default"}}`, true},
		{"head_dim of its own", minimal + `, "head_dim": 6}`, true},
		{"eos list", minimal + `, "eos_token_id": [1, 2], "bos_token_id": null}`, true},
		{"no json", `{`, false},
		{"not an object", `[]`, false},
		{"size is text", strings.Replace(minimal, `"hidden_size": 16`, `"hidden_size": "16"`, 1) + `}`, false},
		{"fraction of a size", strings.Replace(minimal, `"hidden_size": 16`, `"hidden_size": 1.5`, 1) + `}`, false},
		{"nested number", minimal + `, "rope_scaling": {"factor": "8"}}`, false},
		{"flag is text", minimal + `, "tie_word_embeddings": "yes"}`, false},
		{"list is text", `{"architectures": "LlamaForCausalLM"}`, false},
		{"object is text", minimal + `, "rope_scaling": "linear"}`, false},
		{"text is a number", minimal + `, "hidden_act": 3}`, false},
		{"no architecture", `{}`, false},
		{"other architecture", `{"architectures": ["GPT2LMHeadModel"]}`, false},
		{"other model type", minimal + `, "model_type": "mistral"}`, false},
		{"missing size", strings.Replace(minimal, `"hidden_size": 16,`, "", 1) + `}`, false},
		{"zero size", strings.Replace(minimal, `"vocab_size": 32`, `"vocab_size": 0`, 1) + `}`, false},
		{"huge size", strings.Replace(minimal, `"vocab_size": 32`, `"vocab_size": 99999999999`, 1) + `}`, false},
		{"fraction", strings.Replace(minimal, `"vocab_size": 32`, `"vocab_size": 1.5`, 1) + `}`, false},
		{"indivisible", strings.Replace(minimal, `"num_attention_heads": 4`, `"num_attention_heads": 3`, 1) + `}`, false},
		{"key heads", minimal + `, "num_key_value_heads": 3}`, false},
		{"too many key heads", minimal + `, "num_key_value_heads": 8}`, false},
		{"odd head", minimal + `, "head_dim": 5}`, false},
		{"attention bias", minimal + `, "attention_bias": true}`, true},
		{"mlp bias", minimal + `, "mlp_bias": true}`, true},
		{"layers of two kinds", minimal + `, "layer_types": ["full_attention", "sliding_attention"]}`, false},
		{"layers of one kind", minimal + `, "layer_types": ["full_attention", "full_attention"]}`, true},
		{"mistral", mistral + `, "sliding_window": null}`, true},
		{"mistral, wide enough", mistral + `, "sliding_window": 4096, "max_position_embeddings": 4096}`, true},
		{"mistral, window", mistral + `, "sliding_window": 4096, "max_position_embeddings": 32768}`, true},
		{"mistral, window by default", mistral + `}`, true},
		{"mistral, no window", mistral + `, "sliding_window": "wide"}`, false},
		{"mistral, zero window", mistral + `, "sliding_window": 0}`, false},
		{"mistral, biases", mistral + `, "sliding_window": null, "attention_bias": true}`, false},
		{"mistral, key heads", strings.Replace(mistral, `"num_key_value_heads": 2`, `"num_key_value_heads": null`, 1) + `, "sliding_window": null}`, false},
		{"qwen2", qwen2 + `, "sliding_window": 32, "use_sliding_window": false, "max_window_layers": 1}`, true},
		{"qwen2, window", qwen2 + `, "use_sliding_window": true, "max_window_layers": 1}`, true},
		{"qwen2, layers without a window", qwen2 + `, "use_sliding_window": true, "sliding_window": null, "layer_types": ["sliding_attention", "full_attention"]}`, false},
		{"qwen2, too few layers", qwen2 + `, "use_sliding_window": true, "layer_types": ["sliding_attention"]}`, false},
		{"qwen2, other layers", qwen2 + `, "use_sliding_window": true, "layer_types": ["chunked_attention", "full_attention"]}`, false},
		{"qwen3, key heads", as("Qwen3ForCausalLM", "qwen3", `"head_dim": 4`), false},
		{"qwen3, bias", as("Qwen3ForCausalLM", "qwen3", `"num_key_value_heads": 2, "mlp_bias": true`), false},
		{"qwen3, layers", as("Qwen3ForCausalLM", "qwen3", `"num_key_value_heads": 2, "layer_types": ["sliding_attention", "full_attention"]`), false},
		{"qwen3_moe", as("Qwen3MoeForCausalLM", "qwen3_moe", `"num_key_value_heads": 2, "router_aux_loss_coef": 0.001`), true},
		{"qwen3_moe, window", as("Qwen3MoeForCausalLM", "qwen3_moe", `"num_key_value_heads": 2, "use_sliding_window": true`), false},
		{"qwen3_moe, balance", as("Qwen3MoeForCausalLM", "qwen3_moe", `"num_key_value_heads": 2, "output_router_logits": true`), false},
		{"qwen3_moe, chosen", as("Qwen3MoeForCausalLM", "qwen3_moe", `"num_key_value_heads": 2, "num_experts": 4`), false},
		{"qwen3_moe, experts", as("Qwen3MoeForCausalLM", "qwen3_moe", `"num_key_value_heads": 2, "num_experts": 0`), false},
		{"mixtral", as("MixtralForCausalLM", "mixtral", `"num_key_value_heads": 2`), true},
		{"mixtral, noise", as("MixtralForCausalLM", "mixtral", `"num_key_value_heads": 2, "router_jitter_noise": 0.1`), false},
		{"olmo2", as("Olmo2ForCausalLM", "olmo2", `"attention_bias": true`), true},
		{"olmo2, bias", as("Olmo2ForCausalLM", "olmo2", `"mlp_bias": true`), false},
		{"gemma2", as("Gemma2ForCausalLM", "gemma2", `"num_key_value_heads": 2, "hidden_act": "gelu_pytorch_tanh"`), true},
		{"gemma2, activation", as("Gemma2ForCausalLM", "gemma2", `"num_key_value_heads": 2, "hidden_activation": "gelu"`), false},
		{"gemma2, other activation", as("Gemma2ForCausalLM", "gemma2", `"num_key_value_heads": 2, "hidden_act": "silu"`), false},
		{"gemma2, cap", as("Gemma2ForCausalLM", "gemma2", `"num_key_value_heads": 2, "final_logit_softcapping": 0`), false},
		{"gemma2, cap is text", as("Gemma2ForCausalLM", "gemma2", `"num_key_value_heads": 2, "final_logit_softcapping": "no"`), false},
		{"gemma3, both ways", as("Gemma3ForCausalLM", "gemma3_text", `"num_key_value_heads": 2, "use_bidirectional_attention": true`), false},
		{"gemma3, scores", as("Gemma3ForCausalLM", "gemma3_text", `"num_key_value_heads": 2, "attn_logit_softcapping": 50`), false},
		{"gemma3, two ropes", as("Gemma3ForCausalLM", "gemma3_text", `"num_key_value_heads": 2, "rope_parameters": {}, "rope_scaling": {"rope_type": "linear", "factor": 8}`), false},
		{"gemma3, one rope", as("Gemma3ForCausalLM", "gemma3_text", `"num_key_value_heads": 2, "rope_parameters": {"rope_theta": 5e5}`), false},
		{"two kinds of ropes", minimal + `, "rope_parameters": {"full_attention": {"rope_theta": 5e5}}}`, false},
		{"gemma3, local rope", as("Gemma3ForCausalLM", "gemma3_text", `"num_key_value_heads": 2, "rope_parameters": {"sliding_attention": {"rope_type": "longrope"}}`), false},
		{"smollm3", as("SmolLM3ForCausalLM", "smollm3", `"num_key_value_heads": 2, "no_rope_layers": [1, 0]`), true},
		{"smollm3, layers", as("SmolLM3ForCausalLM", "smollm3", `"num_key_value_heads": 2, "no_rope_layers": [1]`), false},
		{"phi3, dropout", as("Phi3ForCausalLM", "phi3", `"resid_pdrop": 0.1`), false},
		{"phi3, embedding dropout", as("Phi3ForCausalLM", "phi3", `"embd_pdrop": 0.1`), false},
		{"phi3, rope", as("Phi3ForCausalLM", "phi3", `"rope_scaling": {"type": "linear", "factor": 2}`), false},
		{"phi3, no factors", as("Phi3ForCausalLM", "phi3", `"rope_scaling": {"type": "longrope"}`), false},
		{"phi3, few factors", as("Phi3ForCausalLM", "phi3", `"rope_scaling": {"type": "su", "short_factor": [1, 1], "long_factor": [1]}`), false},
		{"phi3, a factor of 0", as("Phi3ForCausalLM", "phi3", `"rope_scaling": {"type": "su", "short_factor": [1, 0], "long_factor": []}`), false},
		{"phi3, two contexts", as("Phi3ForCausalLM", "phi3", `"original_max_position_embeddings": 64, "rope_parameters": {"rope_type": "longrope", "original_max_position_embeddings": 32}`), false},
		{"phi3, part", as("Phi3ForCausalLM", "phi3", `"partial_rotary_factor": 0.5`), true},
		{"phi3, no pairs", as("Phi3ForCausalLM", "phi3", `"partial_rotary_factor": 0.75`), false},
		{"phi3, more than all", as("Phi3ForCausalLM", "phi3", `"rope_parameters": {"partial_rotary_factor": 1.5}`), false},
		{"granite, no logits", as("GraniteForCausalLM", "granite", `"logits_scaling": 0`), false},
		{"gpt_oss", as("GptOssForCausalLM", "gpt_oss", `"num_key_value_heads": 2, "layer_types": null`), true},
		{"gpt_oss, key heads", as("GptOssForCausalLM", "gpt_oss", `"num_key_value_heads": null`), false},
		{"gpt_oss, two numbers", as("GptOssForCausalLM", "gpt_oss", `"num_key_value_heads": 2, "num_experts": 8, "num_local_experts": 4`), false},
		{"gpt_oss, same number", as("GptOssForCausalLM", "gpt_oss", `"num_key_value_heads": 2, "num_experts": 8, "num_local_experts": 8`), true},
		{"gpt_oss, chosen", as("GptOssForCausalLM", "gpt_oss", `"num_key_value_heads": 2, "num_experts": 3`), false},
		{"gpt_oss, balance", as("GptOssForCausalLM", "gpt_oss", `"num_key_value_heads": 2, "output_router_logits": true`), false},
		{"gpt_oss, no window", as("GptOssForCausalLM", "gpt_oss", `"num_key_value_heads": 2, "sliding_window": null`), false},
		{"gpt_oss, layers", as("GptOssForCausalLM", "gpt_oss", `"num_key_value_heads": 2, "layer_types": ["full_attention", "linear_attention"]`), false},
		{"gpt_oss, limit", as("GptOssForCausalLM", "gpt_oss", `"num_key_value_heads": 2, "swiglu_limit": 0`), false},
		{"gpt_oss, alpha", as("GptOssForCausalLM", "gpt_oss", `"num_key_value_heads": 2, "swiglu_alpha": -1`), false},
		{"gpt_oss, bias", as("GptOssForCausalLM", "gpt_oss", `"num_key_value_heads": 2, "mlp_bias": true`), false},
		{"gpt_oss, activation", as("GptOssForCausalLM", "gpt_oss", `"num_key_value_heads": 2, "hidden_act": "gelu"`), false},
		{"gpt_oss, rope", as("GptOssForCausalLM", "gpt_oss", `"num_key_value_heads": 2, "rope_scaling": {"rope_type": "longrope"}`), false},
		{"gemma, old name", as("GemmaForCausalLM", "gemma", `"num_key_value_heads": 1, "hidden_act": "gelu", "hidden_activation": null`), true},
		{"gemma, activation", as("GemmaForCausalLM", "gemma", `"num_key_value_heads": 1, "hidden_act": "relu"`), false},
		{"gemma, other activation", as("GemmaForCausalLM", "gemma", `"num_key_value_heads": 1, "hidden_activation": "gelu"`), false},
		{"gemma, both ways", as("GemmaForCausalLM", "gemma", `"num_key_value_heads": 1, "use_bidirectional_attention": true`), false},
		{"gemma, bias", as("GemmaForCausalLM", "gemma", `"num_key_value_heads": 1, "mlp_bias": true`), false},
		{"gemma, layers", as("GemmaForCausalLM", "gemma", `"num_key_value_heads": 1, "layer_types": ["sliding_attention", "full_attention"]`), false},
		{"llama4", as("Llama4ForCausalLM", "llama4_text", `"num_key_value_heads": 2, "attn_temperature_tuning": 4, "attention_chunk_size": null`), true},
		{"llama4, whole", as("Llama4ForCausalLM", "llama4", `"num_key_value_heads": 2`), false},
		{"llama4, temperature", as("Llama4ForCausalLM", "llama4_text", `"num_key_value_heads": 2, "attn_temperature_tuning": "warm"`), false},
		{"llama4, floor", as("Llama4ForCausalLM", "llama4_text", `"num_key_value_heads": 2, "floor_scale": 0`), false},
		{"llama4, chunk", as("Llama4ForCausalLM", "llama4_text", `"num_key_value_heads": 2, "attention_chunk_size": 0`), false},
		{"llama4, huge chunk", as("Llama4ForCausalLM", "llama4_text", `"num_key_value_heads": 2, "attention_chunk_size": 9000000000000000000`), false},
		{"llama4, chunk is text", as("Llama4ForCausalLM", "llama4_text", `"num_key_value_heads": 2, "attention_chunk_size": "no"`), false},
		{"llama4, no chunk", as("Llama4ForCausalLM", "llama4_text", `"num_key_value_heads": 2, "attention_chunk_size": null, "layer_types": ["chunked_attention", "full_attention"]`), false},
		{"llama4, layers", as("Llama4ForCausalLM", "llama4_text", `"num_key_value_heads": 2, "layer_types": ["sliding_attention", "full_attention"]`), false},
		{"llama4, few layers", as("Llama4ForCausalLM", "llama4_text", `"num_key_value_heads": 2, "layer_types": ["full_attention"]`), false},
		{"llama4, few positions", as("Llama4ForCausalLM", "llama4_text", `"num_key_value_heads": 2, "no_rope_layers": [1]`), false},
		{"llama4, noise", as("Llama4ForCausalLM", "llama4_text", `"num_key_value_heads": 2, "router_jitter_noise": 0.1`), false},
		{"llama4, chosen", as("Llama4ForCausalLM", "llama4_text", `"num_key_value_heads": 2, "num_experts_per_tok": 17`), false},
		{"qwen2_moe, key heads", as("Qwen2MoeForCausalLM", "qwen2_moe", `"num_experts": 4`), false},
		{"qwen2_moe, window", as("Qwen2MoeForCausalLM", "qwen2_moe", `"num_key_value_heads": 2, "use_sliding_window": true`), false},
		{"qwen2_moe, layers", as("Qwen2MoeForCausalLM", "qwen2_moe", `"num_key_value_heads": 2, "layer_types": ["sliding_attention", "full_attention"]`), false},
		{"qwen2_moe, balance", as("Qwen2MoeForCausalLM", "qwen2_moe", `"num_key_value_heads": 2, "output_router_logits": true`), false},
		{"qwen2_moe, shared", as("Qwen2MoeForCausalLM", "qwen2_moe", `"num_key_value_heads": 2, "shared_expert_intermediate_size": 0`), false},
		{"qwen2_moe, bias", as("Qwen2MoeForCausalLM", "qwen2_moe", `"num_key_value_heads": 2, "attention_bias": true`), false},
		{"olmo3", as("Olmo3ForCausalLM", "olmo3", `"rope_theta": 500000`), true},
		{"olmo3, theta", as("Olmo3ForCausalLM", "olmo3", `"rope_theta": 1e6`), false},
		{"olmo3, theta of layers", as("Olmo3ForCausalLM", "olmo3", `"rope_theta": 1e6, "rope_parameters": {"sliding_attention": {"rope_theta": 1e4}}`), true},
		{"olmo3, theta without windows", as("Olmo3ForCausalLM", "olmo3", `"rope_theta": 1e6, "layer_types": ["full_attention", "full_attention"]`), true},
		{"olmo3, no window", as("Olmo3ForCausalLM", "olmo3", `"sliding_window": null`), false},
		{"olmo3, one rope", as("Olmo3ForCausalLM", "olmo3", `"rope_parameters": {"rope_theta": 5e5}`), false},
		{"olmo3, two ropes", as("Olmo3ForCausalLM", "olmo3", `"rope_parameters": {}, "rope_scaling": {"rope_type": "linear", "factor": 8}`), false},
		{"olmo3, part", as("Olmo3ForCausalLM", "olmo3", `"rope_parameters": {"sliding_attention": {"partial_rotary_factor": 0.5}}`), false},
		{"olmo3, bias", as("Olmo3ForCausalLM", "olmo3", `"mlp_bias": true`), false},
		{"olmoe, clipped", as("OlmoeForCausalLM", "olmoe", `"clip_qkv": 8.0`), false},
		{"olmoe, heads", as("OlmoeForCausalLM", "olmoe", `"head_dim": 8`), false},
		{"olmoe, experts", as("OlmoeForCausalLM", "olmoe", `"num_experts": 4`), false},
		{"glm, no pairs", as("GlmForCausalLM", "glm", `"num_key_value_heads": 2, "head_dim": 6`), false},
		{"glm, bias", as("GlmForCausalLM", "glm", `"num_key_value_heads": 2, "mlp_bias": true`), false},
		{"glm, key heads", as("GlmForCausalLM", "glm", `"head_dim": 8`), false},
		{"glm, rope", as("GlmForCausalLM", "glm", `"num_key_value_heads": 2, "rope_scaling": {"rope_type": "longrope"}`), false},
		{"glm4, dropout", as("Glm4ForCausalLM", "glm4", `"num_key_value_heads": 2, "attention_dropout": 0.1`), false},
		{"glm4_moe", as("Glm4MoeForCausalLM", "glm4_moe", `"num_key_value_heads": 2, "scoring_func": "sigmoid", "topk_method": "noaux_tc"`), true},
		{"glm4_moe, two numbers", as("Glm4MoeForCausalLM", "glm4_moe", `"num_key_value_heads": 2, "n_routed_experts": 8, "num_local_experts": 16`), false},
		{"minimax_m2, two numbers", as("MiniMaxM2ForCausalLM", "minimax_m2", `"num_key_value_heads": 2, "num_experts": 8, "num_local_experts": 16`), false},
		{"olmoe, two numbers", as("OlmoeForCausalLM", "olmoe", `"num_experts": 8, "num_local_experts": 16`), false},
		{"qwen3_moe, two numbers", as("Qwen3MoeForCausalLM", "qwen3_moe", `"num_key_value_heads": 2, "num_experts": 8, "num_local_experts": 16`), false},
		{"glm4_moe, local experts", as("Glm4MoeForCausalLM", "glm4_moe", `"num_key_value_heads": 2, "num_local_experts": 4`), false},
		{"minimax_m2, other experts", as("MiniMaxM2ForCausalLM", "minimax_m2", `"num_key_value_heads": 2, "num_experts": 4`), false},
		{"olmoe, local experts", as("OlmoeForCausalLM", "olmoe", `"num_local_experts": 4`), false},
		{"glm4_moe, scores", as("Glm4MoeForCausalLM", "glm4_moe", `"num_key_value_heads": 2, "scoring_func": "softmax"`), false},
		{"glm4_moe, choice", as("Glm4MoeForCausalLM", "glm4_moe", `"num_key_value_heads": 2, "topk_method": "greedy"`), false},
		{"glm4_moe, groups", as("Glm4MoeForCausalLM", "glm4_moe", `"num_key_value_heads": 2, "n_group": 3`), false},
		{"glm4_moe, few groups", as("Glm4MoeForCausalLM", "glm4_moe", `"num_key_value_heads": 2, "n_group": 64`), false},
		{"glm4_moe, no shared", as("Glm4MoeForCausalLM", "glm4_moe", `"num_key_value_heads": 2, "n_shared_experts": 0`), false},
		{"glm4_moe, scale", as("Glm4MoeForCausalLM", "glm4_moe", `"num_key_value_heads": 2, "routed_scaling_factor": 0`), false},
		{"minimax_m2", as("MiniMaxM2ForCausalLM", "minimax_m2", `"num_key_value_heads": 2, "rotary_dim": 64`), true},
		{"minimax_m2, part", as("MiniMaxM2ForCausalLM", "minimax_m2", `"num_key_value_heads": 2, "rotary_dim": 256`), false},
		{"minimax_m2, norms", as("MiniMaxM2ForCausalLM", "minimax_m2", `"num_key_value_heads": 2, "qk_norm_type": "per_head"`), false},
		{"minimax_m2, no norms", as("MiniMaxM2ForCausalLM", "minimax_m2", `"num_key_value_heads": 2, "use_qk_norm": false`), false},
		{"minimax_m2, no correction", as("MiniMaxM2ForCausalLM", "minimax_m2", `"num_key_value_heads": 2, "use_routing_bias": false`), false},
		{"minimax_m2, shared", as("MiniMaxM2ForCausalLM", "minimax_m2", `"num_key_value_heads": 2, "shared_intermediate_size": 8`), false},
		{"minimax_m2, linear attention", as("MiniMaxM2ForCausalLM", "minimax_m2", `"num_key_value_heads": 2, "attn_type_list": [0, 1]`), false},
		{"seed_oss", as("SeedOssForCausalLM", "seed_oss", `"num_key_value_heads": 2, "head_dim": 4, "attention_dropout": 0, "residual_dropout": 0`), true},
		{"seed_oss, head", as("SeedOssForCausalLM", "seed_oss", `"num_key_value_heads": 2, "attention_dropout": 0, "residual_dropout": 0`), false},
		{"seed_oss, dropout", as("SeedOssForCausalLM", "seed_oss", `"num_key_value_heads": 2, "head_dim": 4, "attention_dropout": 0.1, "residual_dropout": 0`), false},
		{"seed_oss, default dropout", as("SeedOssForCausalLM", "seed_oss", `"num_key_value_heads": 2, "head_dim": 4, "residual_dropout": 0`), false},
		{"seed_oss, residual dropout", as("SeedOssForCausalLM", "seed_oss", `"num_key_value_heads": 2, "head_dim": 4, "attention_dropout": 0`), false},
		{"seed_oss, some residual dropout", as("SeedOssForCausalLM", "seed_oss", `"num_key_value_heads": 2, "head_dim": 4, "attention_dropout": 0, "residual_dropout": 0.1`), false},
		{"qwen2, layers", qwen2 + `, "layer_types": ["sliding_attention"]}`, false},
		{"qwen2, biases", qwen2 + `, "mlp_bias": true}`, false},
		{"qwen2, yarn", qwen2 + `, "rope_scaling": {"type": "yarn", "factor": 4}}`, true},
		{"qwen2, other rope", qwen2 + `, "rope_scaling": {"type": "longrope", "factor": 4}}`, false},
		{"activation", minimal + `, "hidden_act": "gelu"}`, false},
		{"dropout", minimal + `, "attention_dropout": 0.1}`, false},
		{"quantized", minimal + `, "quantization_config": {"bits": 4}}`, false},
		{"partial rope", minimal + `, "partial_rotary_factor": 0.5}`, false},
		{"unknown rope", minimal + `, "rope_scaling": {"rope_type": "proportional"}}`, false},
		{"dynamic without factor", minimal + `, "rope_scaling": {"rope_type": "dynamic"}}`, false},
		{"linear without factor", minimal + `, "rope_scaling": {"type": "linear"}}`, false},
		{"llama3 factors", minimal + `, "rope_scaling": {` + strings.Replace(llama3, `"high_freq_factor": 4`, `"high_freq_factor": 0.5`, 1) + `}}`, false},
		{"llama3, equal factors", minimal + `, "rope_scaling": {` + strings.Replace(llama3, `"high_freq_factor": 4`, `"high_freq_factor": 1`, 1) + `}}`, true},
		{"4 bits", minimal + `, "quantization_config": {"quant_method": "mxfp4"}}`, false},
		{"negative epsilon", minimal + `, "rms_norm_eps": -1}`, false},
		{"eos text", minimal + `, "eos_token_id": "end"}`, false},
	}
	all := `["` + strings.Join(llama.Architectures(), `"] or ["`) + `"]`
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			_, err := llama.ParseConfig([]byte(test.text))
			if test.ok {
				if err != nil {
					t.Error(err)
				}
				return
			}
			if !errors.Is(err, hfconfig.ErrInvalid) {
				t.Errorf("error %v, want ErrInvalid", err)
			}
			golden.Message(t, test.name, err, all, "ARCHITECTURES")
		})
	}
}

func TestTokenIDs(t *testing.T) {
	c, err := llama.ParseConfig([]byte(minimal + `, "eos_token_id": [1, 2], "bos_token_id": 7}`))
	if err != nil || !slices.Equal(c.EOS, llama.TokenIDs{1, 2}) || !slices.Equal(c.BOS, llama.TokenIDs{7}) {
		t.Errorf("eos %v, bos %v, error %v", c.EOS, c.BOS, err)
	}
}

func FuzzParseConfig(f *testing.F) {
	f.Add([]byte(minimal + `}`))
	for _, name := range []string{"llama3", "linear", "tied", "biases", "mistral", "qwen2", "qwen3_moe", "mixtral", "gemma2", "gemma3", "smollm3", "phi3", "phi3_longrope", "granite",
		"gpt_oss", "gemma", "llama4", "llama4_mixed",
		"qwen2_moe", "olmo3_ropes", "olmoe_published", "glm_parameters", "glm4_published", "glm4_moe", "minimax_m2_published", "seed_oss_odd"} {
		text, err := os.ReadFile("testdata/" + name + "/config.json")
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	fuzztest.Run(f, func(t *testing.T, text []byte) {
		c, err := llama.ParseConfig(text)
		if err != nil {
			return
		}
		if n := llama.NumParameters(limitLayers(c)); n <= 0 {
			t.Errorf("%d parameters in %+v", n, c)
		}
		if c.NumAttentionHeads%c.NumKeyValueHeads != 0 || c.HeadDim%2 != 0 || c.HeadDim < 2 || c.Turning%2 != 0 || c.Turning > c.HeadDim {
			t.Errorf("heads do not fit in %+v", c)
		}
	})
}

// limitLayers keeps the fuzzer from counting thousands of equal layers.
func limitLayers(c llama.Config) llama.Config {
	c.NumHiddenLayers = min(c.NumHiddenLayers, 4)
	return c
}
