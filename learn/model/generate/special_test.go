package generate

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/psyche-go/psyche/base/golden"
	"github.com/psyche-go/psyche/files/checkpoint"
	_ "github.com/psyche-go/psyche/learn/model/llama" // for its architecture
)

// TestEndTokens checks that generation_config.json is read as transformers reads it. Files that do
// not parse are errors.
func TestEndTokens(t *testing.T) {
	for _, c := range []struct {
		generation string
		want       []int32
		ok         bool
	}{
		{`{"eos_token_id":98,"temperature":NaN}`, []int32{98}, true},
		{`{"a":-Infinity,"b":[Infinity,NaN],"eos_token_id":[98, 7]}`, []int32{98, 7}, true},
		{`{"a":"NaN \" NaN \\","eos_token_id":5,"-Infinity":"Infinity"}`, []int32{5}, true},
		{`{"temperature":1}`, []int32{1}, true},
		{`{"eos_token_id":null}`, []int32{1}, true},
		{`{"eos_token_id":[]}`, []int32{1}, true},
		{"{\n  \"do_sample\": true.\n  \"eos_token_id\": 98\n}\n", nil, false},
		{`{"eos_token_id":"98"}`, nil, false},
		{"\ufeff" + `{"eos_token_id":98}`, nil, false},
		{"\xff\xfe{\x00}\x00", nil, false},
		{"{\x00}\x00", nil, false},
		{"version https://git-lfs.github.com/spec/v1\n", nil, false},
		{`{"eos_token_id":-1}`, nil, false},
		{`{"eos_token_id":[98,-5]}`, nil, false},
		{`{"eos_token_id":true}`, nil, false},
		{"  ", nil, false},
		{`[]`, nil, false},
		{`null`, nil, false},
		{``, nil, false},
		{`{"eos_token_id":98,}`, nil, false},
		{`{"eos_token_id":NaN}`, nil, false},
		{`{"eos_token_id":98.5}`, nil, false},
		{`{"eos_token_id":4294967296}`, nil, false},
		{`{"eos_token_id":[98,null]}`, nil, false},
		{`{"eos_token_id":{"id":98}}`, nil, false},
		{`{"eos_token_id":98, "a": NaNs}`, nil, false},
		{`{"eos_token_id":98, "a": "b`, nil, false},
		{`{"eos_token_id":98, "a": "\`, nil, false},
	} {
		s := checkpoint.Snapshot{Files: []checkpoint.File{
			{Name: checkpoint.ConfigFile, Data: []byte(`{"eos_token_id":1}`)}, {Name: ConfigFile, Data: []byte(c.generation)},
		}}
		ids, err := EndTokens(s)
		if !c.ok {
			golden.Message(t, c.generation, err)
		} else if err != nil || !slices.Equal(ids, c.want) {
			t.Errorf("%s: %v, %v; want %v", c.generation, ids, err, c.want)
		}
	}
	_, err := BeginToken(checkpoint.Snapshot{Files: []checkpoint.File{{Name: checkpoint.ConfigFile, Data: []byte(`{"bos_token_id":"2"}`)}}})
	golden.Message(t, "bos_token_id is a string", err)
}

// TestTokensBeyondTheVocabulary checks that ids outside the vocabulary of a model are found.
func TestTokensBeyondTheVocabulary(t *testing.T) {
	const config = `{"architectures":["LlamaForCausalLM"],"vocab_size":256,"hidden_size":16,"intermediate_size":32,
"num_hidden_layers":1,"num_attention_heads":2,"max_position_embeddings":32,"eos_token_id":0}`
	changed := func(fields string) string { return strings.Replace(config, `"eos_token_id":0`, fields, 1) }
	for _, test := range []struct{ file, content, want string }{
		{ConfigFile, `{"eos_token_id":[1,256]}`, "generation_config.json eos_token_id 256"},
		{ConfigFile, `{"bos_token_id":2147483647,"eos_token_id":1}`, "generation_config.json bos_token_id 2147483647"},
		{ConfigFile, `{"eos_token_id":255}`, ""},
		{"tokenizer_config.json", `{"eos_token_id":300}`, "tokenizer_config.json eos_token_id 300"},
		{"tokenizer_config.json", `{"eos_token_id":"</s>"}`, ""},
		{checkpoint.ConfigFile, changed(`"bos_token_id":1000`), "config.json bos_token_id 1000"},
		{checkpoint.ConfigFile, changed(`"eos_token_id":[256,257]`), "config.json eos_token_id 256, config.json eos_token_id 257"},
	} {
		s := checkpoint.Snapshot{Files: []checkpoint.File{{Name: checkpoint.ConfigFile, Data: []byte(config)}, {Name: test.file, Data: []byte(test.content)}}}
		if test.file == checkpoint.ConfigFile {
			s.Files = s.Files[1:]
		}
		var found []string
		for _, one := range OutsideTokens(s) {
			found = append(found, fmt.Sprintf("%s %s %d", one.File, one.Field, one.ID))
		}
		if got := strings.Join(found, ", "); got != test.want {
			t.Errorf("%s %s: %q, want %q", test.file, test.content, got, test.want)
		}
	}
	// A text cannot begin with a token outside the vocabulary.
	_, err := BeginToken(checkpoint.Snapshot{Files: []checkpoint.File{{Name: checkpoint.ConfigFile, Data: []byte(changed(`"bos_token_id":1000`))}}})
	golden.Message(t, "bos_token_id", err)
}
