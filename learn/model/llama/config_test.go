package llama_test

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/psyche-go/psyche/base/fuzztest"
	"github.com/psyche-go/psyche/learn/model/llama"
)

const minimal = `{"architectures": ["LlamaForCausalLM"], "vocab_size": 32, "hidden_size": 16,
	"intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 4`

// Two architectures that differ little.
var (
	mistral = strings.Replace(minimal, "LlamaForCausalLM", "MistralForCausalLM", 1) + `, "model_type": "mistral", "num_key_value_heads": 2`
	qwen2   = strings.Replace(minimal, "LlamaForCausalLM", "Qwen2ForCausalLM", 1) + `, "model_type": "qwen2", "num_key_value_heads": 2`
)

// as is minimal of another architecture.
func as(architecture, modelType, more string) string {
	return strings.Replace(minimal, "LlamaForCausalLM", architecture, 1) + `, "model_type": "` + modelType + `", ` + more + `}`
}

// TestVariants wants the defaults of transformers and the parameters that each has.
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

// TestPublishedSizes counts the parameters of published models, as their pages do.
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
		want       string // part of the error; "" is success
	}{
		{"llama3", minimal + `, "rope_scaling": {` + llama3 + `}}`, ""},
		{"transformers 5", minimal + `, "rope_parameters": {"rope_theta": 5e5, ` + llama3 + `}}`, ""},
		{"default rope", minimal + `, "rope_scaling": {"rope_type": "default"}}`, ""},
		{"head_dim of its own", minimal + `, "head_dim": 6}`, ""},
		{"eos list", minimal + `, "eos_token_id": [1, 2], "bos_token_id": null}`, ""},
		{"no json", `{`, "unexpected end"},
		{"not an object", `[]`, "want a JSON object, not array"},
		{"size is text", strings.Replace(minimal, `"hidden_size": 16`, `"hidden_size": "16"`, 1) + `}`, "config.json: hidden_size: want an integer, not string"},
		{"fraction of a size", strings.Replace(minimal, `"hidden_size": 16`, `"hidden_size": 1.5`, 1) + `}`, "hidden_size: want an integer, not number 1.5"},
		{"nested number", minimal + `, "rope_scaling": {"factor": "8"}}`, "rope_scaling.factor: want a number, not string"},
		{"flag is text", minimal + `, "tie_word_embeddings": "yes"}`, "tie_word_embeddings: want true or false, not string"},
		{"list is text", `{"architectures": "LlamaForCausalLM"}`, "architectures: want a list, not string"},
		{"object is text", minimal + `, "rope_scaling": "linear"}`, "rope_scaling: want an object, not string"},
		{"text is a number", minimal + `, "hidden_act": 3}`, "hidden_act: want a string, not number"},
		{"no architecture", `{}`, "architectures"},
		{"other architecture", `{"architectures": ["GPT2LMHeadModel"]}`, "architectures"},
		{"other model type", minimal + `, "model_type": "mistral"}`, "model_type"},
		{"missing size", strings.Replace(minimal, `"hidden_size": 16,`, "", 1) + `}`, "hidden_size is missing"},
		{"zero size", strings.Replace(minimal, `"vocab_size": 32`, `"vocab_size": 0`, 1) + `}`, "vocab_size is 0"},
		{"huge size", strings.Replace(minimal, `"vocab_size": 32`, `"vocab_size": 99999999999`, 1) + `}`, "vocab_size is 99999999999"},
		{"fraction", strings.Replace(minimal, `"vocab_size": 32`, `"vocab_size": 1.5`, 1) + `}`, "vocab_size"},
		{"indivisible", strings.Replace(minimal, `"num_attention_heads": 4`, `"num_attention_heads": 3`, 1) + `}`, "num_attention_heads 3"},
		{"key heads", minimal + `, "num_key_value_heads": 3}`, "num_key_value_heads 3"},
		{"too many key heads", minimal + `, "num_key_value_heads": 8}`, "num_key_value_heads is 8"},
		{"odd head", minimal + `, "head_dim": 5}`, "head_dim 5"},
		{"attention bias", minimal + `, "attention_bias": true}`, ""},
		{"mlp bias", minimal + `, "mlp_bias": true}`, ""},
		{"layers of two kinds", minimal + `, "layer_types": ["full_attention", "sliding_attention"]}`, `layer_types has "sliding_attention"`},
		{"layers of one kind", minimal + `, "layer_types": ["full_attention", "full_attention"]}`, ""},
		{"mistral", mistral + `, "sliding_window": null}`, ""},
		{"mistral, wide enough", mistral + `, "sliding_window": 4096, "max_position_embeddings": 4096}`, ""},
		{"mistral, window", mistral + `, "sliding_window": 4096, "max_position_embeddings": 32768}`, ""},
		{"mistral, window by default", mistral + `}`, ""},
		{"mistral, no window", mistral + `, "sliding_window": "wide"}`, "sliding_window: want an integer or null"},
		{"mistral, zero window", mistral + `, "sliding_window": 0}`, "sliding_window is 0, want at least 1"},
		{"mistral, biases", mistral + `, "sliding_window": null, "attention_bias": true}`, "attention_bias true is not supported"},
		{"mistral, key heads", strings.Replace(mistral, `"num_key_value_heads": 2`, `"num_key_value_heads": null`, 1) + `, "sliding_window": null}`, "num_key_value_heads is missing"},
		{"qwen2", qwen2 + `, "sliding_window": 32, "use_sliding_window": false, "max_window_layers": 1}`, ""},
		{"qwen2, window", qwen2 + `, "use_sliding_window": true, "max_window_layers": 1}`, ""},
		{"qwen2, layers without a window", qwen2 + `, "use_sliding_window": true, "sliding_window": null, "layer_types": ["sliding_attention", "full_attention"]}`, "there is no sliding_window"},
		{"qwen2, too few layers", qwen2 + `, "use_sliding_window": true, "layer_types": ["sliding_attention"]}`, "layer_types has 1 entries for num_hidden_layers 2"},
		{"qwen2, other layers", qwen2 + `, "use_sliding_window": true, "layer_types": ["chunked_attention", "full_attention"]}`, `layer_types has "chunked_attention"`},
		{"qwen3, key heads", as("Qwen3ForCausalLM", "qwen3", `"head_dim": 4`), "num_key_value_heads is missing"},
		{"qwen3, bias", as("Qwen3ForCausalLM", "qwen3", `"num_key_value_heads": 2, "mlp_bias": true`), "mlp_bias true is not supported"},
		{"qwen3, layers", as("Qwen3ForCausalLM", "qwen3", `"num_key_value_heads": 2, "layer_types": ["sliding_attention", "full_attention"]`), "only full_attention is computed"},
		{"qwen3_moe", as("Qwen3MoeForCausalLM", "qwen3_moe", `"num_key_value_heads": 2, "router_aux_loss_coef": 0.001`), ""},
		{"qwen3_moe, window", as("Qwen3MoeForCausalLM", "qwen3_moe", `"num_key_value_heads": 2, "use_sliding_window": true`), "use_sliding_window true is not supported"},
		{"qwen3_moe, balance", as("Qwen3MoeForCausalLM", "qwen3_moe", `"num_key_value_heads": 2, "output_router_logits": true`), "output_router_logits true is not supported"},
		{"qwen3_moe, chosen", as("Qwen3MoeForCausalLM", "qwen3_moe", `"num_key_value_heads": 2, "num_experts": 4`), "num_experts_per_tok 8 is more than num_experts 4"},
		{"qwen3_moe, experts", as("Qwen3MoeForCausalLM", "qwen3_moe", `"num_key_value_heads": 2, "num_experts": 0`), "num_experts is 0"},
		{"mixtral", as("MixtralForCausalLM", "mixtral", `"num_key_value_heads": 2`), ""},
		{"mixtral, noise", as("MixtralForCausalLM", "mixtral", `"num_key_value_heads": 2, "router_jitter_noise": 0.1`), "router_jitter_noise 0.1 is not supported"},
		{"olmo2", as("Olmo2ForCausalLM", "olmo2", `"attention_bias": true`), ""},
		{"olmo2, bias", as("Olmo2ForCausalLM", "olmo2", `"mlp_bias": true`), "mlp_bias true is not supported"},
		{"gemma2", as("Gemma2ForCausalLM", "gemma2", `"num_key_value_heads": 2, "hidden_act": "gelu_pytorch_tanh"`), ""},
		{"gemma2, activation", as("Gemma2ForCausalLM", "gemma2", `"num_key_value_heads": 2, "hidden_activation": "gelu"`), "hidden_activation gelu is not supported"},
		{"gemma2, other activation", as("Gemma2ForCausalLM", "gemma2", `"num_key_value_heads": 2, "hidden_act": "silu"`), "hidden_act silu is not supported"},
		{"gemma2, cap", as("Gemma2ForCausalLM", "gemma2", `"num_key_value_heads": 2, "final_logit_softcapping": 0`), "final_logit_softcapping is 0"},
		{"gemma2, cap is text", as("Gemma2ForCausalLM", "gemma2", `"num_key_value_heads": 2, "final_logit_softcapping": "no"`), "softcapping: want a number or null"},
		{"gemma3, both ways", as("Gemma3ForCausalLM", "gemma3_text", `"num_key_value_heads": 2, "use_bidirectional_attention": true`), "use_bidirectional_attention true is not supported"},
		{"gemma3, scores", as("Gemma3ForCausalLM", "gemma3_text", `"num_key_value_heads": 2, "attn_logit_softcapping": 50`), "attn_logit_softcapping 50 is not supported"},
		{"gemma3, two ropes", as("Gemma3ForCausalLM", "gemma3_text", `"num_key_value_heads": 2, "rope_parameters": {}, "rope_scaling": {"rope_type": "linear", "factor": 8}`), "rope_parameters and rope_scaling are both set"},
		{"gemma3, one rope", as("Gemma3ForCausalLM", "gemma3_text", `"num_key_value_heads": 2, "rope_parameters": {"rope_theta": 5e5}`), "rope_parameters apply to all layers"},
		{"two kinds of ropes", minimal + `, "rope_parameters": {"full_attention": {"rope_theta": 5e5}}}`, "rope_parameters for each kind of layers"},
		{"gemma3, local rope", as("Gemma3ForCausalLM", "gemma3_text", `"num_key_value_heads": 2, "rope_parameters": {"sliding_attention": {"rope_type": "longrope"}}`), `rope_type "longrope" is not supported`},
		{"smollm3", as("SmolLM3ForCausalLM", "smollm3", `"num_key_value_heads": 2, "no_rope_layers": [1, 0]`), ""},
		{"smollm3, layers", as("SmolLM3ForCausalLM", "smollm3", `"num_key_value_heads": 2, "no_rope_layers": [1]`), "no_rope_layers has 1 entries for num_hidden_layers 2"},
		{"phi3, dropout", as("Phi3ForCausalLM", "phi3", `"resid_pdrop": 0.1`), "resid_pdrop 0.1 is not supported"},
		{"phi3, embedding dropout", as("Phi3ForCausalLM", "phi3", `"embd_pdrop": 0.1`), "embd_pdrop 0.1 is not supported"},
		{"phi3, rope", as("Phi3ForCausalLM", "phi3", `"rope_scaling": {"type": "linear", "factor": 2}`), `rope_type "linear" is not supported`},
		{"phi3, no factors", as("Phi3ForCausalLM", "phi3", `"rope_scaling": {"type": "longrope"}`), `rope_scaling.short_factor has 0 numbers, want 2`},
		{"phi3, few factors", as("Phi3ForCausalLM", "phi3", `"rope_scaling": {"type": "su", "short_factor": [1, 1], "long_factor": [1]}`), `rope_scaling.long_factor has 1 numbers, want 2`},
		{"phi3, a factor of 0", as("Phi3ForCausalLM", "phi3", `"rope_scaling": {"type": "su", "short_factor": [1, 0], "long_factor": []}`), `rope_scaling.short_factor has 0, want more than 0`},
		{"phi3, two contexts", as("Phi3ForCausalLM", "phi3", `"original_max_position_embeddings": 64, "rope_parameters": {"rope_type": "longrope", "original_max_position_embeddings": 32}`), `rope_parameters.original_max_position_embeddings is 32`},
		{"phi3, part", as("Phi3ForCausalLM", "phi3", `"partial_rotary_factor": 0.5`), ""},
		{"phi3, no pairs", as("Phi3ForCausalLM", "phi3", `"partial_rotary_factor": 0.75`), "partial_rotary_factor: 3 of the 4 elements of a head (head_dim) turn"},
		{"phi3, more than all", as("Phi3ForCausalLM", "phi3", `"rope_parameters": {"partial_rotary_factor": 1.5}`), "rope_parameters.partial_rotary_factor is 1.5, want 0 to 1"},
		{"granite, no logits", as("GraniteForCausalLM", "granite", `"logits_scaling": 0`), "logits_scaling is 0"},
		{"gpt_oss", as("GptOssForCausalLM", "gpt_oss", `"num_key_value_heads": 2, "layer_types": null`), ""},
		{"gpt_oss, key heads", as("GptOssForCausalLM", "gpt_oss", `"num_key_value_heads": null`), "num_key_value_heads is missing"},
		{"gpt_oss, two numbers", as("GptOssForCausalLM", "gpt_oss", `"num_key_value_heads": 2, "num_experts": 8, "num_local_experts": 4`), "num_local_experts is 4 and num_experts 8"},
		{"gpt_oss, same number", as("GptOssForCausalLM", "gpt_oss", `"num_key_value_heads": 2, "num_experts": 8, "num_local_experts": 8`), ""},
		{"gpt_oss, chosen", as("GptOssForCausalLM", "gpt_oss", `"num_key_value_heads": 2, "num_experts": 3`), "num_experts_per_tok 4 is more than num_local_experts 3"},
		{"gpt_oss, balance", as("GptOssForCausalLM", "gpt_oss", `"num_key_value_heads": 2, "output_router_logits": true`), "output_router_logits true is not supported"},
		{"gpt_oss, no window", as("GptOssForCausalLM", "gpt_oss", `"num_key_value_heads": 2, "sliding_window": null`), "there is no sliding_window"},
		{"gpt_oss, layers", as("GptOssForCausalLM", "gpt_oss", `"num_key_value_heads": 2, "layer_types": ["full_attention", "linear_attention"]`), `layer_types has "linear_attention"`},
		{"gpt_oss, limit", as("GptOssForCausalLM", "gpt_oss", `"num_key_value_heads": 2, "swiglu_limit": 0`), "swiglu_limit is 0"},
		{"gpt_oss, alpha", as("GptOssForCausalLM", "gpt_oss", `"num_key_value_heads": 2, "swiglu_alpha": -1`), "swiglu_alpha is -1"},
		{"gpt_oss, bias", as("GptOssForCausalLM", "gpt_oss", `"num_key_value_heads": 2, "mlp_bias": true`), "mlp_bias true is not supported"},
		{"gpt_oss, activation", as("GptOssForCausalLM", "gpt_oss", `"num_key_value_heads": 2, "hidden_act": "gelu"`), "hidden_act gelu is not supported"},
		{"gpt_oss, rope", as("GptOssForCausalLM", "gpt_oss", `"num_key_value_heads": 2, "rope_scaling": {"rope_type": "longrope"}`), `rope_type "longrope" is not supported`},
		{"gemma, old name", as("GemmaForCausalLM", "gemma", `"num_key_value_heads": 1, "hidden_act": "gelu", "hidden_activation": null`), ""},
		{"gemma, activation", as("GemmaForCausalLM", "gemma", `"num_key_value_heads": 1, "hidden_act": "relu"`), "hidden_act relu is not supported"},
		{"gemma, other activation", as("GemmaForCausalLM", "gemma", `"num_key_value_heads": 1, "hidden_activation": "gelu"`), "hidden_activation gelu is not supported"},
		{"gemma, both ways", as("GemmaForCausalLM", "gemma", `"num_key_value_heads": 1, "use_bidirectional_attention": true`), "use_bidirectional_attention true is not supported"},
		{"gemma, bias", as("GemmaForCausalLM", "gemma", `"num_key_value_heads": 1, "mlp_bias": true`), "mlp_bias true is not supported"},
		{"gemma, layers", as("GemmaForCausalLM", "gemma", `"num_key_value_heads": 1, "layer_types": ["sliding_attention", "full_attention"]`), "only full_attention is computed"},
		{"llama4", as("Llama4ForCausalLM", "llama4_text", `"num_key_value_heads": 2, "attn_temperature_tuning": 4, "attention_chunk_size": null`), ""},
		{"llama4, whole", as("Llama4ForCausalLM", "llama4", `"num_key_value_heads": 2`), `model_type is "llama4", want "llama4_text"`},
		{"llama4, temperature", as("Llama4ForCausalLM", "llama4_text", `"num_key_value_heads": 2, "attn_temperature_tuning": "warm"`), "attn_temperature_tuning: want true or false"},
		{"llama4, floor", as("Llama4ForCausalLM", "llama4_text", `"num_key_value_heads": 2, "floor_scale": 0`), "floor_scale is 0"},
		{"llama4, chunk", as("Llama4ForCausalLM", "llama4_text", `"num_key_value_heads": 2, "attention_chunk_size": 0`), "attention_chunk_size is 0, want at least 1"},
		{"llama4, huge chunk", as("Llama4ForCausalLM", "llama4_text", `"num_key_value_heads": 2, "attention_chunk_size": 9000000000000000000`), "attention_chunk_size is 9000000000000000000"},
		{"llama4, chunk is text", as("Llama4ForCausalLM", "llama4_text", `"num_key_value_heads": 2, "attention_chunk_size": "no"`), "attention_chunk_size: want an integer or null"},
		{"llama4, no chunk", as("Llama4ForCausalLM", "llama4_text", `"num_key_value_heads": 2, "attention_chunk_size": null, "layer_types": ["chunked_attention", "full_attention"]`), "there is no attention_chunk_size"},
		{"llama4, layers", as("Llama4ForCausalLM", "llama4_text", `"num_key_value_heads": 2, "layer_types": ["sliding_attention", "full_attention"]`), `layer_types has "sliding_attention"`},
		{"llama4, few layers", as("Llama4ForCausalLM", "llama4_text", `"num_key_value_heads": 2, "layer_types": ["full_attention"]`), "layer_types has 1 entries"},
		{"llama4, few positions", as("Llama4ForCausalLM", "llama4_text", `"num_key_value_heads": 2, "no_rope_layers": [1]`), "no_rope_layers has 1 entries"},
		{"llama4, noise", as("Llama4ForCausalLM", "llama4_text", `"num_key_value_heads": 2, "router_jitter_noise": 0.1`), "router_jitter_noise 0.1 is not supported"},
		{"llama4, chosen", as("Llama4ForCausalLM", "llama4_text", `"num_key_value_heads": 2, "num_experts_per_tok": 17`), "num_experts_per_tok 17 is more than num_local_experts 16"},
		{"qwen2_moe, key heads", as("Qwen2MoeForCausalLM", "qwen2_moe", `"num_experts": 4`), "num_key_value_heads is missing"},
		{"qwen2_moe, window", as("Qwen2MoeForCausalLM", "qwen2_moe", `"num_key_value_heads": 2, "use_sliding_window": true`), "use_sliding_window true is not supported"},
		{"qwen2_moe, layers", as("Qwen2MoeForCausalLM", "qwen2_moe", `"num_key_value_heads": 2, "layer_types": ["sliding_attention", "full_attention"]`), "only full_attention is computed"},
		{"qwen2_moe, balance", as("Qwen2MoeForCausalLM", "qwen2_moe", `"num_key_value_heads": 2, "output_router_logits": true`), "output_router_logits true is not supported"},
		{"qwen2_moe, shared", as("Qwen2MoeForCausalLM", "qwen2_moe", `"num_key_value_heads": 2, "shared_expert_intermediate_size": 0`), "shared_expert_intermediate_size is 0"},
		{"qwen2_moe, bias", as("Qwen2MoeForCausalLM", "qwen2_moe", `"num_key_value_heads": 2, "attention_bias": true`), "attention_bias true is not supported"},
		{"olmo3", as("Olmo3ForCausalLM", "olmo3", `"rope_theta": 500000`), ""},
		{"olmo3, theta", as("Olmo3ForCausalLM", "olmo3", `"rope_theta": 1e6`), "rope_theta 1e+06 turns layers with windows otherwise"},
		{"olmo3, theta of layers", as("Olmo3ForCausalLM", "olmo3", `"rope_theta": 1e6, "rope_parameters": {"sliding_attention": {"rope_theta": 1e4}}`), ""},
		{"olmo3, theta without windows", as("Olmo3ForCausalLM", "olmo3", `"rope_theta": 1e6, "layer_types": ["full_attention", "full_attention"]`), ""},
		{"olmo3, no window", as("Olmo3ForCausalLM", "olmo3", `"sliding_window": null`), "there is no sliding_window"},
		{"olmo3, one rope", as("Olmo3ForCausalLM", "olmo3", `"rope_parameters": {"rope_theta": 5e5}`), "rope_parameters apply to all layers"},
		{"olmo3, two ropes", as("Olmo3ForCausalLM", "olmo3", `"rope_parameters": {}, "rope_scaling": {"rope_type": "linear", "factor": 8}`), "rope_parameters and rope_scaling are both set"},
		{"olmo3, part", as("Olmo3ForCausalLM", "olmo3", `"rope_parameters": {"sliding_attention": {"partial_rotary_factor": 0.5}}`), "rope_parameters.partial_rotary_factor 0.5 is not supported"},
		{"olmo3, bias", as("Olmo3ForCausalLM", "olmo3", `"mlp_bias": true`), "mlp_bias true is not supported"},
		{"olmoe, clipped", as("OlmoeForCausalLM", "olmoe", `"clip_qkv": 8.0`), "clip_qkv 8 is not supported"},
		{"olmoe, heads", as("OlmoeForCausalLM", "olmoe", `"head_dim": 8`), "head_dim 8 times num_attention_heads 4 is not hidden_size 16"},
		{"olmoe, experts", as("OlmoeForCausalLM", "olmoe", `"num_experts": 4`), "num_experts_per_tok 8 is more than num_experts 4"},
		{"glm, no pairs", as("GlmForCausalLM", "glm", `"num_key_value_heads": 2, "head_dim": 6`), "partial_rotary_factor: 3 of the 6 elements of a head (head_dim) turn"},
		{"glm, bias", as("GlmForCausalLM", "glm", `"num_key_value_heads": 2, "mlp_bias": true`), "mlp_bias true is not supported"},
		{"glm, key heads", as("GlmForCausalLM", "glm", `"head_dim": 8`), "num_key_value_heads is missing"},
		{"glm, rope", as("GlmForCausalLM", "glm", `"num_key_value_heads": 2, "rope_scaling": {"rope_type": "longrope"}`), `rope_type "longrope" is not supported`},
		{"glm4, dropout", as("Glm4ForCausalLM", "glm4", `"num_key_value_heads": 2, "attention_dropout": 0.1`), "attention_dropout 0.1 is not supported"},
		{"glm4_moe", as("Glm4MoeForCausalLM", "glm4_moe", `"num_key_value_heads": 2, "scoring_func": "sigmoid", "topk_method": "noaux_tc"`), ""},
		{"glm4_moe, two numbers", as("Glm4MoeForCausalLM", "glm4_moe", `"num_key_value_heads": 2, "n_routed_experts": 8, "num_local_experts": 16`), "n_routed_experts is 8 and num_local_experts 16"},
		{"minimax_m2, two numbers", as("MiniMaxM2ForCausalLM", "minimax_m2", `"num_key_value_heads": 2, "num_experts": 8, "num_local_experts": 16`), "num_local_experts is 16 and num_experts 8"},
		{"olmoe, two numbers", as("OlmoeForCausalLM", "olmoe", `"num_experts": 8, "num_local_experts": 16`), "num_experts is 8 and num_local_experts 16"},
		{"qwen3_moe, two numbers", as("Qwen3MoeForCausalLM", "qwen3_moe", `"num_key_value_heads": 2, "num_experts": 8, "num_local_experts": 16`), "num_experts is 8 and num_local_experts 16"},
		{"glm4_moe, local experts", as("Glm4MoeForCausalLM", "glm4_moe", `"num_key_value_heads": 2, "num_local_experts": 4`), "num_experts_per_tok 8 is more than n_routed_experts 4"},
		{"minimax_m2, other experts", as("MiniMaxM2ForCausalLM", "minimax_m2", `"num_key_value_heads": 2, "num_experts": 4`), "num_experts_per_tok 8 is more than num_local_experts 4"},
		{"olmoe, local experts", as("OlmoeForCausalLM", "olmoe", `"num_local_experts": 4`), "num_experts_per_tok 8 is more than num_experts 4"},
		{"glm4_moe, scores", as("Glm4MoeForCausalLM", "glm4_moe", `"num_key_value_heads": 2, "scoring_func": "softmax"`), "scoring_func softmax is not supported"},
		{"glm4_moe, choice", as("Glm4MoeForCausalLM", "glm4_moe", `"num_key_value_heads": 2, "topk_method": "greedy"`), "topk_method greedy is not supported"},
		{"glm4_moe, groups", as("Glm4MoeForCausalLM", "glm4_moe", `"num_key_value_heads": 2, "n_group": 3`), "n_routed_experts 128 is not a multiple of n_group 3"},
		{"glm4_moe, few groups", as("Glm4MoeForCausalLM", "glm4_moe", `"num_key_value_heads": 2, "n_group": 64`), "num_experts_per_tok 8 is more than the 2 experts of topk_group 1 groups"},
		{"glm4_moe, no shared", as("Glm4MoeForCausalLM", "glm4_moe", `"num_key_value_heads": 2, "n_shared_experts": 0`), "n_shared_experts is 0"},
		{"glm4_moe, scale", as("Glm4MoeForCausalLM", "glm4_moe", `"num_key_value_heads": 2, "routed_scaling_factor": 0`), "routed_scaling_factor is 0"},
		{"minimax_m2", as("MiniMaxM2ForCausalLM", "minimax_m2", `"num_key_value_heads": 2, "rotary_dim": 64`), ""},
		{"minimax_m2, part", as("MiniMaxM2ForCausalLM", "minimax_m2", `"num_key_value_heads": 2, "rotary_dim": 256`), "rotary_dim is 256, want 1 to 128"},
		{"minimax_m2, norms", as("MiniMaxM2ForCausalLM", "minimax_m2", `"num_key_value_heads": 2, "qk_norm_type": "per_head"`), "qk_norm_type per_head is not supported"},
		{"minimax_m2, no norms", as("MiniMaxM2ForCausalLM", "minimax_m2", `"num_key_value_heads": 2, "use_qk_norm": false`), "use_qk_norm false is not supported"},
		{"minimax_m2, no correction", as("MiniMaxM2ForCausalLM", "minimax_m2", `"num_key_value_heads": 2, "use_routing_bias": false`), "use_routing_bias false is not supported"},
		{"minimax_m2, shared", as("MiniMaxM2ForCausalLM", "minimax_m2", `"num_key_value_heads": 2, "shared_intermediate_size": 8`), "shared_intermediate_size 8 is not supported"},
		{"minimax_m2, linear attention", as("MiniMaxM2ForCausalLM", "minimax_m2", `"num_key_value_heads": 2, "attn_type_list": [0, 1]`), "attn_type_list [0 1] is not supported"},
		{"seed_oss", as("SeedOssForCausalLM", "seed_oss", `"num_key_value_heads": 2, "head_dim": 4, "attention_dropout": 0, "residual_dropout": 0`), ""},
		{"seed_oss, head", as("SeedOssForCausalLM", "seed_oss", `"num_key_value_heads": 2, "attention_dropout": 0, "residual_dropout": 0`), "head_dim is missing"},
		{"seed_oss, dropout", as("SeedOssForCausalLM", "seed_oss", `"num_key_value_heads": 2, "head_dim": 4, "attention_dropout": 0.1, "residual_dropout": 0`), "attention_dropout 0.1 is not supported"},
		{"seed_oss, default dropout", as("SeedOssForCausalLM", "seed_oss", `"num_key_value_heads": 2, "head_dim": 4, "residual_dropout": 0`), "attention_dropout is missing, which is 0.1"},
		{"seed_oss, residual dropout", as("SeedOssForCausalLM", "seed_oss", `"num_key_value_heads": 2, "head_dim": 4, "attention_dropout": 0`), "residual_dropout is missing, which is 0.1"},
		{"seed_oss, some residual dropout", as("SeedOssForCausalLM", "seed_oss", `"num_key_value_heads": 2, "head_dim": 4, "attention_dropout": 0, "residual_dropout": 0.1`), "residual_dropout 0.1 is not supported"},
		{"qwen2, layers", qwen2 + `, "layer_types": ["sliding_attention"]}`, `layer_types has "sliding_attention"`},
		{"qwen2, biases", qwen2 + `, "mlp_bias": true}`, "mlp_bias true is not supported"},
		{"qwen2, yarn", qwen2 + `, "rope_scaling": {"type": "yarn", "factor": 4}}`, ""},
		{"qwen2, other rope", qwen2 + `, "rope_scaling": {"type": "longrope", "factor": 4}}`, `rope_type "longrope" is not supported`},
		{"activation", minimal + `, "hidden_act": "gelu"}`, "hidden_act"},
		{"dropout", minimal + `, "attention_dropout": 0.1}`, "attention_dropout"},
		{"quantized", minimal + `, "quantization_config": {"bits": 4}}`, "quantization_config"},
		{"partial rope", minimal + `, "partial_rotary_factor": 0.5}`, "partial_rotary_factor"},
		{"unknown rope", minimal + `, "rope_scaling": {"rope_type": "proportional"}}`, `rope_scaling.rope_type "proportional"`},
		{"dynamic without factor", minimal + `, "rope_scaling": {"rope_type": "dynamic"}}`, "rope_scaling.factor is missing"},
		{"linear without factor", minimal + `, "rope_scaling": {"type": "linear"}}`, "rope_scaling.factor is missing"},
		{"llama3 factors", minimal + `, "rope_scaling": {` + strings.Replace(llama3, `"high_freq_factor": 4`, `"high_freq_factor": 0.5`, 1) + `}}`, "high_freq_factor 0.5"},
		{"llama3, equal factors", minimal + `, "rope_scaling": {` + strings.Replace(llama3, `"high_freq_factor": 4`, `"high_freq_factor": 1`, 1) + `}}`, ""},
		{"4 bits", minimal + `, "quantization_config": {"quant_method": "mxfp4"}}`, "quantization_config.quant_method mxfp4 is not supported: dequantize"},
		{"negative epsilon", minimal + `, "rms_norm_eps": -1}`, "rms_norm_eps is -1"},
		{"eos text", minimal + `, "eos_token_id": "end"}`, "token id"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			_, err := llama.ParseConfig([]byte(test.text))
			switch {
			case test.want == "" && err != nil:
				t.Error(err)
			case test.want != "" && (!errors.Is(err, llama.ErrConfig) || !strings.Contains(err.Error(), test.want)):
				t.Errorf("error %v, want one with %q", err, test.want)
			}
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
