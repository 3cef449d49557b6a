package deepseek_test

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/psyche-go/psyche/base/fuzztest"
	"github.com/psyche-go/psyche/base/golden"
	"github.com/psyche-go/psyche/learn/model/deepseek"
	"github.com/psyche-go/psyche/learn/model/hfconfig"
)

const sizes = `"vocab_size": 32, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2,
	"num_attention_heads": 4, "kv_lora_rank": 8, "qk_nope_head_dim": 4, "qk_rope_head_dim": 4, "v_head_dim": 4`

const (
	v2 = `{"architectures": ["DeepseekV2ForCausalLM"], ` + sizes
	v3 = `{"architectures": ["DeepseekV3ForCausalLM"], ` + sizes
)

const moe = `, "n_routed_experts": 8, "moe_intermediate_size": 6, "num_experts_per_tok": 2`

func TestParseConfigDefaults(t *testing.T) {
	c, err := deepseek.ParseConfig([]byte(v3 + moe + `, "n_group": 4, "topk_group": 2, "unheard_of": [1]}`))
	if err != nil {
		t.Fatal(err)
	}
	e := c.Experts
	if c.FirstDense != 3 || c.LayerFreq != 1 || e.Shared != 1 || !e.Normalize || e.Scale != 2.5 || e.BalanceLoss != 0 ||
		c.QLoraRank != 0 || !c.Rope.Interleaved || c.Rope.Theta != 10000 || c.RMSNormEps != 1e-6 {
		t.Errorf("defaults differ from transformers: %+v", c)
	}
	// Both layers are dense: first_k_dense_replace is 3.
	layer := 3*16*24 + 2*16 + (8+4)*16 + 8 + 4*8*8 + 16*4*4 + 4*8*16
	if got, want := deepseek.NumParameters(c), int64(2*32*16+16+2*layer); got != want {
		t.Errorf("%d parameters, want %d", got, want)
	}
}

func TestParseConfig(t *testing.T) {
	yarn := func(more string) string {
		return v2 + `, "max_position_embeddings": 160, "rope_scaling": {"type": "yarn", "factor": 4` + more + `}}`
	}
	tests := []struct {
		name, text string
		ok         bool
	}{
		{"dense", v2 + `}`, true},
		{"experts", v2 + moe + `}`, true},
		{"lite", v2 + moe + `, "q_lora_rank": null, "topk_method": "greedy", "scoring_func": "softmax", "n_group": 1, "topk_group": 1}`, true},
		{"groups of greedy do not matter", v2 + moe + `, "n_group": 3, "topk_group": 5}`, true},
		{"yarn", yarn(`, "original_max_position_embeddings": 40, "mscale": 1, "mscale_all_dim": 1`), true},
		{"transformers 5", v2 + `, "rope_parameters": {"rope_type": "yarn", "rope_theta": 5e5, "factor": 4, "original_max_position_embeddings": 512}}`, true},
		{"no json", `{`, false},
		{"no architecture", `{}`, false},
		{"llama", `{"architectures": ["LlamaForCausalLM"]}`, false},
		{"other model type", v2 + `, "model_type": "deepseek_v3"}`, false},
		{"Kimi K2", v3 + moe + `, "n_group": 1, "topk_group": 1, "model_type": "kimi_k2"}`, true},
		{"Kimi K2 as V2", v2 + `, "model_type": "kimi_k2"}`, false},
		{"V3's model type", v3 + `, "model_type": "kimi_k25"}`, false},
		{"missing size", strings.Replace(v2, `"kv_lora_rank": 8,`, "", 1) + `}`, false},
		{"zero size", strings.Replace(v2, `"vocab_size": 32`, `"vocab_size": 0`, 1) + `}`, false},
		{"huge size", strings.Replace(v2, `"vocab_size": 32`, `"vocab_size": 99999999999`, 1) + `}`, false},
		{"negative queries", v2 + `, "q_lora_rank": -1}`, false},
		{"odd rope", strings.Replace(v2, `"qk_rope_head_dim": 4`, `"qk_rope_head_dim": 5`, 1) + `}`, false},
		{"grouped keys", v2 + `, "num_key_value_heads": 2}`, false},
		{"experts without a size", v2 + `, "n_routed_experts": 8, "num_experts_per_tok": 2}`, false},
		{"experts without a choice", v2 + `, "n_routed_experts": 8, "moe_intermediate_size": 6}`, false},
		{"too many chosen", v2 + `, "n_routed_experts": 8, "moe_intermediate_size": 6, "num_experts_per_tok": 9}`, false},
		{"too many experts", strings.Replace(v2, `"num_hidden_layers": 2`, `"num_hidden_layers": 4096`, 1) +
			`, "n_routed_experts": 128, "moe_intermediate_size": 6, "num_experts_per_tok": 2}`, false},
		{"unequal groups", v3 + moe + `, "n_group": 3, "topk_group": 1}`, false},
		{"more groups than there are", v3 + moe + `, "n_group": 2, "topk_group": 4}`, false},
		{"too few in the groups", v3 + `, "n_routed_experts": 8, "moe_intermediate_size": 6, "num_experts_per_tok": 3, "n_group": 4, "topk_group": 1}`, false},
		{"groups of one", v3 + moe + `, "n_group": 8, "topk_group": 4}`, false},
		{"scores of the other", v2 + `, "scoring_func": "sigmoid"}`, false},
		{"method of the other", v3 + `, "topk_method": "greedy"}`, false},
		{"no shared experts", v2 + moe + `, "n_shared_experts": 0}`, true},
		{"shared experts unsaid", v2 + moe + `, "n_shared_experts": null}`, false},
		{"shared experts unsaid and none at all", v2 + `, "n_shared_experts": null}`, true},
		{"shared experts in words", v2 + moe + `, "n_shared_experts": "two"}`, false},
		{"unknown method", v2 + `, "topk_method": "random"}`, false},
		{"negative balance", v2 + moe + `, "aux_loss_alpha": -1}`, false},
		{"attention bias", v2 + `, "attention_bias": true}`, false},
		{"activation", v2 + `, "hidden_act": "gelu"}`, false},
		{"dropout", v2 + `, "attention_dropout": 0.1}`, false},
		{"quantized", v3 + `, "quantization_config": {"quant_method": "fp8"}}`, false},
		{"unknown rope", v2 + `, "rope_scaling": {"type": "llama3"}}`, false},
		{"yarn that shortens", yarn(`, "factor": 0.5`), false},
		{"yarn without context", yarn(`, "original_max_position_embeddings": 0`), false},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			_, err := deepseek.ParseConfig([]byte(test.text))
			if test.ok {
				if err != nil {
					t.Error(err)
				}
				return
			}
			if !errors.Is(err, hfconfig.ErrInvalid) {
				t.Errorf("error %v, want ErrInvalid", err)
			}
			golden.Message(t, test.name, err)
		})
	}
}

