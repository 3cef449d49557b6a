package main

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/psyche-go/psyche/files/objstore/gcs/fakegcs"
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
	model    string         // folder
	location map[string]any // data_location
	data     string         // data.toml of the data server, if there is one
}

// prepare creates a row's model and data in a folder. close ends their servers.
func prepare(ctx context.Context, bin, dir string, r row, dataAddress string) (w world, close func(), err error) {
	close = func() {}
	config, err := json.Marshal(models[r.Model].config)
	if err != nil {
		return w, close, err
	}
	path := filepath.Join(dir, "config.json")
	if err := os.WriteFile(path, config, 0o644); err != nil {
		return w, close, err
	}
	w.model = filepath.Join(dir, "model")
	made := exec.CommandContext(ctx, filepath.Join(bin, "psyche-client"), "init-model", "--config", path, "--seed", "1", "--tokenizer", "none", "--output", w.model)
	if out, err := made.CombinedOutput(); err != nil {
		return w, close, fmt.Errorf("make a model: %w: %s", err, out)
	}
	tokens := filepath.Join(dir, "data")
	if err := os.MkdirAll(tokens, 0o755); err != nil {
		return w, close, err
	}
	file := filepath.Join(tokens, "train.ds")
	if err := os.WriteFile(file, text(r), 0o644); err != nil {
		return w, close, err
	}
	switch r.Data {
	case "local":
		w.location = map[string]any{"Local": map[string]any{"path": tokens, "token_size_in_bytes": "TwoBytes", "shuffle": "DontShuffle"}}
	case "http":
		served := httptest.NewServer(http.FileServer(http.Dir(tokens)))
		close = served.Close
		w.location = map[string]any{"Http": map[string]any{
			"location": map[string]any{"SingleUrl": served.URL + "/train.ds"}, "token_size_in_bytes": "TwoBytes", "shuffle": "DontShuffle",
		}}
	case "bucket":
		bucket, end := fakegcs.Start()
		close = end
		bucket.Set("tokens", "train.ds", text(r))
		if err := os.Setenv("STORAGE_EMULATOR_HOST", bucket.Host); err != nil { // for the members
			return w, close, err
		}
		w.location = map[string]any{"Http": map[string]any{
			"location": map[string]any{"Gcp": map[string]any{"bucket_name": "tokens"}}, "token_size_in_bytes": "TwoBytes", "shuffle": "DontShuffle",
		}}
	case "server":
		w.location = map[string]any{"Server": dataAddress}
		w.data = filepath.Join(dir, "data.toml")
		settings := fmt.Sprintf("seq_len = %d\ndir = %q\ntoken_size = \"TwoBytes\"\nshuffle_seed = [%s]\n", r.Length, tokens, zeros(32))
		err = os.WriteFile(w.data, []byte(settings), 0o644)
	}
	return w, close, err
}

func zeros(count int) (list string) {
	for i := range count {
		if i > 0 {
			list += ", "
		}
		list += "0"
	}
	return list
}

// text returns the sequences of a row as two-byte tokens. Each token follows from the previous one
// except for some noise, so that there is something to learn. Some sequences have rare tokens.
func text(r row) []byte {
	random := rand.New(rand.NewPCG(1, 2))
	var b []byte
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
			b = binary.LittleEndian.AppendUint16(b, uint16(token))
		}
	}
	return append(b, 0, 0)
}
