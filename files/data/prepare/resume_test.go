package prepare

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/parquet-go/parquet-go"

	"github.com/psyche-go/psyche/base/fuzztest"
	"github.com/psyche-go/psyche/base/golden"
	"github.com/psyche-go/psyche/files/tokenizer"
)

type row struct {
	ID   int64   `parquet:"id"`
	Body *string `parquet:"body,optional"`
}

// mixed writes inputs of every format and returns options for them.
func mixed(t testing.TB, dir string) Options {
	t.Helper()
	random := rand.New(rand.NewPCG(1, 2))
	text := func() string {
		words := make([]string, 1+random.IntN(400))
		for i := range words {
			words[i] = fmt.Sprint("word", random.IntN(1000), []string{" ", "\n", " é", "中"}[random.IntN(4)])
		}
		return strings.Join(words, " ")
	}
	var lines, zipped bytes.Buffer
	for i := range 300 {
		line, _ := json.Marshal(map[string]any{"id": i, "body": text()})
		lines.Write(append(line, '\n'))
	}
	pack := gzip.NewWriter(&zipped)
	if _, err := pack.Write(lines.Bytes()[:bytes.LastIndexByte(lines.Bytes()[:1<<18], '\n')]); err != nil {
		t.Fatal(err)
	}
	if err := pack.Close(); err != nil {
		t.Fatal(err)
	}
	files := map[string]string{"in/b.jsonl": lines.String(), "in/c.jsonl.gz": zipped.String(), "in/z.bin": "\x00"}
	for i := range 20 {
		files[fmt.Sprintf("in/text/%02d.txt", i)] = text()
	}
	tree(t, dir, files)
	var table bytes.Buffer
	writer := parquet.NewGenericWriter[row](&table, parquet.PageBufferSize(1<<14), parquet.MaxRowsPerRowGroup(120))
	for i := range 400 {
		value := text()
		next := row{ID: int64(i), Body: &value}
		if i%17 == 0 {
			next.Body = nil
		}
		if _, err := writer.Write([]row{next}); err != nil {
			t.Fatal(err)
		}
	}
	if err := writer.Close(); err != nil {
		t.Fatal(err)
	}
	tree(t, dir, map[string]string{"in/d.parquet": table.String()})
	return Options{
		Paths: []string{filepath.Join(dir, "in")}, Tokenizer: tokenizer.Bytes(), TokenizerName: "bytes", Field: "body",
		Begin: []int32{1}, Separator: []int32{2}, HeldOutFraction: 0.05, ShardTokens: 200_000, journalEvery: 1, jobBytes: 1 << 15, Workers: 2,
	}
}

// contents returns every file of a folder by name.
func contents(t testing.TB, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, name := range files(t, dir) {
		raw, err := os.ReadFile(filepath.Join(dir, filepath.FromSlash(name)))
		if err != nil {
			t.Fatal(err)
		}
		all[name] = string(raw)
	}
	return all
}

func same(t testing.TB, want, got map[string]string) {
	t.Helper()
	for name := range want {
		if want[name] != got[name] {
			t.Errorf("%s differs: %d and %d bytes", name, len(want[name]), len(got[name]))
		}
	}
	if len(want) != len(got) {
		t.Errorf("%d files, want %d", len(got), len(want))
	}
}

func TestWorkersDoNotChangeTheOutcome(t *testing.T) {
	dir := t.TempDir()
	o := mixed(t, dir)
	var want map[string]string
	for _, workers := range []int{1, 2, 7} {
		o.Workers, o.Output = workers, filepath.Join(dir, fmt.Sprint("out", workers))
		m, err := Run(context.Background(), o)
		if err != nil {
			t.Fatal(err)
		}
		if m.Texts < 700 || m.SkippedBinary != 1 || m.HeldOutTokens == 0 || len(m.Files) < 3 {
			t.Errorf("the test tests little: %+v", m)
		}
		got := contents(t, o.Output)
		if want == nil {
			want = got
		}
		same(t, want, got)
	}
}