func FuzzParseConfig(f *testing.F) {
	f.Add([]byte(v2 + `}`))
	f.Add([]byte(v3 + moe + `, "n_group": 4, "topk_group": 2}`))
	for _, name := range cases {
		text, err := os.ReadFile("testdata/" + name + "/config.json")
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	fuzztest.Run(f, func(t *testing.T, text []byte) {
		c, err := deepseek.ParseConfig(text)
		if err != nil {
			return
		}
		c.NumHiddenLayers = min(c.NumHiddenLayers, 4)
		if n := deepseek.NumParameters(c); n <= 0 {
			t.Errorf("%d parameters in %+v", n, c)
		}
		if e := c.Experts; c.NumExperts > 0 && (c.NumExperts%e.Groups != 0 || e.PerToken > e.TopGroups*c.NumExperts/e.Groups) {
			t.Errorf("experts do not fit in %+v", c)
		}
		if c.QKRopeHeadDim%2 != 0 || c.LayerFreq < 1 {
			t.Errorf("got %+v; want c.QKRopeHeadDim %% 2 == 0 and c.LayerFreq >= 1", c)
		}
	})
}

// TestPublishedSizes compares the parameters of the published models, in billions, with the rounded
// numbers in their reports.
func TestPublishedSizes(t *testing.T) {
	const heads = `, "kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128`
	for want, text := range map[string]string{
		"15.7": `{"architectures": ["DeepseekV2ForCausalLM"], "vocab_size": 102400, "hidden_size": 2048, "intermediate_size": 10944,
			"moe_intermediate_size": 1408, "num_hidden_layers": 27, "num_attention_heads": 16, "q_lora_rank": null, "n_routed_experts": 64,
			"n_shared_experts": 2, "num_experts_per_tok": 6, "first_k_dense_replace": 1, "topk_method": "greedy"` + heads + `}`,
		"235.7": `{"architectures": ["DeepseekV2ForCausalLM"], "vocab_size": 102400, "hidden_size": 5120, "intermediate_size": 12288,
			"moe_intermediate_size": 1536, "num_hidden_layers": 60, "num_attention_heads": 128, "q_lora_rank": 1536, "n_routed_experts": 160,
			"n_shared_experts": 2, "num_experts_per_tok": 6, "first_k_dense_replace": 1, "topk_method": "group_limited_greedy",
			"n_group": 8, "topk_group": 3` + heads + `}`,
		"671.0": `{"architectures": ["DeepseekV3ForCausalLM"], "vocab_size": 129280, "hidden_size": 7168, "intermediate_size": 18432,
			"moe_intermediate_size": 2048, "num_hidden_layers": 61, "num_attention_heads": 128, "q_lora_rank": 1536, "n_routed_experts": 256,
			"n_shared_experts": 1, "num_experts_per_tok": 8, "first_k_dense_replace": 3, "n_group": 8, "topk_group": 4` + heads + `}`,
	} {
		c, err := deepseek.ParseConfig([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprintf("%.1f", float64(deepseek.NumParameters(c))/1e9); got != want {
			t.Errorf("%s billion parameters, want %s", got, want)
		}
	}
}
