package tokenizer

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/psyche-go/psyche/base/golden"
)

func TestFind(t *testing.T) {
	model := string(smallModel(1, message(1, "</s>", 3, pieceControl)))
	with := func(more ...string) map[string]string {
		files := map[string]string{PieceFile: model}
		for i := 0; i < len(more); i += 2 {
			files[more[i]] = more[i+1]
		}
		return files
	}
	for _, test := range []struct {
		name  string
		files map[string]string
		ok    bool
		ids   []int32
	}{
		{"JSON before the other", with(JSONFile, small(), ConfigFile, "?"), true, []int32{0}},
		{"pieces", with(), true, []int32{2, 3}},
		{"pieces and what says nothing", with(ConfigFile, `{"tokenizer_class": "X", "add_bos_token": false, "bos_token": "?", "added_tokens_decoder": {"1": {"content": "<s>"}}}`, AddedFile, `{"</s>": 7}`), true, []int32{2, 3}},
		{"before", with(ConfigFile, `{"add_bos_token": true, "bos_token": "<s>"}`), true, []int32{1, 2, 3}},
		{"after", with(ConfigFile, `{"add_bos_token": true, "bos_token": {"content": "<s>"}, "add_eos_token": true, "eos_token": "</s>"}`), true, []int32{1, 2, 3, 7}},
		{"nothing", map[string]string{ConfigFile: "{}"}, false, nil},
		{"bad JSON", with(JSONFile, "?"), false, nil},
		{"bad pieces", map[string]string{PieceFile: "?"}, false, nil},
		{"bad settings", with(ConfigFile, "?"), false, nil},
		{"no token", with(ConfigFile, `{"add_bos_token": true}`), false, nil},
		{"a stranger", with(ConfigFile, `{"add_eos_token": true, "eos_token": "<e>"}`), false, nil},
		{"one token more", with(ConfigFile, `{"added_tokens_decoder": {"8": {"content": "<im>"}}}`), false, nil},
		{"no id", with(ConfigFile, `{"added_tokens_decoder": {"x": {"content": "<im>"}}}`), false, nil},
		{"another id", with(AddedFile, `{"</s>": 6}`), false, nil},
		{"Python's constants", with(ConfigFile, `{"model_max_length": Infinity, "a": [NaN, -Infinity], "add_bos_token": true, "bos_token": "<s>"}`), true, []int32{1, 2, 3}},
		{"marked JSON", with(JSONFile, "\ufeff"+small()), false, nil},
		{"marked settings", with(ConfigFile, "\ufeff{}"), false, nil},
		{"settings in UTF-16", with(ConfigFile, "\xff\xfe{\x00}\x00"), false, nil},
		{"a pointer of settings", with(ConfigFile, "version https://git-lfs.github.com/spec/v1\n"), false, nil},
		{"a pointer of pieces", map[string]string{PieceFile: "version https://git-lfs.github.com/spec/v1\n"}, false, nil},
		{"bad additions", with(AddedFile, `[]`), false, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			dir := t.TempDir()
			for _, name := range slices.Sorted(maps.Keys(test.files)) {
				if err := os.WriteFile(filepath.Join(dir, name), []byte(test.files[name]), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			tokenizer, err := LoadDir(dir)
			if !test.ok {
				golden.Message(t, test.name, err)
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if ids, err := tokenizer.EncodeWithSpecial([]byte("a")); err != nil || !slices.Equal(ids, test.ids) {
				t.Errorf("got %v, %v, want %v", ids, err, test.ids)
			}
			_, isPieces := test.files[PieceFile]
			if _, isJSON := test.files[JSONFile]; tokenizer.FindsControl() != (isJSON || !isPieces) {
				t.Error("control tokens are found, or not")
			}
		})
	}
	if _, err := LoadDir(filepath.Join(t.TempDir(), "missing")); !errors.Is(err, ErrNone) {
		t.Errorf("got %v; want error ErrNone", err)
	}
}

// TestLoadByName reads files of both kinds.
func TestLoadByName(t *testing.T) {
	dir := t.TempDir()
	for name, data := range map[string][]byte{"a.json": []byte(small()), "b.model": smallModel(), "tokenizer.model.v3": smallModel(), "a.model.json": []byte(small())} {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Load(path); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := Load(filepath.Join(dir, "c.json")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v; want error os.ErrNotExist", err)
	}
}
