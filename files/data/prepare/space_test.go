package prepare

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/psyche-go/psyche/base/diskspace"
	"github.com/psyche-go/psyche/base/diskspace/diskspacetest"
	"github.com/psyche-go/psyche/base/golden"
	"github.com/psyche-go/psyche/files/tokenizer"
	"github.com/psyche-go/psyche/files/tokenizer/chat"
)

// free is a probe that reports a number of free bytes on a disk.
func free(bytes uint64) diskspace.Probe {
	return func(string) diskspace.Space { return diskspace.Bytes(bytes) }
}

// TestNoSpaceForTokens checks that output that does not fit is refused at the start, with numbers.
func TestNoSpaceForTokens(t *testing.T) {
	const size = 100 << 10 // of each text
	text := strings.Repeat("0123456789abcde\n", size/16)
	dir := t.TempDir()
	tree(t, dir, map[string]string{
		"in/a.txt": text, "in/b.txt": text, "in/small.txt": "a", "in/c.bin": "\x00" + text, "in/d.jsonl": `{"text": "a"}` + "\n", "table/a.csv": "text\n" + text,
	})
	run := func(input string, probe diskspace.Probe) error {
		o := options(filepath.Join(dir, input))
		o.Output, o.Space = filepath.Join(dir, "out"+strings.ReplaceAll(input, "/", "-")), probe
		_, err := Run(t.Context(), o)
		return err
	}
	const need = 2 * 2 * size // two texts, of two bytes per token
	for input, minimum := range map[string]uint64{"in": need, "in/a.txt": need / 2, "in/small.txt": 1, "in/d.jsonl": 1, "table": 1} {
		err := run(input, free(minimum-1))
		if !errors.Is(err, diskspace.ErrTooLittle) {
			t.Errorf("%s: got %v; want error diskspace.ErrTooLittle", input, err)
		}
		golden.Message(t, input, err)
		if _, err := os.Stat(filepath.Join(dir, "out"+strings.ReplaceAll(input, "/", "-"))); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: the folder is left: %v", input, err)
		}
		if err := run(input, free(minimum)); err != nil {
			t.Errorf("%s, with enough space: %v", input, err)
		}
	}
	if err := run("in/b.txt", func(string) diskspace.Space { return diskspace.Space{} }); err != nil {
		t.Errorf("unknown space: %v", err)
	}
}

// TestSpaceToResume checks that an interrupted run needs no space for the tokens that it has written already.
func TestSpaceToResume(t *testing.T) {
	const size = 256 << 10
	dir := t.TempDir()
	text := strings.Repeat("0123456789abcde\n", size/16)
	tree(t, dir, map[string]string{"a.txt": text, "b.txt": text, "c.txt": text})
	o := options(dir)
	o.Output = filepath.Join(dir, "out")
	o = o.withDefaults()
	sources, _, err := o.sources()
	if err != nil {
		t.Fatal(err)
	}
	for written, need := range map[int64]uint64{0: 3 * 2 * size, size: 2 * 2 * size, 3 * size: 1, 4 * size: 1} {
		r := &run{o: o, at: entry{Next: place{Source: int(max(written/size-1, 0)), Read: 1}, Progress: Progress{Tokens: uint64(written) / 2, HeldOutTokens: uint64(written) / 2}}}
		if r.o.Space = free(need - 1); !errors.Is(r.checkSpace(t.Context(), sources), diskspace.ErrTooLittle) {
			t.Errorf("%d bytes are written: %d are enough", written, need-1)
		}
		r.o.Space = free(need)
		if err := r.checkSpace(t.Context(), sources); err != nil {
			t.Errorf("%d bytes are written: %v", written, err)
		}
	}
}

// TestDiskFillsWhileTokensAreWritten checks that the error names the file, the kept files and the
// way to resume, and that no data.json exists until the run is complete.
func TestDiskFillsWhileTokensAreWritten(t *testing.T) {
	input := t.TempDir()
	random := rand.New(rand.NewPCG(3, 4))
	files := map[string]string{}
	for i := range 40 {
		content := make([]byte, 16<<10)
		for j := range content {
			content[j] = byte('a' + random.IntN(26))
		}
		files[fmt.Sprintf("in/%02d.txt", i)] = string(content)
	}
	tree(t, input, files)
	o := options(filepath.Join(input, "in"))
	o.Output, o.journalEvery, o.jobBytes, o.Workers = filepath.Join(input, "whole"), 1, 1<<14, 2
	if _, err := Run(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	want := contents(t, o.Output)
	dir := diskspacetest.Mount(t, 2<<20)
	if err := os.WriteFile(filepath.Join(dir, "ballast"), make([]byte, 3<<19), 0o600); err != nil {
		t.Fatal(err)
	}
	o.Output = filepath.Join(dir, "out")
	_, err := Run(t.Context(), o)
	if !diskspace.IsFull(err) || !strings.Contains(err.Error(), filepath.Join(o.Output, workName, "train-00000.ds")) {
		t.Fatal(err)
	}
	if entries, _ := os.ReadDir(o.Output); len(entries) != 1 || entries[0].Name() != workName {
		t.Errorf("%v look complete", entries)
	}
	if err := os.Remove(filepath.Join(dir, "ballast")); err != nil {
		t.Fatal(err)
	}
	first := true
	o.Progress = func(p Progress) {
		if first && p.Files < 5 {
			t.Errorf("it starts again, from file %d", p.Files)
		}
		first = false
	}
	if _, err := Run(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	same(t, want, contents(t, o.Output))
}

// TestNoSpaceForSamples checks that a full disk is refused, and that a disk that fills later leaves
// no samples.
func TestNoSpaceForSamples(t *testing.T) {
	in := t.TempDir()
	var lines bytes.Buffer
	random := rand.New(rand.NewPCG(5, 6))
	for range 400 {
		lines.WriteString(`{"messages":[{"role":"user","content":"q"},{"role":"assistant","content":"`)
		for range 500 {
			lines.WriteByte(byte('a' + random.IntN(26)))
		}
		lines.WriteString("\"}]}\n")
	}
	tree(t, in, map[string]string{"a.jsonl": lines.String()})
	template, err := chat.Parse(talk)
	if err != nil {
		t.Fatal(err)
	}
	o := SampleOptions{
		Paths: []string{filepath.Join(in, "a.jsonl")}, Output: filepath.Join(in, "out"), SeqLen: 1024, Tokenizer: tokenizer.Bytes(), Template: template, Space: free(0),
	}
	if _, err := Converse(context.Background(), o); !errors.Is(err, diskspace.ErrTooLittle) || !strings.Contains(err.Error(), o.Output) {
		t.Error(err)
	}
	dir := diskspacetest.Mount(t, 64<<10)
	o.Output, o.Space = filepath.Join(dir, "out"), nil
	_, err = Converse(context.Background(), o)
	if !diskspace.IsFull(err) || !strings.Contains(err.Error(), o.Output) {
		t.Fatal(err)
	}
	if left, _ := os.ReadDir(o.Output); len(left) > 0 {
		t.Errorf("%v are left", left)
	}
}
