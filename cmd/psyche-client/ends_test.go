package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/psyche-go/psyche/files/checkpoint"
)

// TestEndTokens reads generation_config.json as transformers does; files that do not parse are errors.
func TestEndTokens(t *testing.T) {
	for _, c := range []struct {
		generation string
		want       []int32
		problem    string // "": none
	}{
		{`{"eos_token_id":98,"temperature":NaN}`, []int32{98}, ""},
		{`{"a":-Infinity,"b":[Infinity,NaN],"eos_token_id":[98, 7]}`, []int32{98, 7}, ""},
		{`{"a":"NaN \" NaN \\","eos_token_id":5,"-Infinity":"Infinity"}`, []int32{5}, ""},
		{`{"temperature":1}`, []int32{1}, ""},
		{`{"eos_token_id":null}`, []int32{1}, ""},
		{`{"eos_token_id":[]}`, []int32{1}, ""},
		{"{\n  \"do_sample\": true.\n  \"eos_token_id\": 98\n}\n", nil, "is not JSON: invalid character '.'"},
		{`{"eos_token_id":"98"}`, nil, `eos_token_id is "98", want the id of a token`},
		{"\ufeff" + `{"eos_token_id":98}`, nil, "byte order mark"},
		{"\xff\xfe{\x00}\x00", nil, "file is UTF-16"},
		{"{\x00}\x00", nil, "UTF-16 without a byte order mark"},
		{"version https://git-lfs.github.com/spec/v1\n", nil, "git lfs pull"},
		{`{"eos_token_id":-1}`, nil, "eos_token_id is -1"},
		{`{"eos_token_id":[98,-5]}`, nil, "eos_token_id is [98,-5]"},
		{`{"eos_token_id":true}`, nil, "eos_token_id is true"},
		{"  ", nil, "is not JSON"},
		{`[]`, nil, "want a JSON object, not array"},
		{`null`, nil, "want a JSON object, not null"},
		{``, nil, "is not JSON"},
		{`{"eos_token_id":98,}`, nil, "is not JSON"},
		{`{"eos_token_id":NaN}`, nil, `eos_token_id is NaN`},
		{`{"eos_token_id":98.5}`, nil, "eos_token_id is 98.5"},
		{`{"eos_token_id":4294967296}`, nil, "eos_token_id is 4294967296"},
		{`{"eos_token_id":[98,null]}`, nil, "no null"},
		{`{"eos_token_id":{"id":98}}`, nil, "want the id of a token"},
		{`{"eos_token_id":98, "a": NaNs}`, nil, "is not JSON"},
		{`{"eos_token_id":98, "a": "b`, nil, "is not JSON"},
		{`{"eos_token_id":98, "a": "\`, nil, "is not JSON"},
	} {
		s := checkpoint.Snapshot{Files: []checkpoint.File{
			{Name: checkpoint.ConfigFile, Data: []byte(`{"eos_token_id":1}`)}, {Name: generationFile, Data: []byte(c.generation)},
		}}
		ids, err := endTokens(s)
		switch {
		case c.problem == "" && (err != nil || !slices.Equal(ids, c.want)):
			t.Errorf("%s: %v, %v; want %v", c.generation, ids, err, c.want)
		case c.problem != "" && (err == nil || !strings.Contains(err.Error(), c.problem) || !strings.HasPrefix(err.Error(), generationFile)):
			t.Errorf("%s: %v, %v; want an error with %q", c.generation, ids, err, c.problem)
		}
	}
	begin, err := beginToken(checkpoint.Snapshot{Files: []checkpoint.File{{Name: checkpoint.ConfigFile, Data: []byte(`{"bos_token_id":"2"}`)}}})
	if err == nil || !strings.Contains(err.Error(), "config.json: bos_token_id") {
		t.Errorf("bos_token_id of a string: %v, %v", begin, err)
	}
}

// TestGenerateNamesAWrongFile wants commands to name the file before they load libtorch.
func TestGenerateNamesAWrongFile(t *testing.T) {
	model, _ := toy(t)
	write(t, filepath.Join(model, generationFile), []byte(`{"do_sample": true.}`))
	for _, line := range [][]string{
		{"generate", "--model", model, "--prompt", "a"},
		{"serve-model", "--model", model, "--http-addr", "127.0.0.1:0"},
	} {
		fail(t, exitFailure, model+": "+generationFile+" is not JSON", line...)
	}
}

// TestTokensBeyondTheVocabulary: loading a model reports ids that the model does not have.
func TestTokensBeyondTheVocabulary(t *testing.T) {
	toyed, _ := toy(t)
	config, err := os.ReadFile(filepath.Join(toyed, checkpoint.ConfigFile))
	if err != nil {
		t.Fatal(err)
	}
	changed := func(fields string) string { return strings.Replace(string(config), `"eos_token_id":0`, fields, 1) }
	for _, test := range []struct{ file, content, want string }{
		{generationFile, `{"eos_token_id":[1,256]}`, "generation_config.json eos_token_id 256"},
		{generationFile, `{"bos_token_id":2147483647,"eos_token_id":1}`, "generation_config.json bos_token_id 2147483647"},
		{generationFile, `{"eos_token_id":255}`, ""},
		{"tokenizer_config.json", `{"eos_token_id":300}`, "tokenizer_config.json eos_token_id 300"},
		{"tokenizer_config.json", `{"eos_token_id":"</s>"}`, ""},
		{checkpoint.ConfigFile, changed(`"bos_token_id":1000`), "config.json bos_token_id 1000"},
		{checkpoint.ConfigFile, changed(`"eos_token_id":[256,257]`), "config.json eos_token_id 256, config.json eos_token_id 257"},
	} {
		model, _ := toy(t)
		write(t, filepath.Join(model, test.file), []byte(test.content))
		s, err := checkpoint.ReadDir(model)
		if err != nil {
			t.Fatal(err)
		}
		var found []string
		for _, one := range outsideTokens(s) {
			found = append(found, fmt.Sprintf("%s %s %d", one.file, one.field, one.id))
		}
		if got := strings.Join(found, ", "); got != test.want {
			t.Errorf("%s %s: %q, want %q", test.file, test.content, got, test.want)
		}
	}
	// A text cannot begin with such a token.
	begin, err := beginToken(checkpoint.Snapshot{Files: []checkpoint.File{{Name: checkpoint.ConfigFile, Data: []byte(changed(`"bos_token_id":1000`))}}})
	if err == nil || err.Error() != "config.json: bos_token_id is 1000, but vocab_size is 256; correct the file" {
		t.Errorf("%v, %v", begin, err)
	}
	code, _, problem := execute(t.Context(), "init-model", "--config", write(t, filepath.Join(t.TempDir(), "c.json"), []byte(changed(`"eos_token_id":1000`))), "--output", filepath.Join(t.TempDir(), "m"))
	if code != 0 || strings.Count(problem, "token id beyond the vocabulary") != 1 || !strings.Contains(problem, "file=config.json field=eos_token_id id=1000 vocab_size=256") {
		t.Errorf("init-model: %d, %s", code, problem)
	}
	write(t, filepath.Join(toyed, generationFile), []byte(`{"eos_token_id":999}`))
	code, _, problem = execute(t.Context(), "generate", "--model", toyed, "--prompt", "")
	if code == 0 || !strings.Contains(problem, "file=generation_config.json field=eos_token_id id=999 vocab_size=256") {
		t.Errorf("generate: %d, %s", code, problem)
	}
}
