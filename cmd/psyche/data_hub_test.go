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
		want string // of what is printed
		code int
	}{
		{[]string{"--tokenizer", "org/model", "hf://datasets/org/set"}, "4 tokens of 2 bytes in 1 files, 0 held out; from 1 texts", exitOK},
		{[]string{"--tokenizer", "org/pieces", "hf://datasets/org/set"}, "3 tokens of 2 bytes in 1 files, 0 held out; from 1 texts", exitOK},
		{[]string{"--tokenizer", "org/more", folder}, `added_tokens.json: the tokenizer is not supported: token "<im>"`, 1},
		{[]string{"--tokenizer", folder, "--split", "test", "hf://datasets/org/set"}, "6 tokens of 2 bytes", exitOK},
		{[]string{"hf://datasets/org/set/data/*.jsonl"}, "from 2 texts in 2 text files", exitOK},
		{[]string{"--split", "odd", "hf://datasets/org/set"}, `no files of split "odd", only of ["test" "train"]; select a split with --split`, 1},
		{[]string{"hf://datasets/org"}, "want hf://datasets/OWNER/NAME", 1},
		{[]string{"--tokenizer", "org/bare", folder}, "no tokenizer.json and no tokenizer.model in the repository", 1},
		{[]string{"--tokenizer", "org/nowhere", folder}, "no such file or folder on this machine; the Hub reports", 1},
		{[]string{"--tokenizer", "nowhere", folder}, "no such file or folder, and not OWNER/NAME", 1},
	} {
		var out, errs strings.Builder
		line := append([]string{"data", "tokenize", "--output", t.TempDir()}, test.args...)
		if code := run(t.Context(), line, console{&out, &errs}); code != test.code || !strings.Contains(out.String()+errs.String(), test.want) {
			t.Errorf("%q: exit code %d, %s%s", test.args, code, &out, &errs)
		}
	}
}
