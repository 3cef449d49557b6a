package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/psyche-go/psyche/files/checkpoint"
)

// TestGenerateNamesAWrongFile checks that commands name an invalid file before they load libtorch.
func TestGenerateNamesAWrongFile(t *testing.T) {
	model, _ := toy(t)
	write(t, filepath.Join(model, "generation_config.json"), []byte(`{"do_sample": true.}`))
	for _, line := range [][]string{
		{"generate", "--model", model, "--prompt", "a"},
		{"serve-model", "--model", model, "--http-addr", "127.0.0.1:0"},
	} {
		fail(t, exitFailure, line[0], line...)
	}
}

// TestTokensBeyondTheVocabulary checks that commands that load a model report ids outside the model's
// vocabulary.
func TestTokensBeyondTheVocabulary(t *testing.T) {
	toyed, _ := toy(t)
	config, err := os.ReadFile(filepath.Join(toyed, checkpoint.ConfigFile))
	if err != nil {
		t.Fatal(err)
	}
	changed := func(fields string) string { return strings.Replace(string(config), `"eos_token_id":0`, fields, 1) }
	code, _, problem := execute(t.Context(), "init-model", "--config", write(t, filepath.Join(t.TempDir(), "c.json"), []byte(changed(`"eos_token_id":1000`))), "--output", filepath.Join(t.TempDir(), "m"))
	if code != 0 || strings.Count(problem, "token id beyond the vocabulary") != 1 || !strings.Contains(problem, "file=config.json field=eos_token_id id=1000 vocab_size=256") {
		t.Errorf("init-model: %d, %s", code, problem)
	}
	write(t, filepath.Join(toyed, "generation_config.json"), []byte(`{"eos_token_id":999}`))
	code, _, problem = execute(t.Context(), "generate", "--model", toyed, "--prompt", "")
	if code == 0 || !strings.Contains(problem, "file=generation_config.json field=eos_token_id id=999 vocab_size=256") {
		t.Errorf("generate: %d, %s", code, problem)
	}
}
