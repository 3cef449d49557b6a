package prepare

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/psyche-go/psyche/base/golden"
)

// provided returns the path of a file or folder that users of other programs reported.
func provided(name string) string { return filepath.Join("testdata", "outside", name) }

// textsOf returns the texts of a run for the given paths, each followed by |.
func textsOf(t *testing.T, change func(*Options), paths ...string) (string, error) {
	t.Helper()
	o := options(paths...)
	o.Output = filepath.Join(t.TempDir(), "out")
	change(&o)
	if _, err := Run(t.Context(), o); err != nil {
		return "", err
	}
	return text(t, filepath.Join(o.Output, "train-00000.ds")), nil
}

// TestProvidedFiles reads files that other programs wrote, or that other programs read differently.
// datasets 5.2 reads the same texts, and pandas 3.1 with quoting=3 reads the texts of TSV and of
// CSV with quotes.
func TestProvidedFiles(t *testing.T) {
	for _, test := range []struct {
		name   string
		change func(*Options)
		want   string
	}{
		{"null-column", nil, "alpha|béta|gamma|"},
		{"null-column/a.parquet", nil, "alpha|béta|gamma|"},
		{"quotes-within.tsv", nil, `He said "hi" to me|plain|`},
		{"quotes-at-start.tsv", nil, `"Quoted" start|plain|`},
		{"inches.csv", func(o *Options) { o.Quotes = quotesNone }, `5 inch 9" tall|`},
		{"python-nan.jsonl", nil, "alpha|beta|g|"},
		{"squad-layout.json", func(o *Options) { o.Field = "data.text" }, "a|b|"},
		{"pandas-lists.json", func(o *Options) { o.Field = "text" }, "a|b|c|"},
		{"table.pq", nil, "alpha|béta|gamma|"},
		{"pandas.parquet.gzip", nil, "alpha|béta|gamma|"},
		{"table.ipc", nil, "alpha|béta|gamma|"},
	} {
		if test.change == nil {
			test.change = func(*Options) {}
		}
		if got, err := textsOf(t, test.change, provided(test.name)); err != nil || got != test.want {
			t.Errorf("%s: %q, %v; want %q", test.name, got, err, test.want)
		}
	}
	for _, name := range []string{"a_null.arrow", "p_null.parquet", "inches.csv"} {
		_, err := textsOf(t, func(*Options) {}, provided(name))
		golden.Message(t, name, err)
	}
}

// TestProvidedDownload reads a folder from hf download --local-dir, and a checkout of it.
func TestProvidedDownload(t *testing.T) {
	const readme = "# Data set\n"
	table, err := os.ReadFile(provided("download/data/train-00000-of-00001.parquet"))
	if err != nil {
		t.Fatal(err)
	}
	for name, added := range map[string]map[string]string{
		"download":  {".gitattributes": "*.parquet filter=lfs", ".cache/huggingface/.gitignore": "*", ".cache/huggingface/CACHEDIR.TAG": "Signature", ".cache/huggingface/download/README.md.metadata": "hash"},
		"checkout":  {".git/config": "[core]", ".git/hooks/pre-push.sample": "#!/bin/sh", ".git/info/exclude": "# git", ".gitattributes": "x"},
		"Jupyter":   {".ipynb_checkpoints/README-checkpoint.md": "old", "data/.ipynb_checkpoints/x.jsonl": "{}"},
		"archive":   {"__MACOSX/._README.md": "x", "._README.md": "x", ".DS_Store": "x", "data/._train.parquet": "x"},
		"Windows":   {"Thumbs.db": "x", "data/desktop.ini": "[x]", "data/train.parquet.lock": "", "~$README.docx": "x"},
		"unrelated": {},
	} {
		dir := t.TempDir()
		tree(t, dir, map[string]string{"in/README.md": readme, "in/data/train-00000-of-00001.parquet": string(table)})
		for path, content := range added {
			tree(t, dir, map[string]string{"in/" + path: content})
		}
		if got, err := textsOf(t, func(*Options) {}, filepath.Join(dir, "in")); err != nil || got != readme+"|alpha|béta|gamma|" {
			t.Errorf("%s: got %q, %v; want nil error and readme + \"|alpha|béta|gamma|\"", name, got, err)
		}
	}
}

// TestProvidedLinks reads a snapshot of the Hub's cache, a folder with links, and a link to a
// folder.
func TestProvidedLinks(t *testing.T) {
	table, err := os.ReadFile(provided("table.pq"))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	tree(t, dir, map[string]string{"blobs/aa": string(table), "n7/a.txt": "real", "tgt.txt": "tgt", "n4/x.txt": "4", "deep/1/2/y.txt": "5"})
	for link, target := range map[string]string{
		"snap/data/train-00000-of-00001.parquet": "../../blobs/aa", "n7/b.txt": "../tgt.txt", "n7/more": "../n4", "l4": "n4", "n7/gone.txt": "nowhere", "n7/loop": "loop", "n7/dev": "/dev/null",
		"ll4": "l4", "out/far": "../deep", "absolute": filepath.Join(dir, "n4"),
	} {
		path := filepath.Join(dir, filepath.FromSlash(link))
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.Symlink(filepath.FromSlash(target), path)); err != nil {
			t.Fatal(err)
		}
	}
	for name, want := range map[string]string{
		"n7": "real|tgt|4|", "snap": "alpha|béta|gamma|", "l4": "4|", "l4/": "4|", "ll4": "4|", "out": "5|", "absolute": "4|", "snap/data/*.parquet": "alpha|béta|gamma|", "n7/b.txt": "tgt|",
	} {
		if got, err := textsOf(t, func(*Options) {}, dir+"/"+name); err != nil || got != want {
			t.Errorf("%s: %q, %v; want %q", name, got, err, want)
		}
	}
}

// TestFieldsThatNameNothing checks that errors show the flag.
func TestFieldsThatNameNothing(t *testing.T) {
	for message, test := range map[string]struct{ name, field, content string }{
		"missing key in a list":  {"a.json", "data.none", `{"data":[{"text":"a"}]}`},
		"missing item":           {"a.json", "data[5].text", `{"data":[{"text":"a"}]}`},
		"missing key":            {"a.jsonl", "a.b", `{"a":{"c":"d"}}`},
		"item of a column":       {"a.csv", "text[0]", "text\na\n"},
		"key of a column":        {"a.csv", "text.x", "text\na\n"},
		"file without any field": {"a.md", "text", "a"},
		"object":                 {"a.json", "text", `{"text":{"0":"a","1":"b"}}`},
		"key of an inner object": {"a.json", "text", `{"a":{"text":"x"}}`},
	} {
		refused(t, message, test.name, test.content, func(o *Options) { o.Field = test.field })
	}
}

// TestFingerprintHasEveryByte checks that names that are not UTF-8 differ in the fingerprint as
// they differ on disk.
func TestFingerprintHasEveryByte(t *testing.T) {
	seen := map[string]string{}
	for _, path := range []string{"caf\xe8", "caf\xe9", "caf\ufffd", "caf\xe9\xe9"} {
		print, err := options("x").fingerprint([]source{{path: path, inside: path}})
		if err != nil {
			t.Fatal(err)
		}
		if other, found := seen[print]; found {
			t.Errorf("%q and %q are the same", path, other)
		}
		seen[print] = path
	}
}
