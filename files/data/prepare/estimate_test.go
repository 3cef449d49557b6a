package prepare

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"

	"github.com/parquet-go/parquet-go"

	"github.com/psyche-go/psyche/base/diskspace"
	"github.com/psyche-go/psyche/files/tokenizer"
)

// inputs writes files for the estimate. share is the least share of the tokens that it should find.
func inputs(t *testing.T) map[string]struct {
	files map[string]string
	share float64
} {
	t.Helper()
	random := rand.New(rand.NewPCG(11, 12))
	letters := func(n int, from string) string {
		text := make([]byte, n)
		for i := range text {
			text[i] = from[random.IntN(len(from))]
		}
		return string(text)
	}
	english := func(n int) string {
		words := []string{"the ", "estimate ", "of ", "disk ", "space ", "must ", "be ", "low. "}
		var text strings.Builder
		for text.Len() < n {
			text.WriteString(words[random.IntN(len(words))])
		}
		return text.String()
	}
	const dense, sparse = "0123456789{}()<>!?%&", "aeiou"
	lines := func(texts ...string) string {
		var out bytes.Buffer
		for i, text := range texts {
			row := map[string]any{"id": i, "text": text, "note": letters(200, sparse)}
			_ = json.NewEncoder(&out).Encode(row) // a buffer does not fail
		}
		return out.String()
	}
	long := make([]string, 300)
	for i := range long {
		long[i] = english(3000)
	}
	sorted := make([]string, 2000) // long texts first, and most lines without a text
	for i := range 60 {
		sorted[i] = letters(2000, dense)
	}
	zip := func(text string) string {
		var out bytes.Buffer
		writer := gzip.NewWriter(&out)
		_, _ = writer.Write([]byte(text))
		_ = writer.Close()
		return out.String()
	}
	type plain struct {
		Text *string `parquet:"text,optional,zstd"`
	}
	type repeated struct {
		Text string `parquet:"text,dict"`
	}
	var table, few []plain
	var dictionary []repeated
	for i, text := range long {
		table = append(table, plain{&text})
		few = append(few, plain{&sorted[i]})
		dictionary = append(dictionary, repeated{long[i%3]})
	}
	rows := func(write func(to *bytes.Buffer) error) string {
		var out bytes.Buffer
		if err := write(&out); err != nil {
			t.Fatal(err)
		}
		return out.String()
	}
	return map[string]struct {
		files map[string]string
		share float64
	}{
		"text":             {map[string]string{"a.txt": english(900_000), "b.txt": english(100_000)}, 0.4},
		"dense text first": {map[string]string{"a.txt": letters(300_000, dense) + strings.Repeat(" ", 900_000)}, 0.2},
		"binary later":     {map[string]string{"a.bin": letters(100_000, dense) + strings.Repeat("\x00", 900_000), "b.txt": "text"}, 0},
		"lines":            {map[string]string{"a.jsonl": lines(long...)}, 0.3},
		"sorted lines":     {map[string]string{"a.jsonl": lines(sorted...)}, 0.1},
		"very long lines":  {map[string]string{"a.jsonl": lines(english(800_000), english(900_000))}, 0},
		"packed lines":     {map[string]string{"a.jsonl.gz": zip(lines(long...))}, 0.01},
		"packed text":      {map[string]string{"a.txt.gz": zip(letters(300_000, dense) + strings.Repeat(" ", 900_000))}, 0.05},
		"table":            {map[string]string{"a.parquet": rows(func(to *bytes.Buffer) error { return parquet.Write(to, table) })}, 0.4},
		"groups":           {map[string]string{"a.parquet": rows(func(to *bytes.Buffer) error { return parquet.Write(to, table, parquet.MaxRowsPerRowGroup(40)) })}, 0.4},
		"sorted table":     {map[string]string{"a.parquet": rows(func(to *bytes.Buffer) error { return parquet.Write(to, few, parquet.MaxRowsPerRowGroup(70)) })}, 0.1},
		"dictionary":       {map[string]string{"a.parquet": rows(func(to *bytes.Buffer) error { return parquet.Write(to, dictionary) })}, 0},
		"CSV":              {map[string]string{"a.csv": "text\n" + strings.Join(long, "\n")}, 0},
		"mixed":            {map[string]string{"a.txt": english(500_000), "b.jsonl": lines(long...), "c.parquet": rows(func(to *bytes.Buffer) error { return parquet.Write(to, table) })}, 0.4},
	}
}

// TestEstimateIsLow checks that the estimate never exceeds the tokens of an input, and is not too
// low to be useful.
func TestEstimateIsLow(t *testing.T) {
	for name, test := range inputs(t) {
		for _, by := range []*tokenizer.Tokenizer{tokenizer.Bytes(), gpt2(t)} {
			dir := t.TempDir()
			tree(t, filepath.Join(dir, "in"), test.files)
			o := options(filepath.Join(dir, "in"))
			o.Output, o.Tokenizer, o.Space = filepath.Join(dir, "out"), by, func(string) diskspace.Space { return diskspace.Space{} }
			made, err := Run(t.Context(), o)
			if err != nil {
				t.Fatal(name, err)
			}
			o = o.withDefaults()
			sources, _, err := o.sources()
			if err != nil {
				t.Fatal(err)
			}
			got := o.newEstimate(sources).tokens(t.Context())
			t.Logf("%s, %d tokens in the vocabulary: %d of %d", name, by.VocabSize(), got, made.Tokens)
			if got > made.Tokens || float64(got) < test.share*float64(made.Tokens) {
				t.Errorf("%s, %d tokens in the vocabulary: %d, want %.0f to %d", name, by.VocabSize(), got, test.share*float64(made.Tokens), made.Tokens)
			}
		}
	}
}

// TestWholeParts checks that samples contain no parts of characters or of lines.
func TestWholeParts(t *testing.T) {
	text := []byte(strings.Repeat("中é😀 ", 20))
	for from := range text {
		for to := from; to <= len(text); to++ {
			if part := wholeText(text[from:to], from > 0); to-from >= 8 && len(part) < to-from-6 || !strings.Contains(string(text), string(part)) {
				t.Fatalf("%d to %d: %q", from, to, part)
			}
		}
	}
	for _, other := range []string{"a\x00b", "a\xffb", "\x80abc"} {
		if part := wholeText([]byte(other), false); len(part) > 0 {
			t.Errorf("%q: %q is text", other, part)
		}
	}
	if beginsAsText(filepath.Join(t.TempDir(), "missing")) {
		t.Error("a missing file is text")
	}
	if lines := wholeLines([]byte("lf\nwhole\nha"), true); len(lines) != 1 || string(lines[0]) != "whole" {
		t.Errorf("got %q; want len(lines) == 1 and string(lines[0]) == \"whole\"", lines)
	}
	if lines := wholeLines([]byte("first\nha"), false); len(lines) != 1 || string(lines[0]) != "first" {
		t.Errorf("got %q; want len(lines) == 1 and string(lines[0]) == \"first\"", lines)
	}
	if lines := wholeLines([]byte("half"), true); len(lines) != 0 {
		t.Errorf("got %q; want len(lines) == 0", lines)
	}
}
