package prepare

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/psyche-go/psyche/base/golden"
	"github.com/psyche-go/psyche/files/data/walk"
)

// TestHiddenNamesAreNoText reads a folder that the Hub's program downloaded, and a checkout. It
// checks that only the data is read, and that the other files of each folder are counted.
func TestHiddenNamesAreNoText(t *testing.T) {
	files := map[string]string{
		"texts/.gitattributes": "x", "texts/.cache/huggingface/CACHEDIR.TAG": "x", "texts/.cache/huggingface/download/a.metadata": "x",
		"texts/data/a.jsonl": `{"text":"alpha"}`, "texts/data/._a.jsonl": "\x00\x05", "texts/data/a.jsonl.lock": "", "texts/.git/hooks/pre-push": "x",
	}
	for hidden, want := range map[bool]string{false: "alpha|", true: "x|x|x|x|alpha|"} {
		dir := t.TempDir()
		tree(t, dir, files)
		o := options(filepath.Join(dir, "texts"))
		o.Output, o.Hidden = filepath.Join(dir, "out"), hidden
		if hidden { // it is not JSON
			if err := os.Remove(filepath.Join(dir, "texts", "data", "._a.jsonl")); err != nil {
				t.Fatal(err)
			}
		}
		made, err := Run(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		if got := text(t, filepath.Join(o.Output, "train-00000.ds")); got != want || (made.HiddenLeftOut == 0) != hidden {
			t.Errorf("%q, %d left out; want %q", got, made.HiddenLeftOut, want)
		}
	}
}

// TestLinksAreFollowed follows links in a folder, and a link to a folder.
func TestLinksAreFollowed(t *testing.T) {
	dir := t.TempDir()
	tree(t, dir, map[string]string{"n/a.txt": "real", "tgt.txt": "tgt", "m/x.txt": "4"})
	for link, target := range map[string]string{
		"n/b.txt": "../tgt.txt", "n/more": "../m", "n/up": ".", "l": "m", "linked": "n",
	} {
		if err := os.Symlink(filepath.FromSlash(target), filepath.Join(dir, filepath.FromSlash(link))); err != nil {
			t.Fatal(err)
		}
	}
	for name, test := range map[string]struct {
		want        string
		links, left int
	}{"n": {"real|tgt|4|", 2, 1}, "linked": {"real|tgt|4|", 2, 1}, "l": {"4|", 0, 0}} {
		o := options(filepath.Join(dir, name))
		o.Output = filepath.Join(t.TempDir(), "out")
		made, err := Run(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		if got := text(t, filepath.Join(o.Output, "train-00000.ds")); got != test.want || made.LinksFollowed != test.links || made.LinksLeftOut != test.left {
			t.Errorf("%s: %q, %d links followed, %d left out; want %+v", name, got, made.LinksFollowed, made.LinksLeftOut, test)
		}
	}
}

// TestOnlyHiddenNames checks that the error names the flag.
func TestOnlyHiddenNames(t *testing.T) {
	dir := t.TempDir()
	tree(t, dir, map[string]string{"texts/.a": "x", "texts/.b/c": "x"})
	o := options(filepath.Join(dir, "texts"))
	o.Output = filepath.Join(dir, "out")
	_, err := Run(t.Context(), o)
	golden.Message(t, "hidden", err)
}

// TestConverseFolder reads the JSON lines of a folder, without hidden names.
func TestConverseFolder(t *testing.T) {
	dir := t.TempDir()
	tree(t, dir, map[string]string{
		"c/2.jsonl": "", "c/10.ndjson": "", "c/.x/a.jsonl": "", "c/._2.jsonl": "", "c/README.md": "", "c/dataset_info.json": `{"a": {"file_name": "b.json"}}`,
		"c/20.json": `[{"instruction": "a", "output": "b"}]`, "c/30.json": "{}\n{}\n", "c/names.json": `["a"]`, "c/empty.json": "", "c/table.parquet": "", "c/40.jsonl.gz": "",
	})
	paths, others, met, err := SampleOptions{Paths: []string{filepath.Join(dir, "c")}}.files()
	if err != nil {
		t.Fatal(err)
	}
	want := []string{filepath.Join(dir, "c", "2.jsonl"), filepath.Join(dir, "c", "10.ndjson"), filepath.Join(dir, "c", "20.json"), filepath.Join(dir, "c", "30.json"), filepath.Join(dir, "c", "40.jsonl.gz")}
	if diff := cmp.Diff(want, paths); diff != "" || met != (walk.Counts{Hidden: 2}) || others != 5 {
		t.Errorf("%s, %d others, %+v", diff, others, met)
	}
	tree(t, dir, map[string]string{"d/a.txt": ""})
	if _, _, _, err := (SampleOptions{Paths: []string{filepath.Join(dir, "d")}}).files(); !errors.Is(err, errTables) {
		t.Error(err)
	} else {
		golden.Message(t, "no JSON lines", err)
	}
}
