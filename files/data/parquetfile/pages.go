package parquetfile

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/encoding/thrift"
	"github.com/parquet-go/parquet-go/format"
)

// maxPage is the maximum size of a page in bytes, compressed or not.
const maxPage = 256 << 20

const (
	maxHead   = 1 << 20     // bytes of a page header
	maxValues = maxPage / 8 // of a page
)

// chunk is a column of a row group.
type chunk struct {
	column *parquet.Column // nil until the file is open
	name   string
	codec  format.CompressionCodec
	bytes  *io.SectionReader
	data   int64 // offset in bytes at which package parquet starts to read data pages
}

// CheckHeads reads the headers of all pages of a column in a row group, and refuses pages with
// sizes above the limit.
func (f *File) CheckHeads(group, column int) error {
	c, err := f.chunk(group, column)
	if err != nil {
		return err
	}
	return c.each(func(int64, format.PageHeader, *io.SectionReader) error { return nil })
}

// CheckPages unpacks all pages of a column in a row group once. Afterwards, package parquet can
// read them in a few hundred MiB of memory.
func (f *File) CheckPages(ctx context.Context, group, column int) error {
	c, err := f.chunk(group, column)
	if err != nil {
		return err
	}
	u := unpacker{column: c.column, codec: c.codec}
	defer u.close()
	return c.each(func(at int64, head format.PageHeader, body *io.SectionReader) error {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := u.check(head, body); err != nil {
			return fmt.Errorf("column %s, page at %d: %w", c.column.Name(), at, err)
		}
		return nil
	})
}

func (f *File) chunk(group, column int) (chunk, error) {
	groups := f.Metadata().RowGroups
	if column < 0 || column >= len(f.leaves) || column >= len(groups[group].Columns) {
		return chunk{}, fmt.Errorf("%w: column %d is missing", ErrInvalid, column)
	}
	described := groups[group].Columns[column]
	about := described.MetaData
	// Package parquet decompresses all chunks with the codec of the first.
	if first := groups[0].Columns; column >= len(first) || first[column].MetaData.Codec != about.Codec {
		return chunk{}, fmt.Errorf("%w: column %d does not have the same compression in all row groups", ErrInvalid, column)
	}
	if described.CryptoMetadata.Value != nil {
		return chunk{}, fmt.Errorf("%w: column %d is encrypted", ErrInvalid, column)
	}
	c, err := chunkOf(f.bytes, f.size, f.leaves[column].Name(), about)
	c.column = f.leaves[column]
	return c, err
}

// chunkOf returns a column of a row group in a file of a given size.
func chunkOf(file io.ReaderAt, size int64, name string, about format.ColumnMetaData) (chunk, error) {
	start := about.DataPageOffset
	if about.DictionaryPageOffset != 0 {
		start = about.DictionaryPageOffset
	}
	length := about.TotalCompressedSize
	if start < 0 || length < 0 || start > size || length > size-start || about.DataPageOffset < start {
		return chunk{}, fmt.Errorf("%w: column %s extends beyond the file", ErrInvalid, name)
	}
	return chunk{name: name, codec: about.Codec, bytes: io.NewSectionReader(file, start, length), data: about.DataPageOffset - start}, nil
}

// each calls do with the offset, header and body of every page.
func (c chunk) each(do func(at int64, head format.PageHeader, body *io.SectionReader) error) error {
	buffer := make([]byte, maxHead)
	aligned := c.data == 0
	for at := int64(0); at < c.bytes.Size(); {
		aligned = aligned || at == c.data
		head, length, err := c.head(buffer, at)
		if err != nil {
			return fmt.Errorf("column %s, page at %d: %w", c.name, at, err)
		}
		body := at + int64(length)
		next := body + int64(head.CompressedPageSize)
		if next < body || next > c.bytes.Size() {
			return fmt.Errorf("%w: column %s, page at %d declares %d bytes, but the column ends earlier", ErrInvalid, c.name, at, head.CompressedPageSize)
		}
		if err := checkHead(head); err != nil {
			return fmt.Errorf("%w: column %s, page at %d %w", ErrInvalid, c.name, at, err)
		}
		if err := do(at, head, io.NewSectionReader(c.bytes, body, next-body)); err != nil {
			return err
		}
		at = next
	}
	if !aligned {
		return fmt.Errorf("%w: column %s: the first page is not at the declared offset", ErrInvalid, c.name)
	}
	return nil
}

// head reads the header of a page and returns its length.
func (c chunk) head(buffer []byte, at int64) (head format.PageHeader, length int, err error) {
	// Most headers have a few dozen bytes; statistics can make them long.
	for _, room := range []int{512, maxHead} {
		n, readErr := c.bytes.ReadAt(buffer[:room], at)
		if readErr != nil && !errors.Is(readErr, io.EOF) {
			return head, 0, readErr
		}
		if length, err = structLength(buffer[:n]); err == nil {
			err = thrift.Unmarshal(new(thrift.CompactProtocol), buffer[:length], &head)
			break
		}
	}
	if err != nil {
		return head, 0, fmt.Errorf("%w: page header: %w", ErrInvalid, err)
	}
	return head, length, nil
}

// checkHead refuses a page with excessive sizes, or of two kinds at once.
func checkHead(head format.PageHeader) error {
	if head.UncompressedPageSize < 0 || head.UncompressedPageSize > maxPage || head.CompressedPageSize > maxPage {
		return fmt.Errorf("declares %d bytes, compressed %d, the limit is %d; write smaller pages", head.UncompressedPageSize, head.CompressedPageSize, maxPage)
	}
	one, two, dictionary := head.DataPageHeader, head.DataPageHeaderV2, head.DictionaryPageHeader
	for kind, there := range []bool{format.DataPage: one.Valid, format.DictionaryPage: dictionary.Valid, format.DataPageV2: two.Valid} {
		if there != (format.PageType(kind) == head.Type) {
			return fmt.Errorf("has kind %v, but the header of another kind", head.Type)
		}
	}
	values := max(one.V.NumValues, two.V.NumValues, dictionary.V.NumValues)
	if values > maxValues || min(one.V.NumValues, two.V.NumValues, dictionary.V.NumValues) < 0 {
		return fmt.Errorf("declares %d values, the limit is %d; write smaller pages", values, maxValues)
	}
	levels := int64(two.V.RepetitionLevelsByteLength) + int64(two.V.DefinitionLevelsByteLength)
	if min(two.V.RepetitionLevelsByteLength, two.V.DefinitionLevelsByteLength, two.V.NumNulls) < 0 ||
		levels > int64(min(head.CompressedPageSize, head.UncompressedPageSize)) || two.V.NumNulls > two.V.NumValues {
		return errors.New("contradicts itself about levels and nulls")
	}
	return nil
}