// TestInterruptedRunGoesOn interrupts a run at every entry of the journal in turn.
func TestInterruptedRunGoesOn(t *testing.T) {
	dir := t.TempDir()
	o := mixed(t, dir)
	o.Output = filepath.Join(dir, "whole")
	if _, err := Run(context.Background(), o); err != nil {
		t.Fatal(err)
	}
	want := contents(t, o.Output)
	o.Output = filepath.Join(dir, "parts")
	stops := 0
	for {
		ctx, cancel := context.WithCancel(context.Background())
		o.afterJournal = cancel
		_, err := Run(ctx, o)
		cancel()
		if err == nil {
			break
		}
		if !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		if stops++; stops > 200 {
			t.Fatal("it never ends")
		}
		if diff := cmp.Diff([]string{workName}, entries(t, o.Output)); diff != "" {
			t.Fatalf("while unfinished (-want +got):\n%s", diff)
		}
	}
	if stops < 10 {
		t.Errorf("only %d stops", stops)
	}
	same(t, want, contents(t, o.Output))
}

func entries(t testing.TB, dir string) (names []string) {
	t.Helper()
	all, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range all {
		names = append(names, entry.Name())
	}
	return names
}

// TestKilledRunGoesOn kills the process repeatedly.
func TestKilledRunGoesOn(t *testing.T) {
	if dir := os.Getenv("PREPARE_TEST_DIR"); dir != "" {
		o := mixedOptions(dir)
		count := 0
		o.afterJournal = func() {
			if count++; count == 3 {
				fmt.Println("journal")
				time.Sleep(time.Hour) // until the kill; Go ends a process in which all goroutines block forever
			}
		}
		if _, err := Run(context.Background(), o); err != nil {
			t.Fatal(err)
		}
		return
	}
	dir := t.TempDir()
	o := mixed(t, dir)
	o.Output = filepath.Join(dir, "whole")
	if _, err := Run(context.Background(), o); err != nil {
		t.Fatal(err)
	}
	want := contents(t, o.Output)
	kills := 0
	for ; kills < 50; kills++ {
		child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestKilledRunGoesOn$")
		child.Env = append(os.Environ(), "PREPARE_TEST_DIR="+dir)
		out, err := child.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := child.Start(); err != nil {
			t.Fatal(err)
		}
		signal := make([]byte, len("journal"))
		if _, err := io.ReadFull(out, signal); err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Fatal(err)
		}
		if string(signal) != "journal" { // it passed
			if err := child.Wait(); err != nil {
				t.Fatal(err)
			}
			break
		}
		if _, err := Run(t.Context(), mixedOptions(dir)); !errors.Is(err, errBusy) {
			t.Errorf("a second process: %v", err)
		}
		if err := child.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = child.Wait() // killed
	}
	if kills < 3 {
		t.Errorf("only %d kills", kills)
	}
	same(t, want, contents(t, filepath.Join(dir, "killed")))
}

// mixedOptions returns the options of mixed for existing files.
func mixedOptions(dir string) Options {
	return Options{
		Paths: []string{filepath.Join(dir, "in")}, Tokenizer: tokenizer.Bytes(), TokenizerName: "bytes", Field: "body", Output: filepath.Join(dir, "killed"),
		Begin: []int32{1}, Separator: []int32{2}, HeldOutFraction: 0.05, ShardTokens: 200_000, journalEvery: 1, jobBytes: 1 << 15, Workers: 2,
	}
}

func TestUnfinishedRunOfOthers(t *testing.T) {
	dir := t.TempDir()
	o := mixed(t, dir)
	o.Output = filepath.Join(dir, "out")
	ctx, cancel := context.WithCancel(context.Background())
	o.afterJournal = cancel
	if _, err := Run(ctx, o); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	o.afterJournal = nil
	o.Separator = []int32{3}
	if _, err := Run(context.Background(), o); !errors.Is(err, errUnfinished) {
		t.Errorf("got %v; want error errUnfinished", err)
	}
	o.Force = true
	if _, err := Run(context.Background(), o); err != nil {
		t.Error(err)
	}
}

