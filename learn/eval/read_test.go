package eval

import (
	"errors"
	"math"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
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

// TestProvidedEmptyGroups: a group without rows in the middle, or at the start, changes no document. pyarrow reads the
// same four rows from each file.
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
			t.Errorf("%s: %s", name, diff)
		}
	}
}

// TestLinesInOtherEncodings reads lines with a byte order mark and in UTF-16, and names what it cannot read.
func TestLinesInOtherEncodings(t *testing.T) {
	for content, want := range map[string]string{
		"{\"text\":\"a\"}\r\n\r\n{\"text\":\"a\"}": "", "\ufeff{\"text\":\"a\"}": "", "\xff\xfe{\x00\"\x00t\x00e\x00x\x00t\x00\"\x00:\x00\"\x00a\x00\"\x00}\x00": "", "\xfe\xff\x00{\x00\"\x00t\x00e\x00x\x00t\x00\"\x00:\x00\"\x00a\x00\"\x00}": "",
		"{\x00\"\x00": "without a byte order mark", "version https://git-lfs.github.com/spec/v1\n": "git lfs pull", "\x1f\x8b\x08\x00": "compressed with gzip", "\xff\xfe\x00\x00{\x00\x00\x00": "UTF-32",
	} {
		path := filepath.Join(t.TempDir(), "test.jsonl")
		place(t, path, content)
		rows, err := readSplit(t.Context(), []string{path}, []string{"text"}, 9)
		if want == "" && (err != nil || len(rows) == 0 || rows[0]["text"] != "a") || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%q: %v, %v, want %q", content, rows, err, want)
		}
	}
}

// TestDamagedLines: bytes and escapes that do not encode a character, and a second object in a line, are errors.
func TestDamagedLines(t *testing.T) {
	for _, line := range []string{`{"text":"caf` + "\xe9" + `"}`, `{"text":"\ud83d"}`, `{"text":"a"} {"text":"b"}`, `{"text":"a"},`, `null`, `["a"]`} {
		path := filepath.Join(t.TempDir(), "test.jsonl")
		place(t, path, "{\"text\":\"\\ud83d\\ude42\"}\n"+line+"\n")
		if rows, err := readSplit(t.Context(), []string{path}, []string{"text"}, 9); !errors.Is(err, ErrDocument) || !strings.Contains(err.Error(), "line 2") {
			t.Errorf("%s: %v, %v", line, rows, err)
		}
	}
}

// TestObjectsOfOnlyNulls: if no row has an object, the columns within are null.
func TestObjectsOfOnlyNulls(t *testing.T) {
	for _, column := range []string{"text", "text.label", "text.label.of"} {
		path := filepath.Join("..", "..", "files", "data", "prepare", "testdata", "empty", "nulls.parquet")
		rows, err := readSplit(t.Context(), []string{path}, []string{column}, 9)
		if err != nil || len(rows) != 3 || rows[0][column] != nil {
			t.Errorf("%s: %v, %v", column, rows, err)
		}
	}
}
