package tokenizer

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// TestPatternsSplitAsTheReference compares with the output of
// scripts/reference/tokenizer_patterns.py.
func TestPatternsSplitAsTheReference(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("testdata", "patterns.json"))
	if err != nil {
		t.Fatal(err)
	}
	var cases []struct {
		Pattern, Text string
		Pieces        []string
	}
	if err := json.Unmarshal(text, &cases); err != nil {
		t.Fatal(err)
	}
	for _, test := range cases {
		compiled, err := compilePattern("here", test.Pattern)
		if test.Pieces == nil {
			if err == nil {
				t.Errorf("%s is accepted, but the reference refuses it", test.Pattern)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", test.Pattern, err)
			continue
		}
		var got []string
		stage := splitStage{find: compiled, mode: isolated}
		err = stage.each([]byte(test.Text), func(s span) error {
			got = append(got, test.Text[s.start:s.end])
			return nil
		})
		if err != nil || !slices.Equal(got, test.Pieces) {
			t.Errorf("%s of %q: got %q, %v; want %q", test.Pattern, test.Text, got, err, test.Pieces)
		}
	}
}

// TestPatternsThatMatchSomething has patterns that must not be confused with similar patterns.
func TestPatternsThatMatchSomething(t *testing.T) {
	for _, pattern := range []string{`a`, `a?b`, `(?:a|b)+`, `(?=a)a`, `(?:a?|b)c`, `(a|b?)c*d`, `\s+(?!\S)`, `x{1,3}`, `[^a]*\p{L}`, `(?<=a)b|c`, `((a))`} {
		if _, err := compilePattern("here", pattern); err != nil {
			t.Errorf("%s: %v", pattern, err)
		}
	}
	for _, pattern := range []string{``, `a*`, `()`, `(?:a?|b)`, `a|`, `(a{0,1})+`, `(?=a)`, `(?!a)|b`, `x{0}`, `(?:(?:a)?){2}`} {
		if _, err := compilePattern("here", pattern); err == nil {
			t.Errorf("%s is taken, and can match nothing", pattern)
		}
	}
}
