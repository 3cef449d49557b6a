package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/psyche-go/psyche/files/hub/hubtest"
)

// TestTokenizeFromTheHub names a data set and a tokenizer that are nowhere but on the Hub.
func TestTokenizeFromTheHub(t *testing.T) {
	tokenizer, err := os.ReadFile("../../files/tokenizer/testdata/bytes.json")
	if err != nil {
		t.Fatal(err)
	}
	server := hubtest.New()
	defer server.Close()
	server.Put("org/set", map[string][]byte{
		"data/train-00000-of-00001.jsonl": []byte("{\"text\": \"one\"}\n"), "data/test-00000-of-00001.jsonl": []byte("{\"text\": \"other\"}\n"), "README.md": []byte("about"),
	})
	server.Put("org/model", map[string][]byte{"tokenizer.json": tokenizer, "config.json": []byte("{}")})
	server.Put("org/bare", map[string][]byte{"config.json": []byte("{}")})
	pieces := []byte("\n\x09\n\x05<unk>\x18\x02" + "\n\x08\n\x01e\x15\x00\x00\x80\xbf") // one for what is unknown, and e
	server.Put("org/pieces", map[string][]byte{"tokenizer.model": pieces, "tokenizer_config.json": []byte("{}")})
	server.Put("org/more", map[string][]byte{"tokenizer.model": pieces, "added_tokens.json": []byte(`{"<im>": 2}`)})
	dir := t.TempDir()
	t.Setenv("HF_ENDPOINT", server.URL)
	t.Setenv("HF_HOME", filepath.Join(dir, "home"))
	folder := filepath.Join(dir, "folder")
	if err := os.Mkdir(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(folder, "tokenizer.json"), tokenizer, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		args []string
		want string // part of the output, or the name of a message
		code int
	}{
		{[]string{"--tokenizer", "org/model", "hf://datasets/org/set"}, "4 tokens of 2 bytes in 1 files, 0 held out; from 1 texts", exitOK},
		{[]string{"--tokenizer", "org/pieces", "hf://datasets/org/set"}, "3 tokens of 2 bytes in 1 files, 0 held out; from 1 texts", exitOK},
		{[]string{"--tokenizer", "org/more", folder}, "added token", 1},
		{[]string{"--tokenizer", folder, "--split", "test", "hf://datasets/org/set"}, "6 tokens of 2 bytes", exitOK},
		{[]string{"hf://datasets/org/set/data/*.jsonl"}, "from 2 texts in 2 text files", exitOK},
		{[]string{"--split", "odd", "hf://datasets/org/set"}, "other split", 1},
		{[]string{"hf://datasets/org"}, "no name", 1},
		{[]string{"--tokenizer", "org/bare", folder}, "no tokenizer", 1},
		{[]string{"--tokenizer", "org/nowhere", folder}, "missing repository", 1},
		{[]string{"--tokenizer", "nowhere", folder}, "missing folder", 1},
	} {
		var out, errs strings.Builder
		line := append([]string{"data", "tokenize", "--output", t.TempDir()}, test.args...)
		if code := run(t.Context(), line, console{&out, &errs}); code != test.code {
			t.Errorf("%q: exit code %d, %s%s", test.args, code, &out, &errs)
		} else {
			printed(t, code, test.want, out.String()+errs.String())
		}
	}
}
