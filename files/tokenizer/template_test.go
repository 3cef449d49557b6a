package tokenizer

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// TestSeveralTemplates compares with the output of scripts/reference/tokenizer_templates.py. A
// template that the reference applies in an unusual way may be refused, but must not give a
// different result.
func TestSeveralTemplates(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("testdata", "templates.json"))
	if err != nil {
		t.Fatal(err)
	}
	var cases map[string]struct {
		Tokenizer json.RawMessage
		IDs       []int32
	}
	if err := json.Unmarshal(text, &cases); err != nil {
		t.Fatal(err)
	}
	refused := []string{"two pieces, a pair that adds", "two pieces, a pair that turns", "three pieces"}
	for name, test := range cases {
		tokenizer, err := Parse(test.Tokenizer)
		if slices.Contains(refused, name) {
			if !errors.Is(err, errUnsupported) {
				t.Errorf("%s: got %v, want %v", name, err, errUnsupported)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if ids, err := tokenizer.EncodeWithSpecial([]byte("abb")); err != nil || test.IDs == nil || !slices.Equal(ids, test.IDs) {
			t.Errorf("%s: got %v, %v; want %v", name, ids, err, test.IDs)
		}
	}
}
