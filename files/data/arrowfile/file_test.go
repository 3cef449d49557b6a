package arrowfile

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/klauspost/compress/zstd"
	"github.com/psyche-go/psyche/base/fuzztest"
)

func example(t testing.TB, name string) []byte {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join("..", "prepare", "testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// read reads every column of a file and all of its values.
func read(raw []byte) (rows int, err error) {
	f, err := Open(bytes.NewReader(raw), int64(len(raw)))
	if err != nil {
		return 0, err
	}
	for {
		b, err := f.Next()
		if errors.Is(err, io.EOF) {
			return rows, nil
		}
		if err != nil {
			return rows, err
		}
		rows += b.Rows
		for number := range f.Fields {
			column, err := b.Column(number)
			if err != nil {
				return rows, err
			}
			if err := values(column); err != nil {
				return rows, err
			}
		}
	}
}

// values reads the values of a column. A file may claim any number of values that need no buffer,
// so the function reads at most 100 of them.
func values(c *Column) error {
	rows := c.Length
	if c.Field.Kind == KindOther || c.Field.Kind == KindStruct || c.Field.length > 0 {
		rows = min(rows, 100)
	}
	for row := range rows {
		if c.Null(row) {
			continue
		}
		if c.Field.Kind == KindOther {
			continue
		}
		at, row, err := c.At(row)
		if err != nil {
			return err
		}
		if at.Null(row) {
			continue
		}
		switch at.Field.Kind {
		case KindText:
			_, err = at.Text(row)
		case KindInt:
			at.Int(row)
		case KindList:
			_, _, err = at.List(row)
		}
		if err != nil {
			return err
		}
	}
	for _, inner := range c.Columns {
		if err := values(inner); err != nil {
			return err
		}
	}
	return nil
}

func TestExamples(t *testing.T) {
	for name, want := range map[string]int{
		"formats/stream.arrow": 7, "formats/file.arrow": 7, "formats/lz4.feather": 7, "formats/zstd.feather": 7, "formats/saved/data-00000-of-00002.arrow": 4,
		"variants/views.arrow": 8, "variants/views-zstd.arrow": 8, "variants/categories.arrow": 8, "variants/categories-lz4.arrow": 8,
		"variants/growing.arrow": 13, "variants/replaced.arrow": 13,
	} {
		if rows, err := read(example(t, name)); err != nil || rows != want {
			t.Errorf("%s: %d rows, %v", name, rows, err)
		}
	}
}

// TestDamage changes many bytes. The result must be an error or different values, never a panic.
func TestDamage(t *testing.T) {
	for _, name := range []string{"formats/stream.arrow", "formats/lz4.feather", "variants/views.arrow", "variants/categories.arrow", "variants/growing.arrow"} {
		whole := example(t, name)
		for at := 0; at < len(whole); at += 13 {
			for _, value := range []byte{0, 0x7f, 0xff} {
				raw := bytes.Clone(whole)
				raw[at] = value
				_, err := read(raw)
				if err != nil && !errors.Is(err, ErrInvalid) {
					t.Errorf("%s, byte %d: %v", name, at, err)
				}
			}
			if _, err := read(whole[:at]); err != nil && !errors.Is(err, ErrInvalid) {
				t.Errorf("%s, cut at %d: %v", name, at, err)
			}
		}
	}
}

// TestBuffersThatUnpackToMore checks that a buffer that unpacks to more than the announced size
// needs no more memory than that size.
func TestBuffersThatUnpackToMore(t *testing.T) {
	w, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	packed := w.EncodeAll(make([]byte, 64<<20), nil)
	for _, announced := range []uint64{8, 1 << 20, 1 << 40} {
		raw := append(binary.LittleEndian.AppendUint64(nil, announced), packed...)
		b := &Batch{
			file: &File{from: bytes.NewReader(raw)}, m: message{size: int64(len(raw))}, codec: codecZstd,
			buffers: binary.LittleEndian.AppendUint64(make([]byte, 8), uint64(len(raw))),
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := b.buffer(0)
		runtime.ReadMemStats(&after)
		if !errors.Is(err, ErrInvalid) {
			t.Errorf("%d announced: %v", announced, err)
		}
		if used := after.TotalAlloc - before.TotalAlloc; used > 32<<20 {
			t.Errorf("%d announced: %d bytes were allocated", announced, used)
		}
	}
}

// TestBuffersThatAreRepeated checks that the size of one column is bounded: many of its buffers may
// be the same part of a file.
func TestBuffersThatAreRepeated(t *testing.T) {
	raw := make([]byte, 1<<10)
	many := 100
	b := &Batch{file: &File{from: bytes.NewReader(raw)}, m: message{size: int64(len(raw))}, codec: codecNone, nodes: make([]byte, 16)}
	for range many {
		b.buffers = binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(b.buffers, 0), uint64(len(raw)))
	}
	b.texts = binary.LittleEndian.AppendUint64(nil, uint64(many-2))
	field := Field{Kind: KindText, kind: typeUTF8View, buffers: buffersOfFixedWidth}
	for left, fits := range map[int64]bool{int64(many * len(raw)): true, int64(many*len(raw)) - 1: false} {
		w := walk{batch: b, left: left}
		if _, err := w.read(field); (err == nil) != fits || err != nil && !errors.Is(err, ErrInvalid) {
			t.Errorf("%d bytes: %v", left, err)
		}
	}
	b.texts = binary.LittleEndian.AppendUint64(nil, 1<<40)
	w := walk{batch: b, left: maxColumn}
	if _, err := w.read(field); !errors.Is(err, ErrInvalid) {
		t.Errorf("missing buffers: %v", err)
	}
}

func FuzzRead(f *testing.F) {
	f.Add(example(f, "formats/stream.arrow"))
	f.Add(example(f, "formats/file.arrow"))
	f.Add(example(f, "formats/zstd.feather"))
	f.Add(example(f, "variants/views-zstd.arrow"))
	f.Add(example(f, "variants/categories.arrow"))
	f.Add(example(f, "variants/growing.arrow"))
	fuzztest.Run(f, func(t *testing.T, raw []byte) {
		if _, err := read(raw); err != nil && !errors.Is(err, ErrInvalid) {
			t.Error(err)
		}
	})
}
