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

	"github.com/psyche-go/psyche/assign"
	"github.com/psyche-go/psyche/data/local"
	"github.com/psyche-go/psyche/tokenizer"
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
	want := Manifest{
		Version: 1, Tokenizer: Tokenizer{Name: "bytes", VocabSize: 256, SHA256: got.Tokenizer.SHA256},
		TokenSizeInBytes: 2, Separator: []int32{'|'}, TextFiles: 5, Texts: 4, SkippedBinary: 2, Tokens: 8, HeldOutTokens: 11,
		Files:   []File{{Name: "train-00000.ds", Tokens: 8, SHA256: fileHash(t, filepath.Join(o.Output, "train-00000.ds"))}},
		HeldOut: []File{{Name: "heldout/heldout.ds", Tokens: 11, SHA256: fileHash(t, filepath.Join(o.Output, "heldout", "heldout.ds"))}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("manifest (-want +got):\n%s", diff)
	}
	if read, err := ReadManifest(o.Output); err != nil || cmp.Diff(want, read) != "" {
		t.Errorf("the manifest reads as %+v, %v", read, err)
	}
	if want := (Progress{Files: 7, SkippedBinary: 2, Texts: 4, Tokens: 8, HeldOutTokens: 11, Bytes: last.Bytes}); last != want {
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

func TestNothingIsOverwritten(t *testing.T) {
	dir := t.TempDir()
	tree(t, dir, map[string]string{"in/a": "new text", "out/train-00007.ds": "old", "out/notes.txt": "mine"})
	o := options(filepath.Join(dir, "in"))
	o.Output = filepath.Join(dir, "out")
	if _, err := Run(context.Background(), o); !errors.Is(err, ErrOutputExists) || !strings.Contains(err.Error(), "train-00007.ds") {
		t.Fatalf("got %v", err)
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
		text   string
	}{
		{"no text", context.Background(), func(*Options) {}, ErrNoText, "1 of them are not text"},
		{"nothing included", context.Background(), func(o *Options) { o.Include = []string{"*.go"} }, ErrNoText, "0 files were read"},
		{"nothing held out", context.Background(), func(o *Options) {
			o.Paths, o.HeldOutFraction = []string{filepath.Join(dir, "text")}, 1e-9
		}, ErrNoText, "to hold out"},
		{"missing path", context.Background(), func(o *Options) { o.Paths = []string{filepath.Join(dir, "nowhere")} }, fs.ErrNotExist, "nowhere"},
		{"missing held-out file", context.Background(), func(o *Options) { o.HeldOut = []string{filepath.Join(dir, "nowhere")} }, fs.ErrNotExist, "nowhere"},
		{"bad pattern", context.Background(), func(o *Options) { o.Include = []string{"["} }, nil, `include pattern "["`},
		{"bad separator", context.Background(), func(o *Options) { o.Separator = []int32{256} }, nil, "separator 256"},
		{"bad fraction", context.Background(), func(o *Options) { o.HeldOutFraction = 1 }, nil, "held-out fraction 1"},
		{"cancelled", cancelled, func(*Options) {}, context.Canceled, ""},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			o := options(filepath.Join(dir, "in"))
			o.Output = filepath.Join(dir, "out")
			test.change(&o)
			_, err := Run(test.ctx, o)
			if err == nil || test.want != nil && !errors.Is(err, test.want) || !strings.Contains(err.Error(), test.text) {
				t.Errorf("got %v, want %v with %q", err, test.want, test.text)
			}
			if _, err := os.Stat(o.Output); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("the output folder is there: %v", err)
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
		o.ShardTokens = rapid.IntRange(16, 100).Draw(r, "shard")
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

// TestHeldOutFractionIsOfFiles wants the share of files.
func TestHeldOutFractionIsOfFiles(t *testing.T) {
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

func FuzzReadManifest(f *testing.F) {
	text, err := Manifest{Version: 1, Files: []File{{Name: "a.ds", Tokens: 1}}}.encode()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(text)
	f.Fuzz(func(t *testing.T, text []byte) {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, ManifestName), text, 0o644); err != nil {
			t.Fatal(err)
		}
		if m, err := ReadManifest(dir); err == nil && m.Version != 1 {
			t.Fatalf("accepted %+v", m)
		}
	})
}
