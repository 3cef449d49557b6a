package eval

import (
	"errors"
	"math"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/psyche-go/psyche/base/golden"
)

// TestEmptyRowGroups checks that groups and pages without rows change nothing, and that columns of
// only nulls have no values.
func TestEmptyRowGroups(t *testing.T) {
	for name, want := range map[string]string{
		"whole": "abcd", "begins": "abcd", "between": "abcd", "ends": "abcd", "alternates": "abcd", "empty-page": "abcd", "nothing": "",
		"nulls": "---", "some": "-a-",
	} {
		for limit := range 5 {
			path := filepath.Join("..", "..", "files", "data", "prepare", "testdata", "empty", name+".parquet")
			rows, err := readSplit(t.Context(), []string{path}, []string{"text"}, limit)
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
			if first := want[:min(limit, len(want))]; got.String() != first {
				t.Errorf("%s, %d rows: %q, want %q", name, limit, got.String(), first)
			}
		}
	}
}

// TestPythonsConstants checks that lines may contain NaN and Infinity, which json.dump writes.
func TestPythonsConstants(t *testing.T) {
	path := filepath.Join(t.TempDir(), "test.jsonl")
	place(t, path, `{"text":"a NaN","score":NaN}`+"\n"+`{"text":"b","score":-Infinity}`+"\n")
	rows, err := readSplit(t.Context(), []string{path}, []string{"text", "score"}, 9)
	if err != nil || len(rows) != 2 {
		t.Fatal(rows, err)
	}
	if rows[0]["text"] != "a NaN" || rows[0]["score"] != nil || rows[1]["score"] != math.Inf(-1) {
		t.Errorf("got %v; want rows[0][\"text\"] == \"a NaN\" and rows[0][\"score\"] == nil and rows[1][\"score\"] == math.Inf(-1)", rows)
	}
}

// TestProvidedEmptyGroups checks that a group without rows in the middle, or at the start, changes
// no document. pyarrow reads the same four rows from each file.
func TestProvidedEmptyGroups(t *testing.T) {
	columns := []string{"question", "choices.text", "choices.label", "answerKey"}
	read := func(name string) []map[string]any {
		paths, _, err := Library{}.listed(filepath.Join("testdata", "empty-groups", name), "ARC-Easy", "test")
		if err != nil || len(paths) != 1 {
			t.Fatal(paths, err)
		}
		rows, err := readSplit(t.Context(), paths, columns, 99)
		if err != nil {
			t.Fatal(err)
		}
		return rows
	}
	whole := read("whole")
	if len(whole) != 4 || whole[2]["answerKey"] != "E" {
		t.Fatal(whole)
	}
	for _, name := range []string{"between", "first"} {
		if diff := cmp.Diff(whole, read(name)); diff != "" {
			t.Errorf("%s: got %s; want \"\"", name, diff)
		}
	}
}

// TestLinesInOtherEncodings reads lines with a byte order mark and in UTF-16. It checks that errors
// name unsupported encodings.
func TestLinesInOtherEncodings(t *testing.T) {
	for content, good := range map[string]bool{
		"{\"text\":\"a\"}\r\n\r\n{\"text\":\"a\"}": true, "\ufeff{\"text\":\"a\"}": true, "\xff\xfe{\x00\"\x00t\x00e\x00x\x00t\x00\"\x00:\x00\"\x00a\x00\"\x00}\x00": true, "\xfe\xff\x00{\x00\"\x00t\x00e\x00x\x00t\x00\"\x00:\x00\"\x00a\x00\"\x00}": true,
		"{\x00\"\x00": false, "version https://git-lfs.github.com/spec/v1\n": false, "\x1f\x8b\x08\x00": false, "\xff\xfe\x00\x00{\x00\x00\x00": false,
	} {
		path := filepath.Join(t.TempDir(), "test.jsonl")
		place(t, path, content)
		rows, err := readSplit(t.Context(), []string{path}, []string{"text"}, 9)
		if !good {
			golden.Message(t, content, err)
		} else if err != nil || len(rows) == 0 || rows[0]["text"] != "a" {
			t.Errorf("%q: got %v, %v; want nil error and len(rows) != 0 and rows[0][\"text\"] == \"a\"", content, rows, err)
		}
	}
}

// TestDamagedLines checks that bytes and escapes that do not encode a character, and a second
// object in a line, are errors.
func TestDamagedLines(t *testing.T) {
	for _, line := range []string{`{"text":"caf` + "\xe9" + `"}`, `{"text":"\ud83d"}`, `{"text":"a"} {"text":"b"}`, `{"text":"a"},`, `null`, `["a"]`} {
		path := filepath.Join(t.TempDir(), "test.jsonl")
		place(t, path, "{\"text\":\"\\ud83d\\ude42\"}\n"+line+"\n")
		if rows, err := readSplit(t.Context(), []string{path}, []string{"text"}, 9); !errors.Is(err, ErrDocument) {
			t.Errorf("%s: got %v, %v; want error ErrDocument", line, rows, err)
		} else {
			golden.Message(t, line, err)
		}
	}
}

// TestObjectsOfOnlyNulls checks that the columns within an object are null if no row has the
// object.
func TestObjectsOfOnlyNulls(t *testing.T) {
	for _, column := range []string{"text", "text.label", "text.label.of"} {
		path := filepath.Join("..", "..", "files", "data", "prepare", "testdata", "empty", "nulls.parquet")
		rows, err := readSplit(t.Context(), []string{path}, []string{column}, 9)
		if err != nil || len(rows) != 3 || rows[0][column] != nil {
			t.Errorf("%s: got %v, %v; want nil error and len(rows) == 3 and rows[0][column] == nil", column, rows, err)
		}
	}
}
