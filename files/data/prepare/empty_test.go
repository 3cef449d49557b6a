package prepare

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/parquet-go/parquet-go/encoding/thrift"
	"github.com/parquet-go/parquet-go/format"

	"github.com/psyche-go/psyche/base/golden"
	"github.com/psyche-go/psyche/files/data/parquetfile"
)

// rowsOf joins the texts of a file from the row at position. Each ends with "|".
func rowsOf(t *testing.T, name, field string, position int64) string {
	t.Helper()
	path := filepath.Join("testdata", "empty", name)
	format, err := Options{Format: formatAuto}.formatOf(path, name)
	if err != nil {
		t.Fatal(err)
	}
	r, err := Options{Field: field}.open(t.Context(), source{path: path, format: format}, position)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	defer func() { _ = r.Close() }()
	var out strings.Builder
	for {
		s, err := r.next()
		if errors.Is(err, io.EOF) {
			return out.String()
		}
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		out.Write(s.text)
		out.WriteByte('|')
	}
}

// TestEmptyRowGroups checks that groups without rows change nothing, whatever the first row is.
func TestEmptyRowGroups(t *testing.T) {
	for _, name := range []string{"whole", "begins", "between", "ends", "alternates", "empty-page"} {
		for position, want := range []string{"a|b|c|d|", "b|c|d|", "c|d|", "d|", ""} {
			if got := rowsOf(t, name+".parquet", "text", int64(position)); got != want {
				t.Errorf("%s from row %d: %q, want %q", name, position, got, want)
			}
		}
		if got, want := rowsOf(t, name+".parquet", "tags", 0), "w\nx|||y|"; name != "empty-page" && got != want {
			t.Errorf("lists of %s: %q, want %q", name, got, want)
		}
	}
	if got := rowsOf(t, "nothing.parquet", "text", 0); got != "" {
		t.Errorf("without rows: %q", got)
	}
}

// TestOnlyNulls checks that a column without values, also within lists and objects, has no texts.
func TestOnlyNulls(t *testing.T) {
	for _, ending := range []string{".parquet", ".arrow"} {
		for _, test := range []struct{ name, field, want string }{
			{"nulls", "text", "|||"}, {"nulls", "text.of", "|||"}, {"nulls", "text[0].of", "|||"},
			{"lists", "text", "|||"}, {"lists", "text.of", "|||"}, {"objects", "text.of", "|||"}, {"some", "text", "|a||"},
			{"doubles", "text", "|||"}, {"doubles", "after", "x|y|z|"}, {"integers", "text", "|||"}, {"times", "text", "|||"}, {"decimals", "text", "|||"},
			{"lists-of-doubles", "text", "|||"}, {"categories", "text", "|a||"},
		} {
			if got := rowsOf(t, test.name+ending, test.field, 0); got != test.want {
				t.Errorf("%s%s, %s: %q, want %q", test.name, ending, test.field, got, test.want)
			}
		}
		if got := rowsOf(t, "nulls"+ending, "text", 2); got != "|" {
			t.Errorf("nulls%s from row 2: %q", ending, got)
		}
		for _, name := range []string{"a-double", "an-integer"} {
			_, err := textsOf(t, func(*Options) {}, filepath.Join("testdata", "empty", name+ending))
			golden.Message(t, name+ending, err)
		}
		dir := t.TempDir()
		tree(t, dir, map[string]string{"c/b.jsonl": `{"text":"alpha"}`})
		o := options(filepath.Join("testdata", "empty", "nulls"+ending), filepath.Join(dir, "c"))
		o.Output = filepath.Join(dir, "out")
		if _, err := Run(t.Context(), o); err != nil {
			t.Fatal(err)
		}
		if got := text(t, filepath.Join(o.Output, "train-00000.ds")); got != "alpha|" {
			t.Errorf("%s: got %q; want \"alpha|\"", ending, got)
		}
	}
}

// TestEmptyPages checks that pages without values change nothing.
func TestEmptyPages(t *testing.T) {
	whole, err := os.ReadFile(filepath.Join("testdata", "empty", "whole.parquet"))
	if err != nil {
		t.Fatal(err)
	}
	kept, err := os.ReadFile(filepath.Join("testdata", "empty", "empty-page.parquet"))
	if err != nil {
		t.Fatal(err)
	}
	if made := withEmptyPages(t, whole); !bytes.Equal(made, kept) {
		t.Fatal("empty-page.parquet differs from the file made from whole.parquet")
	}
	if _, err := parquetfile.Open(bytes.NewReader(kept), int64(len(kept))); err != nil {
		t.Fatal(err)
	}
}

// withEmptyPages puts two pages without values before the only page of the column text, and one
// page after it. It moves these pages to the end of the file.
func withEmptyPages(t *testing.T, whole []byte) []byte {
	t.Helper()
	end := len(whole) - 8 - int(binary.LittleEndian.Uint32(whole[len(whole)-8:]))
	var about format.FileMetaData
	protocol := new(thrift.CompactProtocol)
	if err := thrift.Unmarshal(protocol, whole[end:len(whole)-8], &about); err != nil {
		t.Fatal(err)
	}
	levels := []byte{0, 0, 0, 0} // for no value
	head, err := thrift.Marshal(protocol, format.PageHeader{
		Type: format.DataPage, UncompressedPageSize: int32(len(levels)), CompressedPageSize: int32(len(levels)),
		DataPageHeader: thrift.New(format.DataPageHeader{Encoding: format.Plain, DefinitionLevelEncoding: format.RLE, RepetitionLevelEncoding: format.RLE}),
	})
	if err != nil {
		t.Fatal(err)
	}
	empty := append(head, levels...)
	column := &about.RowGroups[0].Columns[0].MetaData
	page := whole[column.DataPageOffset : column.DataPageOffset+column.TotalCompressedSize]
	made := append([]byte{}, whole[:end]...)
	column.DataPageOffset = int64(len(made))
	for _, part := range [][]byte{empty, empty, page, empty} {
		made = append(made, part...)
	}
	column.TotalCompressedSize += 3 * int64(len(empty))
	column.TotalUncompressedSize += 3 * int64(len(empty))
	footer, err := thrift.Marshal(protocol, about)
	if err != nil {
		t.Fatal(err)
	}
	made = append(append(made, footer...), 0, 0, 0, 0)
	binary.LittleEndian.PutUint32(made[len(made)-4:], uint32(len(footer)))
	return append(made, "PAR1"...)
}
