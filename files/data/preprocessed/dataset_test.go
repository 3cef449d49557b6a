package preprocessed

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/parquet-go/parquet-go"

	"github.com/psyche-go/psyche/base/fuzztest"
	"github.com/psyche-go/psyche/base/golden"
	"github.com/psyche-go/psyche/files/data/tokens"
)

// full is a row as in data sets for fine-tuning.
type full struct {
	Text      string  `parquet:"text,snappy"`
	Inputs    []int32 `parquet:"inputs,list,zstd"`
	Labels    []int64 `parquet:"labels,list,gzip"`
	Positions []int32 `parquet:"position_ids,list"`
}

type plain struct {
	IDs []uint16 `parquet:"input_ids,list"`
}

type packed struct {
	Inputs  []int32 `parquet:"inputs"` // repeated, without a list around it
	Lengths []int32 `parquet:"sequence_lengths,list"`
}

func encode[T any](t testing.TB, rows []T, options ...parquet.WriterOption) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := parquet.Write(&b, rows, options...); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func write(t testing.TB, path string, content []byte) {
	t.Helper()
	if err := os.WriteFile(path, content, 0o644); err != nil {
		t.Fatal(err)
	}
}

func open(t testing.TB, dir string, o Options) *Dataset {
	t.Helper()
	d, err := Open(dir, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return d
}

// rows returns n rows of at least n tokens. Row i begins with token i.
func rows(first, n int) []full {
	all := make([]full, n)
	for i := range all {
		all[i].Text = strings.Repeat("x", i)
		for j := range 3 + i%3 {
			all[i].Inputs = append(all[i].Inputs, int32(first+i+j))
			all[i].Labels = append(all[i].Labels, int64(first+i+j))
			all[i].Positions = append(all[i].Positions, int32(j))
		}
		all[i].Labels[0] = IgnoreLabel
	}
	return all
}

func sample(row full) Sample {
	s := Sample{Tokens: row.Inputs, Positions: row.Positions}
	for _, label := range row.Labels {
		s.Labels = append(s.Labels, int32(label))
	}
	return s
}

func TestSamplesOfAllFiles(t *testing.T) {
	dir := t.TempDir()
	var want []Sample
	for i, name := range []string{"train-2.parquet", "train-10.parquet"} {
		part := rows(100*i, 50)
		// Small pages and row groups, so that the rows are spread over many of them.
		write(t, filepath.Join(dir, name), encode(t, part, parquet.MaxRowsPerRowGroup(20), parquet.PageBufferSize(64),
			parquet.DataPageVersion(1+i)))
		for _, row := range part {
			want = append(want, sample(row))
		}
	}
	d := open(t, dir, Options{SeqLen: 5, VocabSize: 1000})
	if d.Len() != 100 {
		t.Fatalf("%d samples", d.Len())
	}
	for _, indices := range [][]uint64{{0, 1, 2}, {99, 0, 57, 57, 3, 101}, {199, 42}} {
		got, err := d.Read(t.Context(), indices)
		if err != nil {
			t.Fatal(err)
		}
		for i, index := range indices {
			if diff := cmp.Diff(want[index%100], got[i]); diff != "" {
				t.Errorf("index %d (-want +got):\n%s", index, diff)
			}
		}
	}
}

// TestHiddenFilesAreNoSamples checks that the ._data.parquet files that macOS writes for each
// data.parquet are ignored.
func TestHiddenFilesAreNoSamples(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "data.parquet"), encode(t, []plain{{IDs: []uint16{1, 2}}}))
	write(t, filepath.Join(dir, "._data.parquet"), []byte{0, 5, 22, 7})
	if d := open(t, dir, Options{SeqLen: 4}); d.Len() != 1 {
		t.Errorf("%d samples", d.Len())
	}
}

