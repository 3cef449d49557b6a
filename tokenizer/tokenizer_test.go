package tokenizer

import (
	"bytes"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

var update = flag.Bool("update", false, "rewrite the golden files")

func TestBytesAreTheIDs(t *testing.T) {
	ids := Bytes().Encode([]byte("Go \x00ÿ"))
	want := []int32{'G', 'o', ' ', 0, 0xc3, 0xbf}
	if len(ids) != len(want) {
		t.Fatalf("got %v, want %v", ids, want)
	}
	for i := range ids {
		if ids[i] != want[i] {
			t.Errorf("got %v, want %v", ids, want)
		}
	}
}

func TestDecodeUndoesEncode(t *testing.T) {
	tokenizer := Bytes()
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.SliceOf(rapid.Byte()).Draw(t, "text")
		got, err := tokenizer.Decode(tokenizer.Encode(text))
		if err != nil || !bytes.Equal(got, text) {
			t.Fatalf("got %q, %v, want %q", got, err, text)
		}
	})
}

func TestDecodeRefusesForeignIDs(t *testing.T) {
	for _, id := range []int32{-1, 256} {
		if _, err := Bytes().Decode([]int32{id}); err == nil {
			t.Errorf("id %d was decoded", id)
		}
	}
}

// TestJSONIsForEver pins the file: its hash is part of checkpoints.
func TestJSONIsForEver(t *testing.T) {
	golden := filepath.Join("testdata", "bytes.json")
	if *update {
		if err := os.WriteFile(golden, Bytes().JSON(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(want, Bytes().JSON()) {
		t.Error("JSON differs from " + golden)
	}
	loaded, err := Load(golden)
	if err != nil {
		t.Fatal(err)
	}
	if *loaded != *Bytes() {
		t.Error("what JSON writes loads as another tokenizer")
	}
}

func TestIDsMayBePermuted(t *testing.T) {
	text := string(Bytes().JSON())
	text = strings.Replace(text, `"A": 65`, `"A": 66`, 1)
	text = strings.Replace(text, `"B": 66`, `"B": 65`, 1)
	tokenizer, err := Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	if ids := tokenizer.Encode([]byte("AB")); ids[0] != 66 || ids[1] != 65 {
		t.Errorf("got %v, want [66 65]", ids)
	}
	if back, err := tokenizer.Decode([]int32{66, 65}); err != nil || string(back) != "AB" {
		t.Errorf("got %q, %v", back, err)
	}
}

func TestParseRefusesWhatItCannotFollow(t *testing.T) {
	good := string(Bytes().JSON())
	tests := []struct{ name, from, to, want string }{
		{"merges", `"merges": []`, `"merges": ["a b"]`, `model.merges is ["a b"], only [] is`},
		{"unigram", `"BPE"`, `"Unigram"`, `model.type is "Unigram"`},
		{"normalizer", `"normalizer": null`, `"normalizer": {"type": "NFC"}`, "normalizer is"},
		{"added tokens", `"added_tokens": []`, `"added_tokens": [{"id": 256, "content": "<s>"}]`, "added_tokens is"},
		{"post-processor", `"post_processor": null`, `"post_processor": {"type": "TemplateProcessing"}`, `post_processor.type is "TemplateProcessing"`},
		{"prefix space", `"add_prefix_space": false`, `"add_prefix_space": true`, "pre_tokenizer.add_prefix_space is true, only false is"},
		{"prefix space by default", "\"add_prefix_space\": false,\n    ", "", "pre_tokenizer.add_prefix_space is missing"},
		{"other pre-tokenizer", `"type": "ByteLevel"`, `"type": "Whitespace"`, `pre_tokenizer.type is "Whitespace"`},
		{"truncation", `"truncation": null`, `"truncation": {"max_length": 512}`, "truncation is"},
		{"unknown key", `"version": "1.0",`, `"version": "1.0", "magic": 1,`, "magic is a key that is not known here"},
		{"key in another case", `"merges": []`, `"Merges": [], "merges": []`, "model.Merges is a key that is not known here"},
		{"key twice", `"merges": []`, `"merges": ["a b"], "merges": []`, "model.merges is there twice"},
		{"id twice", `"A": 65`, `"A": 66`, "want the ids 0 to 255 once each"},
		{"id too large", `"A": 65`, `"A": 256`, "want the ids 0 to 255 once each"},
		{"token missing", "\"A\": 65,\n      ", "", "model.vocab has 255 tokens"},
		{"foreign token", `"A": 65`, `"AA": 65`, `model.vocab has no token 'A' for byte 65`},
		{"dropout", `"dropout": null`, `"dropout": 0.1`, "model.dropout is 0.1"},
		{"subword prefix", `"continuing_subword_prefix": null`, `"continuing_subword_prefix": "##"`, "model.continuing_subword_prefix is"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			if !strings.Contains(good, test.from) {
				t.Fatalf("the file has no %s", test.from)
			}
			_, err := Parse([]byte(strings.Replace(good, test.from, test.to, 1)))
			if !errors.Is(err, ErrUnsupported) || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want %s", err, test.want)
			}
		})
	}
	for _, text := range []string{"", "[]", "{", good + "{}", good[:len(good)/2]} {
		if _, err := Parse([]byte(text)); err == nil {
			t.Errorf("%.20q was parsed", text)
		}
	}
}

// FuzzParse wants errors, never panics, and only bijections.
func FuzzParse(f *testing.F) {
	f.Add(Bytes().JSON())
	f.Add([]byte(`{"model": {"vocab": {"a": 0, "a": 1}, "merges": []}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		tokenizer, err := Parse(text)
		if err != nil {
			return
		}
		all := Bytes().bytes[:]
		back, err := tokenizer.Decode(tokenizer.Encode(all))
		if err != nil || !bytes.Equal(back, all) {
			t.Fatalf("bytes come back as %x, %v", back, err)
		}
		again, err := Parse(tokenizer.JSON())
		if err != nil || *again != *tokenizer {
			t.Fatalf("the tokenizer does not survive its own file: %v", err)
		}
	})
}
