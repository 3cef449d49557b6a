package prepare

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/psyche-go/psyche/base/golden"
	"github.com/psyche-go/psyche/core/assign"
	"github.com/psyche-go/psyche/files/data/local"
	"github.com/psyche-go/psyche/files/data/manifest"
	"github.com/psyche-go/psyche/files/tokenizer"
)

// tree writes files by their path in a folder.
func tree(t testing.TB, dir string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		path := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// text returns the tokens of a two-byte token file as bytes.
func text(t testing.TB, path string) string {
	t.Helper()
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var bytes []byte
	for i := 0; i < len(raw); i += 2 {
		bytes = append(bytes, byte(binary.LittleEndian.Uint16(raw[i:])))
	}
	return string(bytes)
}

func options(paths ...string) Options {
	return Options{Paths: paths, Tokenizer: tokenizer.Bytes(), TokenizerName: "bytes", TokenSize: 2, Separator: []int32{'|'}}
}

func files(t testing.TB, dir string) []string {
	t.Helper()
	var names []string
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && !entry.IsDir() {
			inside, _ := filepath.Rel(dir, path)
			names = append(names, filepath.ToSlash(inside))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}

func TestRun(t *testing.T) {
	dir := t.TempDir()
	tree(t, dir, map[string]string{
		"in/b.go": "two", "in/a/z.go": "one", "in/c.txt": "no", "in/d.go": "three", "in/e.go": "nul\x00", "in/f.go": "\xff", "in/g.go": "",
		"held.go": "held",
	})
	o := options(filepath.Join(dir, "in"))
	o.Output = filepath.Join(dir, "out", "data")
	o.Include = []string{"*.go"}
	o.HeldOut = []string{filepath.Join(dir, "held.go"), filepath.Join(dir, "in", "d.go")}
	var last Progress
	o.Progress = func(p Progress) { last = p }
	got, err := Run(context.Background(), o)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"data.json", "heldout/heldout.ds", "train-00000.ds"}, files(t, o.Output)); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
	if got := text(t, filepath.Join(o.Output, "train-00000.ds")); got != "one|two|" {
		t.Errorf("training text is %q", got)
	}
	if got := text(t, filepath.Join(o.Output, "heldout", "heldout.ds")); got != "held|three|" {
		t.Errorf("held-out text is %q", got)
	}
	want := manifest.Manifest{
		Version: 1, Tokenizer: manifest.Tokenizer{Name: "bytes", VocabSize: 256, SHA256: got.Tokenizer.SHA256},
		TokenSizeInBytes: 2, Separator: []int32{'|'}, TextFiles: 5, Texts: 4, SkippedBinary: 2, Tokens: 8, HeldOutTokens: 11,
		Files:   []manifest.File{{Name: "train-00000.ds", Tokens: 8, SHA256: fileHash(t, filepath.Join(o.Output, "train-00000.ds"))}},
		HeldOut: []manifest.File{{Name: "heldout/heldout.ds", Tokens: 11, SHA256: fileHash(t, filepath.Join(o.Output, "heldout", "heldout.ds"))}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("manifest (-want +got):\n%s", diff)
	}
	if read, found, err := manifest.Read(o.Output); err != nil || !found || cmp.Diff(want, read) != "" {
		t.Errorf("the manifest reads as %+v, %v", read, err)
	}
	if want := (Progress{Files: 7, SkippedBinary: 2, FirstSkipped: filepath.Join(dir, "in", "e.go") + ": not UTF-8 text", Texts: 4, Tokens: 8, HeldOutTokens: 11, Bytes: last.Bytes, Input: last.AllInput, AllInput: last.AllInput}); last.Input == 0 || last != want {
		t.Errorf("progress ends at %+v, want %+v", last, want)
	}
}

func fileHash(t testing.TB, path string) string {
	t.Helper()
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(raw)
	return hex.EncodeToString(sum[:])
}

// TestEmptyTextsHaveNoTokens checks that an empty text also has no tokens around it.
func TestEmptyTextsHaveNoTokens(t *testing.T) {
	dir := t.TempDir()
	tree(t, dir, map[string]string{"a.jsonl": "{\"text\": \"\"}\n{\"text\": \"a\"}\n{\"text\": null}\n", "b.txt": ""})
	o := options(dir)
	o.Output, o.Begin = t.TempDir(), []int32{'<'}
	made, err := Run(context.Background(), o)
	if err != nil {
		t.Fatal(err)
	}
	if got := text(t, filepath.Join(o.Output, "train-00000.ds")); got != "<a|" || made.Texts != 1 {
		t.Errorf("%d texts, %q", made.Texts, got)
	}
}

// TestInputsAreInNaturalOrder checks that numbers within names are compared as numbers, as in the
// names of token files.
func TestInputsAreInNaturalOrder(t *testing.T) {
	dir := t.TempDir()
	tree(t, dir, map[string]string{
		"train-1.txt": "1", "train-2.txt": "2", "train-10-of-12.txt": "10", "part-10/a.txt": "b", "part-9/b.txt": "a",
	})
	for _, test := range []struct{ path, want string }{{dir, "a|b|1|2|10|"}, {filepath.Join(dir, "train-*.txt"), "1|2|10|"}} {
		o := options(test.path)
		o.Output = t.TempDir()
		if _, err := Run(context.Background(), o); err != nil {
			t.Fatal(err)
		}
		if got := text(t, filepath.Join(o.Output, "train-00000.ds")); got != test.want {
			t.Errorf("%s: got %q, want %q", test.path, got, test.want)
		}
	}
}

func TestNothingIsOverwritten(t *testing.T) {
	dir := t.TempDir()
	tree(t, dir, map[string]string{"in/a": "new text", "out/train-00007.ds": "old", "out/notes.txt": "mine"})
	o := options(filepath.Join(dir, "in"))
	o.Output = filepath.Join(dir, "out")
	if _, err := Run(context.Background(), o); !errors.Is(err, errOutputExists) || !strings.Contains(err.Error(), "train-00007.ds") {
		t.Fatalf("got %v; want error errOutputExists and text with \"train-00007.ds\"", err)
	}
	if diff := cmp.Diff([]string{"notes.txt", "train-00007.ds"}, files(t, o.Output)); diff != "" {
		t.Errorf("after the refusal (-want +got):\n%s", diff)
	}
	o.Force = true
	if _, err := Run(context.Background(), o); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"data.json", "notes.txt", "train-00000.ds"}, files(t, o.Output)); diff != "" {
		t.Errorf("after --force (-want +got):\n%s", diff)
	}
}

