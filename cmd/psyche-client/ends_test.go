package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/psyche-go/psyche/base/golden"
	"github.com/psyche-go/psyche/files/checkpoint"
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
			{Name: checkpoint.ConfigFile, Data: []byte(`{"eos_token_id":1}`)}, {Name: generationFile, Data: []byte(c.generation)},
		}}
		ids, err := endTokens(s)
		if !c.ok {
			golden.Message(t, c.generation, err)
		} else if err != nil || !slices.Equal(ids, c.want) {
			t.Errorf("%s: %v, %v; want %v", c.generation, ids, err, c.want)
		}
	}
	_, err := beginToken(checkpoint.Snapshot{Files: []checkpoint.File{{Name: checkpoint.ConfigFile, Data: []byte(`{"bos_token_id":"2"}`)}}})
	golden.Message(t, "bos_token_id is a string", err)
}

// TestGenerateNamesAWrongFile checks that commands name an invalid file before they load libtorch.
func TestGenerateNamesAWrongFile(t *testing.T) {
	model, _ := toy(t)
	write(t, filepath.Join(model, generationFile), []byte(`{"do_sample": true.}`))
	for _, line := range [][]string{
		{"generate", "--model", model, "--prompt", "a"},
		{"serve-model", "--model", model, "--http-addr", "127.0.0.1:0"},
	} {
		fail(t, exitFailure, line[0], line...)
	}
}

// TestTokensBeyondTheVocabulary checks that loading a model reports ids outside the model's
// vocabulary.
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
	// A text cannot begin with a token outside the vocabulary.
	_, err := beginToken(checkpoint.Snapshot{Files: []checkpoint.File{{Name: checkpoint.ConfigFile, Data: []byte(changed(`"bos_token_id":1000`))}}})
	golden.Message(t, "bos_token_id", err)
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