func TestBadInputNamesFileAndLine(t *testing.T) {
	dir := t.TempDir()
	tree(t, dir, map[string]string{
		"key.jsonl": "{\"text\": \"a\"}\n\n{\"body\": \"b\"}\n", "type.jsonl": `{"text": 5}`, "json.jsonl": "{\"text\": \"a\"}\nnonsense",
		"utf8.jsonl": "{\"text\": \"a\xff\"}", "half.jsonl": `{"text": "a"}` + "\n" + `{"text": "\ud83d \ude00"}`,
		"whole.jsonl": `{"text": "\ud83d\ude00", "other": "\ud83d"}`, "bad.parquet": "PAR1 nonsense PAR1", "null.jsonl": `{"text": null}`,
	})
	var zipped bytes.Buffer
	pack := gzip.NewWriter(&zipped)
	if _, err := io.WriteString(pack, strings.Repeat("{\"text\": \"a\"}\n", 100)); err != nil {
		t.Fatal(err)
	}
	if err := pack.Close(); err != nil {
		t.Fatal(err)
	}
	tree(t, dir, map[string]string{"cut.jsonl.gz": zipped.String()[:zipped.Len()-4]})
	o := options(filepath.Join(dir, "whole.jsonl"))
	o.Output = filepath.Join(dir, "whole")
	if _, err := Run(context.Background(), o); err != nil || text(t, filepath.Join(o.Output, "train-00000.ds")) != "😀|" {
		t.Errorf("a pair of surrogates: %v", err)
	}
	type number struct {
		Text float64 `parquet:"text"`
	}
	if err := parquet.WriteFile(filepath.Join(dir, "number.parquet"), []number{{1}}); err != nil {
		t.Fatal(err)
	}
	type group struct {
		Text struct {
			Inner string `parquet:"inner"`
		} `parquet:"text"`
	}
	if err := parquet.WriteFile(filepath.Join(dir, "group.parquet"), []group{{}}); err != nil {
		t.Fatal(err)
	}
	type row struct {
		Text string `parquet:"text"`
	}
	if err := parquet.WriteFile(filepath.Join(dir, "rows.parquet"), []row{}); err != nil {
		t.Fatal(err)
	}
	if err := parquet.WriteFile(filepath.Join(dir, "empty.parquet"), []row{{}, {}}); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{
		"number.parquet", "group.parquet", "rows.parquet", "empty.parquet",
		"key.jsonl", "type.jsonl", "json.jsonl", "half.jsonl", "cut.jsonl.gz", "utf8.jsonl",
		"bad.parquet", "null.jsonl", "*.nothing",
	} {
		o := options(filepath.Join(dir, name))
		o.Output = filepath.Join(dir, "out")
		_, err := Run(context.Background(), o)
		golden.Message(t, name, err)
		if _, err := os.Stat(o.Output); err == nil {
			t.Errorf("%s: there is output", name)
		}
	}
}

func FuzzLines(f *testing.F) {
	f.Add([]byte("{\"text\": \"a\"}\n{\"text\": \"\\ud800\"}"), 1)
	fuzztest.Run(f, func(t *testing.T, content []byte, position int) {
		path := filepath.Join(t.TempDir(), "a.jsonl")
		if err := os.WriteFile(path, content, 0o644); err != nil {
			t.Fatal(err)
		}
		r, err := Options{Field: "text"}.open(t.Context(), source{path: path, format: formatJSONL}, int64(position))
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

func FuzzParquet(f *testing.F) {
	var table bytes.Buffer
	value := "some text"
	if err := parquet.Write(&table, []row{{1, &value}, {2, nil}}); err != nil {
		f.Fatal(err)
	}
	f.Add(table.Bytes())
	for _, name := range []string{"shared.parquet", "shared-v2.parquet", "lengths-v1.parquet"} {
		raw, err := os.ReadFile(filepath.Join("testdata", "variants", name))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(raw)
	}
	fuzztest.Run(f, func(t *testing.T, content []byte) {
		field := "body"
		if bytes.Contains(content, []byte("input_ids")) {
			field = "text"
		}
		path := filepath.Join(t.TempDir(), "a.parquet")
		if err := os.WriteFile(path, content, 0o644); err != nil {
			t.Fatal(err)
		}
		r, err := Options{Field: field}.open(t.Context(), source{path: path, format: formatParquet}, 0)
		if err != nil {
			return
		}
		for n := 0; err == nil && n < 1000; n++ {
			_, err = r.next()
		}
		if err := r.Close(); err != nil {
			t.Fatal(err)
		}
	})
}
