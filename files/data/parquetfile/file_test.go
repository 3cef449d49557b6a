package parquetfile

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"runtime"
	"slices"
	"testing"

	"github.com/klauspost/compress/zstd"
	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/compress"
	"github.com/parquet-go/parquet-go/encoding/thrift"
	"github.com/parquet-go/parquet-go/format"
	"github.com/psyche-go/psyche/base/fuzztest"
	"github.com/psyche-go/psyche/base/golden"
)

// page is a page as a test wants it to be, true or not.
type page struct {
	head format.PageHeader
	body []byte
}

func marshal(t testing.TB, value any) []byte {
	t.Helper()
	raw, err := thrift.Marshal(new(thrift.CompactProtocol), value)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// forge writes a file of one repeated column of 32-bit numbers from its pages. Change may
// lie about it.
func forge(t testing.TB, codec format.CompressionCodec, change func(*format.FileMetaData), pages ...page) []byte {
	t.Helper()
	file := []byte("PAR1")
	for _, p := range pages {
		p.head.CompressedPageSize = int32(len(p.body))
		file = append(append(file, marshal(t, &p.head)...), p.body...)
	}
	metadata := format.FileMetaData{
		Version: 1, NumRows: 1,
		Schema: []format.SchemaElement{
			{Name: "root", NumChildren: some(int32(1))},
			{Name: "inputs", Type: some(format.Int32), RepetitionType: some(format.Repeated)},
		},
		RowGroups: []format.RowGroup{{NumRows: 1, Columns: []format.ColumnChunk{{MetaData: format.ColumnMetaData{
			Type: format.Int32, Encoding: []format.Encoding{format.Plain}, PathInSchema: []string{"inputs"}, Codec: codec,
			NumValues: 1, TotalCompressedSize: int64(len(file) - 4), TotalUncompressedSize: 100, DataPageOffset: 4,
		}}}}},
	}
	if change != nil {
		change(&metadata)
	}
	return seal(file, marshal(t, &metadata))
}

// seal ends a file with a footer.
func seal(file, footer []byte) []byte {
	file = append(file, footer...)
	return append(binary.LittleEndian.AppendUint32(file, uint32(len(footer))), "PAR1"...)
}

func some[T any](value T) thrift.Null[T] { return thrift.Null[T]{Valid: true, V: value} }

func dataPage(size int32, encoding format.Encoding, values int32, body []byte) page {
	return page{format.PageHeader{
		Type: format.DataPage, UncompressedPageSize: size,
		DataPageHeader: some(format.DataPageHeader{NumValues: values, Encoding: encoding, RepetitionLevelEncoding: format.RLE, DefinitionLevelEncoding: format.RLE}),
	}, body}
}

func dataPageV2(size int32, encoding format.Encoding, values, levels int32, body []byte) page {
	return page{format.PageHeader{
		Type: format.DataPageV2, UncompressedPageSize: size,
		DataPageHeaderV2: some(format.DataPageHeaderV2{NumValues: values, NumRows: 1, Encoding: encoding, RepetitionLevelsByteLength: levels, DefinitionLevelsByteLength: levels}),
	}, body}
}

// run is a run of the same number, with a length before it if it is of levels.
func run(count uint64, value byte) []byte { return append(binary.AppendUvarint(nil, count<<1), value) }

func levels(r []byte) []byte {
	return append(binary.LittleEndian.AppendUint32(nil, uint32(len(r))), r...)
}

func join(parts ...[]byte) []byte { return bytes.Join(parts, nil) }

var oneValue = join(levels(run(1, 0)), levels(run(1, 1)), []byte{7, 0, 0, 0})

func packedLZ4(t testing.TB, raw []byte) []byte {
	t.Helper()
	if len(raw) < 270 { // which the library leaves unpacked: a block of nothing but literals
		if len(raw) < 15 {
			return append([]byte{byte(len(raw) << 4)}, raw...)
		}
		return append([]byte{15 << 4, byte(len(raw) - 15)}, raw...)
	}
	out, err := parquet.Lz4Raw.Encode(nil, raw)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func zipped(t testing.TB, raw []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	if _, err := w.Write(raw); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// zstandard packs as a stream, which does not say how long it is.
func zstandard(t testing.TB, raw []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	w, err := zstd.NewWriter(&b)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(raw); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func snap(t testing.TB, raw []byte) []byte { return packed(t, &parquet.Snappy, raw) }

func packed(t testing.TB, codec compress.Codec, raw []byte) []byte {
	t.Helper()
	out, err := codec.Encode(nil, raw)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// read does with a file what its users do.
func read(t testing.TB, raw []byte) (err error) {
	t.Helper()
	defer Recovered(&err)
	f, err := Open(bytes.NewReader(raw), int64(len(raw)))
	if err != nil {
		return err
	}
	for group, rows := range f.RowGroups() {
		for column, chunk := range rows.ColumnChunks() {
			if err := errors.Join(f.CheckHeads(group, column), f.CheckPages(t.Context(), group, column)); err != nil {
				return err
			}
			pages := chunk.Pages()
			_, err := parquet.CopyPages(discard{}, pages)
			if err := errors.Join(err, pages.Close()); err != nil {
				return err
			}
		}
	}
	return nil
}

type discard struct{}

func (discard) WritePage(p parquet.Page) (int64, error) { return p.NumValues(), nil }

func TestHonestPages(t *testing.T) {
	size := int32(len(oneValue))
	v2 := join(run(1, 0), run(1, 1))
	for name, raw := range map[string][]byte{
		"uncompressed": forge(t, format.Uncompressed, nil, dataPage(size, format.Plain, 1, oneValue)),
		"snappy":       forge(t, format.Snappy, nil, dataPage(size, format.Plain, 1, snap(t, oneValue))),
		"zstd":         forge(t, format.Zstd, nil, dataPage(size, format.Plain, 1, zstandard(t, oneValue))),
		"gzip":         forge(t, format.Gzip, nil, dataPage(size, format.Plain, 1, zipped(t, oneValue))),
		"brotli":       forge(t, format.Brotli, nil, dataPage(size, format.Plain, 1, packed(t, &parquet.Brotli, oneValue))),
		"lz4":          forge(t, format.Lz4Raw, nil, dataPage(size, format.Plain, 1, packedLZ4(t, oneValue))),
		"lz4, 2":       forge(t, format.Lz4Raw, nil, dataPageV2(8, format.Plain, 1, 2, join(v2, packedLZ4(t, []byte{7, 0, 0, 0})))),
		"version 2":    forge(t, format.Snappy, nil, dataPageV2(8, format.Plain, 1, 2, join(v2, snap(t, []byte{7, 0, 0, 0})))),
	} {
		if err := read(t, raw); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestBombs reads small files that would take gigabytes if they were believed.
func TestBombs(t *testing.T) {
	zeros := make([]byte, 64<<20)
	many := levels(run(1<<30, 0))
	delta := join([]byte{128, 1, 4}, binary.AppendUvarint(nil, 1<<30), []byte{0})
	repeats := slices.Repeat([]int32{1 << 20}, 300)
	repeats[0] = 0
	own := make([]int32, 300)
	own[0] = 1 << 20
	shared := join(packedDeltas(t, repeats), packedDeltas(t, own), zeros[:1<<20])
	size := int32(len(oneValue))
	plain := dataPage(size, format.Plain, 1, oneValue)
	list := func(field, kind byte) []byte { // a list of 2³¹−1 elements in a footer
		return seal([]byte("PAR1"), join([]byte{field<<4 | 9, 0xf0 | kind}, binary.AppendUvarint(nil, 1<<31-1), []byte{0}))
	}
	tests := []struct {
		name string
		raw  []byte
	}{
		{"gzip", forge(t, format.Gzip, nil, dataPage(size, format.Plain, 1, zipped(t, zeros)))},
		{"zstd", forge(t, format.Zstd, nil, dataPage(size, format.Plain, 1, zstandard(t, zeros)))},
		{"snappy", forge(t, format.Snappy, nil, dataPage(size, format.Plain, 1, binary.AppendUvarint(nil, 1<<31)))},
		{"gzip in version 2", forge(t, format.Gzip, nil, dataPageV2(8, format.Plain, 1, 2, join(run(1, 0), run(1, 1), zipped(t, zeros))))},
		{"brotli", forge(t, format.Brotli, nil, dataPage(size, format.Plain, 1, packed(t, &parquet.Brotli, zeros)))},
		{"lz4", forge(t, format.Lz4Raw, nil, dataPage(size, format.Plain, 1, packedLZ4(t, zeros)))},
		{"lz4, less than announced", forge(t, format.Lz4Raw, nil, dataPage(1<<20, format.Plain, 1, packedLZ4(t, oneValue)))},
		{"lz4 in version 2", forge(t, format.Lz4Raw, nil, dataPageV2(8, format.Plain, 1, 2, join(run(1, 0), run(1, 1), packedLZ4(t, zeros))))},
		{"old lz4", forge(t, format.Lz4, nil, dataPage(size, format.Plain, 1, []byte{255}))},
		{"lzo", forge(t, format.LZO, nil, dataPage(size, format.Plain, 1, []byte{255}))},
		{"repetition levels", forge(t, format.Uncompressed, nil, dataPage(100, format.Plain, 1, join(many, many)))},
		{"definition levels", forge(t, format.Uncompressed, nil, dataPage(100, format.Plain, 1, join(levels(run(1, 0)), many)))},
		{"levels in version 2", forge(t, format.Uncompressed, nil, dataPageV2(100, format.Plain, 1, 6, join(run(1<<30, 0), run(1<<30, 0))))},
		{"many runs", forge(t, format.Uncompressed, nil, dataPage(100, format.Plain, 1, join(levels(bytes.Repeat(run(512, 0), 1<<16)), many)))},
		{"bit-packed run", forge(t, format.Uncompressed, nil, dataPage(100, format.Plain, 1, levels(binary.AppendUvarint(nil, 1<<63|1))))},
		{"dictionary indices", forge(t, format.Uncompressed, nil,
			page{format.PageHeader{Type: format.DictionaryPage, UncompressedPageSize: 4, DictionaryPageHeader: some(format.DictionaryPageHeader{NumValues: 1})}, []byte{1, 0, 0, 0}},
			dataPage(100, format.RLEDictionary, 1, join(levels(run(1, 0)), levels(run(1, 1)), []byte{1}, run(1<<30, 0))))},
		{"deltas", forge(t, format.Uncompressed, nil, dataPage(100, format.DeltaBinaryPacked, 1, join(levels(run(1, 0)), levels(run(1, 1)), delta)))},
		{"shared beginnings", forge(t, format.Zstd, nil, dataPage(2<<20, format.DeltaByteArray, 300, zstandard(t, join(levels(run(300, 0)), levels(run(300, 1)), shared))))},
		{"unknown encoding", forge(t, format.Uncompressed, nil, dataPage(100, 99, 1, join(levels(run(1, 0)), levels(run(1, 1)))))},
		{"announced bytes", forge(t, format.Uncompressed, nil, dataPage(1<<31-1, format.Plain, 1, oneValue))},
		{"announced values", forge(t, format.Uncompressed, nil, dataPage(size, format.Plain, 1<<31-1, oneValue))},
		{"two kinds", forge(t, format.Uncompressed, nil, func() page {
			p := plain
			p.head.DictionaryPageHeader = some(format.DictionaryPageHeader{NumValues: 1})
			return p
		}())},
		{"schema list", list(2, 12)},
		{"row group list", list(4, 12)},
		{"nesting", seal([]byte("PAR1"), bytes.Repeat([]byte{0x1c}, 1000))},
		{"columns", forge(t, format.Uncompressed, func(m *format.FileMetaData) {
			for len(m.Schema) < 5000 {
				m.Schema = append(m.Schema, format.SchemaElement{Name: "x", NumChildren: some(int32(1))})
			}
		}, plain)},
		{"row groups", forge(t, format.Uncompressed, func(m *format.FileMetaData) {
			m.Schema = append(m.Schema, make([]format.SchemaElement, 1000)...)
			m.RowGroups = append(m.RowGroups, make([]format.RowGroup, 2000)...)
		}, plain)},
		{"pages elsewhere", forge(t, format.Uncompressed, func(m *format.FileMetaData) { m.RowGroups[0].Columns[0].MetaData.DictionaryPageOffset = 9 }, plain)},
		{"pages between", forge(t, format.Uncompressed, func(m *format.FileMetaData) {
			m.RowGroups[0].Columns[0].MetaData.DictionaryPageOffset, m.RowGroups[0].Columns[0].MetaData.DataPageOffset = 4, 6
		}, plain)},
		{"other codec", forge(t, format.Gzip, func(m *format.FileMetaData) {
			second := m.RowGroups[0]
			second.Columns = append([]format.ColumnChunk{}, second.Columns...)
			second.Columns[0].MetaData.Codec = format.Uncompressed
			m.RowGroups, m.NumRows = append(m.RowGroups, second), 2
		}, dataPage(size, format.Plain, 1, zipped(t, oneValue)))},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			err := read(t, test.raw)
			runtime.ReadMemStats(&after)
			if !errors.Is(err, ErrInvalid) {
				t.Errorf("got %v, want ErrInvalid", err)
			}
			golden.Message(t, test.name, err)
			if used := after.TotalAlloc - before.TotalAlloc; used > 32<<20 {
				t.Errorf("%d bytes were allocated for a file of %d", used, len(test.raw))
			}
		})
	}
}

// FuzzStructLength wants structures that end where they are said to, and that the decoder
// survives.
func FuzzStructLength(f *testing.F) {
	p := dataPage(1, format.Plain, 1, nil)
	f.Add(marshal(f, &p.head))
	f.Add([]byte{0x19, 0xfc, 0xff, 0xff, 0xff, 0xff, 0x07, 0})
	fuzztest.Run(f, func(t *testing.T, raw []byte) {
		length, err := structLength(raw)
		if err != nil {
			return
		}
		if length < 1 || length > len(raw) || raw[length-1] != 0 {
			t.Fatalf("%x ends at %d", raw, length)
		}
		var head format.PageHeader
		_ = thrift.Unmarshal(new(thrift.CompactProtocol), raw[:length], &head)
	})
}
