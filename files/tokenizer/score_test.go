package tokenizer

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"testing"
)

// TestScoresAreReadAsByTheReference compares with the output of
// scripts/reference/tokenizer_numbers.py.
func TestScoresAreReadAsByTheReference(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("testdata", "numbers.json"))
	if err != nil {
		t.Fatal(err)
	}
	var cases map[string]*string
	if err := json.Unmarshal(text, &cases); err != nil {
		t.Fatal(err)
	}
	for number, want := range cases {
		score, ok := parseScore(json.RawMessage(number))
		got := fmt.Sprintf("%016x", math.Float64bits(score))
		if ok != (want != nil) || ok && got != *want {
			t.Errorf("%s: got %s, %v, want %s", number, got, ok, *want)
		}
	}
	for _, number := range []string{"", "-", `"1"`, "null", "[1]", "true", "1e99999999999999999999"} {
		if score, ok := parseScore(json.RawMessage(number)); ok {
			t.Errorf("%s was read as %v", number, score)
		}
	}
}