func TestFailureLeavesNothing(t *testing.T) {
	dir := t.TempDir()
	tree(t, dir, map[string]string{"in/a": "nul\x00", "text/b": "text"})
	cancelled, cancel := context.WithCancel(context.Background())
	cancel()
	tests := []struct {
		name   string
		ctx    context.Context
		change func(*Options)
		want   error
	}{
		{"no text", context.Background(), func(*Options) {}, errNoText},
		{"nothing included", context.Background(), func(o *Options) { o.Include = []string{"*.go"} }, errNoText},
		{"nothing held out", context.Background(), func(o *Options) {
			o.Paths, o.HeldOutFraction = []string{filepath.Join(dir, "text")}, 1e-9
		}, errNoText},
		{"missing path", context.Background(), func(o *Options) { o.Paths = []string{filepath.Join(dir, "nowhere")} }, fs.ErrNotExist},
		{"missing held-out file", context.Background(), func(o *Options) { o.HeldOut = []string{filepath.Join(dir, "nowhere")} }, fs.ErrNotExist},
		{"bad pattern", context.Background(), func(o *Options) { o.Include = []string{"["} }, nil},
		{"bad separator", context.Background(), func(o *Options) { o.Separator = []int32{256} }, nil},
		{"bad fraction", context.Background(), func(o *Options) { o.HeldOutFraction = 1 }, nil},
		{"tiny files", context.Background(), func(o *Options) { o.ShardTokens = 10 }, nil},
		{"cancelled", cancelled, func(*Options) {}, context.Canceled},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			o := options(filepath.Join(dir, "in"))
			o.Output = filepath.Join(dir, "out")
			test.change(&o)
			_, err := Run(test.ctx, o)
			if test.want != nil && !errors.Is(err, test.want) {
				t.Errorf("got %v, want %v", err, test.want)
			}
			golden.Message(t, test.name, err)
			if _, err := os.Stat(o.Output); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("the output folder exists: %v", err)
			}
		})
	}
}

// TestShardsHoldEverything splits text at every kind of boundary and reads it back.
func TestShardsHoldEverything(t *testing.T) {
	dir := t.TempDir()
	round := 0
	rapid.Check(t, func(r *rapid.T) {
		round++
		texts := rapid.SliceOfN(rapid.StringMatching(`[a-z]{1,80}`), 1, 4).Draw(r, "texts")
		o := options()
		in := filepath.Join(dir, "in", string(rune('0'+round%10)), rapid.StringMatching(`[a-z]{12}`).Draw(r, "folder"))
		if err := os.RemoveAll(in); err != nil {
			r.Fatal(err)
		}
		all := ""
		for i, text := range texts {
			tree(t, in, map[string]string{string(rune('a' + i)): text})
			all += text + "|"
		}
		o.Paths = []string{in}
		o.Output = filepath.Join(dir, "out")
		o.Force = true
		o.ShardTokens, o.smallShards = rapid.IntRange(16, 100).Draw(r, "shard"), true
		m, err := Run(context.Background(), o)
		if err != nil {
			r.Fatal(err)
		}
		got := ""
		for i, file := range m.Files {
			part := text(t, filepath.Join(o.Output, file.Name))
			if len(part) > o.ShardTokens+o.ShardTokens/16+1 || len(part) <= o.ShardTokens/16 && len(m.Files) > 1 {
				r.Errorf("file %d of %d has %d tokens, the bound is %d", i, len(m.Files), len(part), o.ShardTokens)
			}
			got += part
		}
		if got != all {
			r.Errorf("got %q, want %q", got, all)
		}
	})
}