func TestOnlyInputs(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.parquet")
	write(t, path, encode(t, []plain{{[]uint16{1, 65535}}, {[]uint16{2, 3}}}))
	got, err := open(t, path, Options{SeqLen: 5}).Read(t.Context(), []uint64{0, 1})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]Sample{{Tokens: []int32{1, 65535}}, {Tokens: []int32{2, 3}}}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestBadSamples(t *testing.T) {
	good := func() full { return full{Inputs: []int32{1, 2}, Labels: []int64{-100, 2}, Positions: []int32{0, 1}} }
	tests := []struct {
		name   string
		change func(*full)
		is     error
	}{
		{"too long", func(r *full) { r.Inputs = []int32{1, 2, 3, 4, 5, 6} }, ErrInvalid},
		{"too short", func(r *full) { r.Inputs = []int32{1} }, ErrInvalid},
		{"empty", func(r *full) { r.Inputs = nil }, ErrInvalid},
		{"outside the vocabulary", func(r *full) { r.Inputs[1] = 10 }, tokens.ErrTokenRange},
		{"negative", func(r *full) { r.Inputs[1] = -1 }, tokens.ErrTokenRange},
		{"label outside", func(r *full) { r.Labels[0] = -99 }, tokens.ErrTokenRange},
		{"label too large for an id", func(r *full) { r.Labels[0] = 1 << 40 }, tokens.ErrTokenRange},
		{"labels missing", func(r *full) { r.Labels = r.Labels[:1] }, ErrInvalid},
		{"position outside", func(r *full) { r.Positions[1] = 5 }, ErrInvalid},
		{"position left out", func(r *full) { r.Positions[1] = 2 }, ErrInvalid},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			bad := good()
			test.change(&bad)
			path := filepath.Join(t.TempDir(), "a.parquet")
			write(t, path, encode(t, []full{good(), bad}))
			d := open(t, path, Options{SeqLen: 5, VocabSize: 10})
			if _, err := d.Read(t.Context(), []uint64{0}); err != nil {
				t.Errorf("the good row: %v", err)
			}
			_, err := d.Read(t.Context(), []uint64{0, 1})
			if !errors.Is(err, test.is) {
				t.Errorf("got %v; want error %v", err, test.is)
			}
			golden.Message(t, test.name, err)
		})
	}
}

func TestPagesAreCheckedBeforeTheyAreRead(t *testing.T) {
	type zipped struct {
		Inputs []int32 `parquet:"inputs,list,gzip"`
	}
	path := filepath.Join(t.TempDir(), "a.parquet")
	write(t, path, bytes.ReplaceAll(encode(t, []zipped{{[]int32{1, 2}}, {[]int32{3, 4}}}), []byte{0x1f, 0x8b}, []byte{0, 0}))
	d := open(t, path, Options{SeqLen: 5})
	for range 2 { // a refusal is not forgotten
		_, err := d.Read(t.Context(), []uint64{1})
		if !errors.Is(err, ErrInvalid) {
			t.Errorf("got %v; want error ErrInvalid", err)
		}
		golden.Message(t, "bad page", err)
	}
}

// packedRow is a row as scripts that pack texts write it.
type packedRow struct {
	Inputs    []int32 `parquet:"inputs,list"`
	Labels    []int32 `parquet:"labels,list"`
	Positions []int32 `parquet:"position_ids,list"`
	Lengths   []int64 `parquet:"sequence_lengths,list"`
}

// TestPackedSamples reads texts that are packed into samples. Their lengths come from
// sequence_lengths, from position_ids, or from both. Padding has arbitrary positions.
func TestPackedSamples(t *testing.T) {
	dir := t.TempDir()
	lengths := filepath.Join(dir, "lengths.parquet")
	write(t, lengths, encode(t, []packed{{[]int32{1, 2, 3}, []int32{3}}, {[]int32{1, 2, 3}, []int32{1, 2}}}))
	got, err := open(t, lengths, Options{SeqLen: 5}).Read(t.Context(), []uint64{0, 1})
	want := []Sample{{Tokens: []int32{1, 2, 3}, Positions: []int32{0, 1, 2}}, {Tokens: []int32{1, 2, 3}, Positions: []int32{0, 0, 1}}}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	both := filepath.Join(dir, "both.parquet")
	write(t, both, encode(t, []packedRow{
		{[]int32{1, 2, 3, 0, 0}, []int32{-100, 2, 3, -100, -100}, []int32{0, 1, 0, 1, 2}, []int64{2, 1, 2}},
		{[]int32{1, 2, 3, 0, 0}, []int32{-100, 2, 3, -100, -100}, []int32{0, 1, 0, 4, 4}, []int64{2, 1}},
	}))
	got, err = open(t, both, Options{SeqLen: 5}).Read(t.Context(), []uint64{0, 1})
	one := Sample{Tokens: []int32{1, 2, 3, 0, 0}, Labels: []int32{-100, 2, 3, -100, -100}, Positions: []int32{0, 1, 0, 0, 1}}
	if diff := cmp.Diff([]Sample{one, one}, got); err != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	positions := filepath.Join(dir, "positions.parquet")
	row := full{Inputs: []int32{1, 2, 3}, Labels: []int64{-100, 2, 3}, Positions: []int32{0, 1, 0}}
	write(t, positions, encode(t, []full{row}))
	got, err = open(t, positions, Options{SeqLen: 5}).Read(t.Context(), []uint64{0})
	if diff := cmp.Diff([]Sample{sample(row)}, got); err != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
}

