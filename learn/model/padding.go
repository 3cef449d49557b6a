package model

import (
	"encoding/json"

	"github.com/psyche-go/psyche/learn/model/hfconfig"
	"github.com/psyche-go/psyche/learn/model/llama"
)

// paddings contains the defaults of pad_token_id in transformers, for the architectures that have
// one.
var paddings = map[string]int64{
	llama.ArchitectureOLMo2: 1, llama.ArchitectureGemma2: 0, llama.ArchitectureGemma3: 0, llama.ArchitectureSmolLM3: 128004, llama.ArchitecturePhi3: 32000,
}

// Padding returns the token whose row of the embedding transformers does not train: pad_token_id of a config.json, or the
// architecture's default. Models of this package train the row. It reports false if there is no such token.
func Padding(config []byte) (id int32, found bool) {
	var c struct {
		Architectures []string        `json:"architectures"`
		VocabSize     int64           `json:"vocab_size"`
		Padding       json.RawMessage `json:"pad_token_id"`
	}
	if hfconfig.Decode(config, &c) != nil || len(c.Architectures) != 1 {
		return 0, false
	}
	padding, found := paddings[c.Architectures[0]]
	if c.Padding != nil {
		var given *int64
		if json.Unmarshal(c.Padding, &given) != nil || given == nil {
			return 0, false
		}
		padding, found = *given, true
	}
	if padding < 0 {
		padding += c.VocabSize // nn.Embedding counts from the end
	}
	if !found || padding < 0 || padding >= c.VocabSize {
		return 0, false
	}
	return int32(padding), true
}