func TestFolderIsReadByLocal(t *testing.T) {
	dir := t.TempDir()
	tree(t, dir, map[string]string{"in/a": "abcdefgh"})
	o := options(filepath.Join(dir, "in"))
	o.Output = filepath.Join(dir, "out")
	o.TokenSize = 4
	if _, err := Run(context.Background(), o); err != nil {
		t.Fatal(err)
	}
	folder, err := local.Open(o.Output, local.Options{SeqLen: 4, TokenSize: 4, VocabSize: 256})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = folder.Close() }()
	got, err := folder.Sequences(context.Background(), assign.BatchID{Start: 0, End: 2})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([][]int32{{'a', 'b', 'c', 'd', 'e'}, {'e', 'f', 'g', 'h', '|'}}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestHeldOutFractionCountsFiles checks the share of held-out files.
func TestHeldOutFractionCountsFiles(t *testing.T) {
	o := Options{HeldOutFraction: 0.1}
	count := 0
	for i := range 5000 {
		name := "folder/" + string(rune('a'+i%26)) + "/" + hex.EncodeToString([]byte{byte(i), byte(i >> 8)})
		if o.isHeldOut(name) {
			count++
		}
	}
	if count < 400 || count > 600 {
		t.Errorf("%d of 5000 files are held out, want about 500", count)
	}
}

// TestAShareHoldsOutSomething checks that at least one of two or more texts is held out, the same
// text in every run.
func TestAShareHoldsOutSomething(t *testing.T) {
	dir := t.TempDir()
	tree(t, dir, map[string]string{
		"texts/a": "aa", "texts/b": "bb", "texts/c": "cc", "texts/d": "\x00", "texts/e": "\x00", "texts/f": "",
		"lines/l.jsonl": `{"text":""}` + "\n" + `{"text":"aa"}` + "\n" + `{"text":"bb"}` + "\n" + `{"text":"cc"}`,
		"one/a":         "aa", "one/b": "", "one/c": "\x00",
	})
	in := func(names ...string) (paths []string) {
		for _, name := range names {
			paths = append(paths, filepath.Join(dir, filepath.FromSlash(name)))
		}
		return paths
	}
	for name, test := range map[string]struct {
		paths []string
		held  int // texts
	}{
		"files":             {in("texts"), 1},
		"lines":             {in("lines"), 1},
		"both":              {in("texts", "lines"), 1},
		"lines by name":     {in("lines/l.jsonl"), 1},
		"one text":          {in("one"), 0},
		"files by name":     {in("texts/a", "texts/b"), 0},
		"one can be chosen": {in("texts/b", "one"), 1},
	} {
		t.Run(name, func(t *testing.T) {
			var held string
			for _, workers := range []int{1, 3} {
				o := options(test.paths...)
				o.Output, o.HeldOutFraction, o.Workers = filepath.Join(t.TempDir(), "out"), 1e-9, workers
				m, err := Run(context.Background(), o)
				if test.held == 0 {
					if !errors.Is(err, errNoText) {
						t.Errorf("got %v; want error errNoText", err)
					}
					return
				}
				if err != nil {
					t.Fatal(err)
				}
				got := text(t, filepath.Join(o.Output, filepath.FromSlash(heldOutName)))
				if len(got) != 3*test.held || m.Tokens != uint64(3*(m.Texts-test.held)) {
					t.Errorf("held out %q, %d tokens remain of %d texts", got, m.Tokens, m.Texts)
				}
				if held != "" && held != got {
					t.Errorf("held out %q, then %q", held, got)
				}
				held = got
			}
		})
	}
}

// TestTokensAreNoText checks that folders of tokens within a folder of text are ignored.
func TestTokensAreNoText(t *testing.T) {
	dir := t.TempDir()
	tree(t, dir, map[string]string{
		"in/a": "text", "in/mine/data.json": `{"text": 1}`, "in/unfinished/.tokenize/journal.jsonl": "{}",
	})
	o := options(filepath.Join(dir, "in"))
	o.Output = filepath.Join(dir, "in", "made", "tokens")
	first, err := Run(context.Background(), o)
	if err != nil {
		t.Fatal(err)
	}
	o.Output = filepath.Join(dir, "out")
	second, err := Run(context.Background(), o)
	if err != nil {
		t.Fatal(err)
	}
	if first.Texts != 2 || second.Texts != 2 || second.SkippedBinary != 0 {
		t.Errorf("read %d texts, then %d and %d binary files; want 2, 2 and 0", first.Texts, second.Texts, second.SkippedBinary)
	}
	o = options(filepath.Join(dir, "out"))
	o.Output = filepath.Join(dir, "again")
	_, err = Run(context.Background(), o)
	golden.Message(t, "tokens", err)
}
