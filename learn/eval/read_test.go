package eval

import (
	"math"
	"path/filepath"
	"strings"
	"testing"
)

// TestEmptyRowGroups: groups and pages without rows change nothing, and columns of only nulls have no values.
func TestEmptyRowGroups(t *testing.T) {
	for name, want := range map[string]string{
		"whole": "abcd", "begins": "abcd", "between": "abcd", "ends": "abcd", "alternates": "abcd", "empty-page": "abcd", "nothing": "",
		"nulls": "---", "some": "-a-",
	} {
		for most := range 5 {
			path := filepath.Join("..", "..", "files", "data", "prepare", "testdata", "empty", name+".parquet")
			rows, err := readSplit(t.Context(), []string{path}, []string{"text"}, most)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			var got strings.Builder
			for _, row := range rows {
				if text, ok := row["text"].(string); ok {
					got.WriteString(text)
				} else {
					got.WriteString("-")
				}
			}
			if first := want[:min(most, len(want))]; got.String() != first {
				t.Errorf("%s, %d rows: %q, want %q", name, most, got.String(), first)
			}
		}
	}
}

// TestPythonsConstants: json.dump writes NaN and Infinity into lines.
func TestPythonsConstants(t *testing.T) {
	path := filepath.Join(t.TempDir(), "test.jsonl")
	place(t, path, `{"text":"a NaN","score":NaN}`+"\n"+`{"text":"b","score":-Infinity}`+"\n")
	rows, err := readSplit(t.Context(), []string{path}, []string{"text", "score"}, 9)
	if err != nil || len(rows) != 2 {
		t.Fatal(rows, err)
	}
	if rows[0]["text"] != "a NaN" || rows[0]["score"] != nil || rows[1]["score"] != math.Inf(-1) {
		t.Errorf("%v", rows)
	}
}
