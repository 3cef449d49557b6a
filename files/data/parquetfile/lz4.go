package parquetfile

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sort"
	"strings"
	"sync"

	"github.com/parquet-go/parquet-go/encoding/thrift"
	"github.com/parquet-go/parquet-go/format"
	"github.com/pierrec/lz4/v4"
)

// unpackedLZ4 presents a file with columns compressed as LZ4_RAW as a file without this
// compression. After the bytes of the file it appends matching headers, pages that are decompressed
// when they are read, and another footer. Package parquet (v0.32.0) cannot decompress these pages
// itself: if three times the compressed size is more than the page, it decompresses into a buffer
// that it then drops.
type unpackedLZ4 struct {
	file  io.ReaderAt
	size  int64
	parts []part // sorted by offset
	end   int64

	mu     sync.Mutex
	newest int    // part that buffer contains; -1: none
	buffer []byte // its page
	packed []byte
}

// maxPagesLZ4 is the maximum number of headers and pages that are kept for a file, about 150 bytes
// each.
const maxPagesLZ4 = 2 << 20

// part is a header, page or footer that replaces one of the original file, or follows it.
type part struct {
	first, length int64
	bytes         []byte // nil: a page

	at            int64 // for a page: offset of the compressed bytes
	plain, shrunk int   // numbers of uncompressed bytes (in v2 its levels) and of compressed bytes
}

// unpackLZ4 returns a file without LZ4_RAW, and its size. If no column uses LZ4_RAW, this is the
// file itself.
func unpackLZ4(file io.ReaderAt, size int64, metadata format.FileMetaData) (io.ReaderAt, int64, error) {
	u := &unpackedLZ4{file: file, size: size, end: size, newest: -1}
	for g := range metadata.RowGroups {
		for c := range metadata.RowGroups[g].Columns {
			column := &metadata.RowGroups[g].Columns[c]
			if column.MetaData.Codec != format.Lz4Raw || column.CryptoMetadata.Value != nil {
				continue
			}
			if err := u.add(&column.MetaData); err != nil {
				return nil, 0, fmt.Errorf("row group %d: %w", g, err)
			}
		}
	}
	if len(u.parts) == 0 {
		return file, size, nil
	}
	footer, err := thrift.Marshal(new(thrift.CompactProtocol), &metadata)
	if err != nil {
		return nil, 0, err
	}
	u.bytes(append(binary.LittleEndian.AppendUint32(footer, uint32(len(footer))), "PAR1"...))
	return u, u.end, nil
}

// add adds the pages of a column of a row group, and updates their offsets in the metadata.
func (u *unpackedLZ4) add(about *format.ColumnMetaData) error {
	column, err := chunkOf(u.file, u.size, strings.Join(about.PathInSchema, "."), *about)
	if err != nil {
		return err
	}
	_, origin, _ := column.bytes.Outer()
	start, data, dictionary := u.end, column.data, about.DictionaryPageOffset != 0
	err = column.each(func(at int64, head format.PageHeader, body *io.SectionReader) error {
		if at == data {
			about.DataPageOffset = u.end
		}
		_, within, _ := body.Outer()
		levels := int(head.DataPageHeaderV2.V.RepetitionLevelsByteLength) + int(head.DataPageHeaderV2.V.DefinitionLevelsByteLength)
		page := part{length: int64(head.UncompressedPageSize), at: origin + within, plain: levels, shrunk: int(body.Size()) - levels}
		if v2 := &head.DataPageHeaderV2; v2.Valid {
			if v2.V.IsCompressed.Valid && !v2.V.IsCompressed.V {
				page.plain, page.shrunk = int(body.Size()), 0
			}
			v2.V.IsCompressed = thrift.New(false)
		}
		if int64(page.plain) > page.length || len(u.parts) > maxPagesLZ4 {
			return fmt.Errorf("%w: column %s: page at %d is longer than declared, or its column has more than %d LZ4_RAW pages", ErrInvalid, column.name, at, maxPagesLZ4/2)
		}
		head.CompressedPageSize, head.CRC = head.UncompressedPageSize, 0
		raw, err := thrift.Marshal(new(thrift.CompactProtocol), &head)
		if err != nil {
			return err
		}
		u.bytes(raw)
		u.append(page)
		return nil
	})
	if err != nil {
		return err
	}
	if about.Codec = format.Uncompressed; dictionary {
		about.DictionaryPageOffset = start
	}
	about.TotalCompressedSize = u.end - start
	return nil
}

func (u *unpackedLZ4) bytes(raw []byte) { u.append(part{length: int64(len(raw)), bytes: raw}) }

func (u *unpackedLZ4) append(p part) {
	p.first = u.end
	u.parts, u.end = append(u.parts, p), u.end+p.length
}

// ReadAt implements io.ReaderAt.
func (u *unpackedLZ4) ReadAt(to []byte, at int64) (n int, err error) {
	if at < u.size {
		n, err = u.file.ReadAt(to[:min(int64(len(to)), u.size-at)], at)
		if err != nil && !errors.Is(err, io.EOF) || at+int64(n) < u.size {
			return n, err
		}
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	for n < len(to) {
		here := at + int64(n)
		i := sort.Search(len(u.parts), func(i int) bool { return u.parts[i].first+u.parts[i].length > here })
		if i == len(u.parts) {
			return n, io.EOF
		}
		content := u.parts[i].bytes
		if content == nil {
			if content, err = u.page(i); err != nil {
				return n, err
			}
		}
		n += copy(to[n:], content[here-u.parts[i].first:])
	}
	return n, nil
}

// page decompresses a page. The next call reuses its memory.
func (u *unpackedLZ4) page(i int) ([]byte, error) {
	if u.newest == i {
		return u.buffer, nil
	}
	p := u.parts[i]
	u.newest, u.packed = -1, grow(u.packed, p.plain+p.shrunk)
	if _, err := io.ReadFull(io.NewSectionReader(u.file, p.at, int64(len(u.packed))), u.packed); err != nil {
		return nil, fmt.Errorf("read: %w", err)
	}
	u.buffer = grow(u.buffer, int(p.length))
	n := copy(u.buffer, u.packed[:p.plain])
	if p.shrunk > 0 {
		unpacked, err := lz4.UncompressBlock(u.packed[p.plain:], u.buffer[n:])
		if err != nil {
			return nil, fmt.Errorf("%w: an LZ4_RAW page is damaged, or unpacks to more than the declared %d bytes", ErrInvalid, p.length)
		}
		n += unpacked
	}
	if n != len(u.buffer) {
		return nil, fmt.Errorf("%w: an LZ4_RAW page unpacks to %d bytes, want the declared %d", ErrInvalid, n, p.length)
	}
	u.newest = i
	return u.buffer, nil
}
