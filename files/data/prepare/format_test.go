package prepare

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/andybalholm/brotli"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
	"github.com/psyche-go/psyche/base/fuzztest"
	"github.com/psyche-go/psyche/base/golden"
)

func packGzip(t *testing.T, text string) string {
	var out bytes.Buffer
	return packed(t, &out, gzip.NewWriter(&out), text)
}

func packZstd(t *testing.T, text string) string {
	w, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	return string(w.EncodeAll([]byte(text), nil))
}

func packLZ4(t *testing.T, text string) string {
	var out bytes.Buffer
	return packed(t, &out, lz4.NewWriter(&out), text)
}

func packBrotli(t *testing.T, text string) string {
	var out bytes.Buffer
	return packed(t, &out, brotli.NewWriter(&out), text)
}

func packed(t *testing.T, out *bytes.Buffer, w io.WriteCloser, text string) string {
	t.Helper()
	if _, err := w.Write([]byte(text)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// TestCompressedTextIsUnpacked checks that a compressed text file is a text, and that a compressed
// archive is not.
func TestCompressedTextIsUnpacked(t *testing.T) {
	dir := t.TempDir()
	tree(t, dir, map[string]string{
		"a.txt.gz": packGzip(t, "one"), "b.md.zst": packZstd(t, "two"), "c.lz4": packLZ4(t, "three"), "d.br": packBrotli(t, "four"),
		"e.json.gz": packGzip(t, "{}"), "f.tar.gz": packGzip(t, "name\x00\x00"),
	})
	o := options(dir)
	o.Output = t.TempDir()
	made, err := Run(context.Background(), o)
	if err != nil {
		t.Fatal(err)
	}
	if got := text(t, filepath.Join(o.Output, "train-00000.ds")); got != "one|two|three|four|{}|" || made.SkippedBinary != 1 {
		t.Errorf("%q, %d skipped", got, made.SkippedBinary)
	}
}

// TestTextsOfContainers checks that the output has the texts of a file, not the syntax around them.
func TestTextsOfContainers(t *testing.T) {
	const lines = "{\"text\": \"one\"}\n{\"text\": null, \"a\": 1}\n{\"text\": \"tw\\u00f6\"}\n"
	const array = "[{\"text\": \"one\", \"a\": [{}]},\n {\"text\": null},\n {\"text\": \"tw\\u00f6\"}]\n"
	const table = "id,text\n1,one\n2,\n3,tw\u00f6\n"
	const want = "one|tw\u00f6|"
	for name, file := range map[string]string{
		"a.jsonl": lines, "a.ndjson": lines, "a.json": lines, "b.json": array, "c.json": "\ufeff" + array, "d.jsonl": "\ufeff" + lines,
		"a.jsonl.gz": packGzip(t, lines), "a.json.gz": packGzip(t, array), "b.json.gz": packGzip(t, lines),
		"a.jsonl.lz4": packLZ4(t, lines), "a.json.br": packBrotli(t, array), "a.csv.br": packBrotli(t, table), "a.tsv.lz4": packLZ4(t, strings.ReplaceAll(table, ",", "\t")),
		"a.jsonl.zst": packZstd(t, lines), "a.json.zst": packZstd(t, array), "a.CSV.zst": packZstd(t, table),
		"a.csv": table, "b.csv": "\ufeff" + strings.ReplaceAll(table, "\n", "\r\n"), "a.csv.gz": packGzip(t, table),
		"a.tsv": strings.ReplaceAll(table, ",", "\t"), "c.csv": "\"text\"\n\"one\"\n\"\"\n\"tw\u00f6\"\n",
	} {
		dir := t.TempDir()
		tree(t, dir, map[string]string{name: file})
		for _, path := range []string{dir, filepath.Join(dir, name)} {
			o := options(path)
			o.Output = t.TempDir()
			made, err := Run(context.Background(), o)
			if err != nil {
				t.Errorf("%s: %v", name, err)
				continue
			}
			if got := text(t, filepath.Join(o.Output, "train-00000.ds")); got != want || made.Texts != 2 {
				t.Errorf("%s: %d texts, %q, want %q", name, made.Texts, got, want)
			}
		}
	}
}

func TestOneObjectIsOneText(t *testing.T) {
	for _, file := range []string{`{"text": "a"}`, "{\n \"a\": [{}]\n}\n", `[1, 2]`, `[]`, `["a"]`, `"a"`, `{"a": `, `{} [`} {
		dir := t.TempDir()
		tree(t, dir, map[string]string{"a.json": file})
		o := options(dir)
		o.Output = t.TempDir()
		if _, err := Run(context.Background(), o); err != nil {
			t.Errorf("%s: %v", file, err)
			continue
		}
		if got := text(t, filepath.Join(o.Output, "train-00000.ds")); got != file+"|" {
			t.Errorf("%s: got %q", file, got)
		}
	}
}

func TestContainersThatAreRefused(t *testing.T) {
	for name, file := range map[string]string{
		"data-00000-of-00001.arrow": "ARROW1\x00\x00",
		"a.feather":                 "FEA1",
		"a.jsonl.xz":                "\xfd7zXZ",
		"a.csv.bz2":                 "BZh",
		"a.parquet.gz":              "",
		"cut.txt.gz":                packGzip(t, strings.Repeat("a", 9999))[:20],
		"broken.txt.lz4":            "no LZ4 at all",
		"broken.json.gz":            "no gzip, and long enough for a header",
		"broken.jsonl.zst":          "no zstd, and long enough for a header",
		"cut.jsonl.gz":              packGzip(t, strings.Repeat("{\"text\": \"a\"}\n", 99))[:40],
		"cut.csv.zst":               packZstd(t, "text\n"+strings.Repeat("a\nb\n", 99))[:20],
		"a.csv":                     "id,content\n1,a\n",
		"semicolons.csv":            "id;text\n1;a\n",
		"tabs.csv":                  "id\ttext\n1\ta\n",
		"columns.csv":               " text ,Text\na,b\n",
		"keys.jsonl":                `{"i":1,"h":1,"g":1,"f":1,"e":1,"d":1,"c":1,"b":1,"a":1}`,
		"list.jsonl":                `[{"text":"a"}]`,
		"kind.jsonl":                `{"text":true}`,
		"empty.csv":                 "",
		"ragged.csv":                "id,text\n1,a\n2\n",
		"quote.csv":                 "text\n\"a\n",
		"latin.csv":                 "text\n\xe9\n",
		"field.json":                `[{"a": 1}]`,
		"number.json":               `[{"text": "a"}, {"text": 1}]`,
		"half.json":                 `[{"text": "a"}, `,
		"more.json":                 `[{"text": "a"}] x`,
		"other.json":                `[{"text": "a"}, 1]`,
		"surrogate.json":            `[{"text": "\ud83d"}]`,
		"latin.json":                "[{\"text\": \"\xe9\"}]",
	} {
		dir := t.TempDir()
		tree(t, dir, map[string]string{name: file})
		o := options(dir)
		o.Output = t.TempDir()
		_, err := Run(context.Background(), o)
		golden.Message(t, name, err)
	}
}

// TestContainersGoOnAfterAnInterruption interrupts the run after its first journal entry.
func TestContainersGoOnAfterAnInterruption(t *testing.T) {
	var array, table strings.Builder
	for i := range 400 {
		sep := ","
		if i == 0 {
			sep = "["
		}
		array.WriteString(sep + `{"text": "` + strings.Repeat("x", i%7+1) + `"}`)
		table.WriteString(strings.Repeat("y", i%5+1) + "\n")
	}
	dir := t.TempDir()
	tree(t, dir, map[string]string{"a.json": array.String() + "]", "b.csv.zst": packZstd(t, "text\n"+table.String())})
	whole := options(dir)
	whole.Output = t.TempDir()
	if _, err := Run(context.Background(), whole); err != nil {
		t.Fatal(err)
	}
	want := text(t, filepath.Join(whole.Output, "train-00000.ds"))
	for _, after := range []int{2, 8} {
		ctx, cancel := context.WithCancel(context.Background())
		o := options(dir)
		o.Output, o.jobBytes, o.journalEvery = t.TempDir(), 1000, 500
		entries := 0
		o.afterJournal = func() {
			if entries++; entries == after {
				cancel()
			}
		}
		if _, err := Run(ctx, o); !errors.Is(err, context.Canceled) {
			t.Fatalf("%d entries: %v", entries, err)
		}
		o.afterJournal = nil
		if _, err := Run(context.Background(), o); err != nil {
			t.Fatal(err)
		}
		if got := text(t, filepath.Join(o.Output, "train-00000.ds")); got != want {
			t.Errorf("interrupted after %d entries: got %d tokens, want %d", after, len(got), len(want))
		}
	}
}

func TestLongTextsAreRefused(t *testing.T) {
	c := &capped{from: endless{}}
	c.reset()
	buffer := make([]byte, 1<<20)
	for read := 0; ; read++ {
		if _, err := c.Read(buffer); err != nil {
			golden.Message(t, "endless", err)
			return
		}
		if read > maxDocument>>20+2 {
			t.Fatal("reading does not end")
		}
	}
}

type endless struct{}

func (endless) Read(p []byte) (int, error) { return len(p), nil }

func FuzzContainer(f *testing.F) {
	f.Add([]byte(`[{"text": "a"}, {"text": null}]`), "a.json")
	f.Add([]byte("id,text\n1,a\n"), "a.csv")
	f.Add([]byte("{\"text\": \"a\"}\n"), "a.jsonl")
	fuzztest.Run(f, func(t *testing.T, file []byte, name string) {
		ending := filepath.Ext(name)
		if ending != ".json" && ending != ".csv" && ending != ".jsonl" {
			return
		}
		path := filepath.Join(t.TempDir(), "a"+ending)
		if err := os.WriteFile(path, file, 0o644); err != nil {
			t.Fatal(err)
		}
		o := Options{Format: formatAuto}
		format, err := o.formatOf(path, path)
		if err != nil {
			return
		}
		r, err := Options{Field: defaultField}.open(t.Context(), source{path: path, format: format}, 0)
		if err != nil {
			return
		}
		for err == nil {
			_, err = r.next()
		}
		if err := r.Close(); err != nil {
			t.Fatal(err)
		}
	})
}