func TestPackedSamplesThatContradictThemselves(t *testing.T) {
	for name, row := range map[string]packedRow{
		"too few":         {[]int32{1, 2, 3}, []int32{1, 2, 3}, []int32{0, 1, 2}, []int64{2}},
		"too many":        {[]int32{1, 2, 3}, []int32{1, 2, 3}, []int32{0, 1, 0}, []int64{2, 2}},
		"empty text":      {[]int32{1, 2, 3}, []int32{1, 2, 3}, []int32{0, 1, 2}, []int64{0, 3}},
		"other positions": {[]int32{1, 2, 3}, []int32{1, 2, 3}, []int32{0, 1, 2}, []int64{2, 1}},
	} {
		path := filepath.Join(t.TempDir(), "a.parquet")
		write(t, path, encode(t, []packedRow{row}))
		_, err := open(t, path, Options{SeqLen: 5}).Read(t.Context(), []uint64{0})
		if !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: got %v; want error ErrInvalid", name, err)
		}
		golden.Message(t, name, err)
	}
}

func TestOpenNamesWhatIsWrong(t *testing.T) {
	type text struct {
		Inputs string `parquet:"inputs"`
	}
	type single struct {
		Inputs int32 `parquet:"inputs"`
	}
	type nested struct {
		Inputs [][]int32 `parquet:"inputs,list"`
	}
	type other struct {
		Tokens []int32 `parquet:"tokens,list"`
	}
	good := encode(t, rows(0, 3))
	long := bytes.Clone(good)
	copy(long[len(long)-8:], "\xff\xff\xff\x7f")
	for name, content := range map[string][]byte{
		"text column": encode(t, []text{{"a"}}), "no list": encode(t, []single{{1}}), "nested lists": encode(t, []nested{{[][]int32{{1}}}}),
		"no column": encode(t, []other{{[]int32{1}}}), "empty file": nil, "cut off": good[:len(good)/2], "no rows": encode(t, []full{}),
		"footer too long": long, "text": []byte("a,b,c\n1,2,3\n"),
	} {
		path := filepath.Join(t.TempDir(), "a.parquet")
		write(t, path, content)
		if _, err := Open(path, Options{SeqLen: 5}); !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), "a.parquet") {
			t.Errorf("%s: got %v; want error ErrInvalid and text with \"a.parquet\"", name, err)
		}
	}
	if _, err := Open(filepath.Join(t.TempDir(), "none"), Options{SeqLen: 5}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("missing: %v", err)
	} else {
		golden.Message(t, "missing", err)
	}
	if _, err := Open(t.TempDir(), Options{SeqLen: 5}); !errors.Is(err, tokens.ErrNoFiles) {
		t.Errorf("empty folder: %v", err)
	}
}

func TestAFileThatIsChanged(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.parquet")
	write(t, path, encode(t, rows(0, 50)))
	d := open(t, path, Options{SeqLen: 5})
	if err := os.Chtimes(path, time.Time{}, time.Now().Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Read(t.Context(), []uint64{7}); !errors.Is(err, tokens.ErrChanged) {
		t.Errorf("changed: %v", err)
	}
	if err := os.Truncate(path, 20); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Read(t.Context(), []uint64{7}); !errors.Is(err, tokens.ErrChanged) {
		t.Errorf("cut off: %v", err)
	}
}

// FuzzDataset reads files of arbitrary bytes. It checks that they give errors and never panic, and
// that all samples are valid.
func FuzzDataset(f *testing.F) {
	for version := range 2 {
		f.Add(encode(f, rows(0, 5), parquet.DataPageVersion(1+version)))
	}
	f.Add(encode(f, []plain{{[]uint16{1, 2}}}))
	f.Add(encode(f, []packed{{[]int32{1, 2, 3}, []int32{3}}}))
	f.Add([]byte("PAR1\x00\x00\x00\x00PAR1"))
	fuzztest.Run(f, func(t *testing.T, content []byte) {
		path := filepath.Join(t.TempDir(), "a.parquet")
		write(t, path, content)
		d, err := Open(path, Options{SeqLen: 5, VocabSize: 300})
		if err != nil {
			return
		}
		defer func() { _ = d.Close() }()
		for i := range min(d.Len(), 10) {
			samples, err := d.Read(context.Background(), []uint64{i})
			if err != nil {
				continue
			}
			if s := samples[0]; len(s.Tokens) < 2 || len(s.Tokens) > 5 || s.Labels != nil && len(s.Labels) != len(s.Tokens) {
				t.Fatal(fmt.Sprint(s))
			}
		}
	})
}
