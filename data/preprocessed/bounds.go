package preprocessed

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/parquet-go/parquet-go/encoding/thrift"
	"github.com/parquet-go/parquet-go/format"
)

// Bounds of what the Parquet library allocates because a file says so, in bytes.
const (
	MaxPage   = 256 << 20
	maxFooter = 64 << 20
	maxHeader = 1 << 20 // of a page
)

// checkFooter refuses a file whose footer cannot be there.
func checkFooter(r io.ReaderAt, size int64) error {
	var tail [8]byte
	if size < 12 {
		return fmt.Errorf("%w: %d bytes are no Parquet file", ErrInvalid, size)
	}
	if _, err := r.ReadAt(tail[:], size-8); err != nil {
		return err
	}
	if string(tail[4:]) != "PAR1" {
		return fmt.Errorf("%w: it does not end as a Parquet file does; was it cut off?", ErrInvalid)
	}
	if n := int64(binary.LittleEndian.Uint32(tail[:])); n > size-12 || n > maxFooter {
		return fmt.Errorf("%w: its footer has %d bytes", ErrInvalid, n)
	}
	return nil
}

// checkPages reads the heads of all pages of the columns that are read, and refuses those
// that announce more than a page can have.
func checkPages(r io.ReaderAt, size int64, rows format.RowGroup, l leaves) error {
	for _, number := range l.all() {
		if number < 0 {
			continue
		}
		if number >= len(rows.Columns) {
			return fmt.Errorf("%w: column %d is missing", ErrInvalid, number)
		}
		chunk := rows.Columns[number].MetaData
		first := chunk.DataPageOffset
		if chunk.DictionaryPageOffset > 0 {
			first = min(first, chunk.DictionaryPageOffset)
		}
		if first < 0 || chunk.TotalCompressedSize < 0 || first > size || chunk.TotalCompressedSize > size-first {
			return fmt.Errorf("%w: column %d lies outside the file", ErrInvalid, number)
		}
		if err := checkChunk(io.NewSectionReader(r, first, chunk.TotalCompressedSize)); err != nil {
			return fmt.Errorf("column %d: %w", number, err)
		}
	}
	return nil
}

func checkChunk(chunk *io.SectionReader) error {
	buffer := make([]byte, maxHeader)
	for at := int64(0); at < chunk.Size(); {
		header, length, err := readHeader(chunk, buffer, at)
		if err != nil {
			return err
		}
		body := int64(header.CompressedPageSize)
		if body < 0 || body > chunk.Size()-at-int64(length) {
			return fmt.Errorf("%w: page at %d announces %d bytes, the column has fewer", ErrInvalid, at, body)
		}
		values := max(header.DataPageHeader.V.NumValues, header.DataPageHeaderV2.V.NumValues, header.DictionaryPageHeader.V.NumValues)
		if header.UncompressedPageSize < 0 || header.UncompressedPageSize > MaxPage || values < 0 || values > MaxPage/8 {
			return fmt.Errorf("%w: page at %d announces %d bytes and %d values; write smaller pages or row groups",
				ErrInvalid, at, header.UncompressedPageSize, values)
		}
		at += int64(length) + body
	}
	return nil
}

// readHeader reads the head of a page and returns its length.
func readHeader(chunk *io.SectionReader, buffer []byte, at int64) (header format.PageHeader, length int, err error) {
	// Most heads are a few dozen bytes; statistics can make them long.
	for _, room := range []int{512, maxHeader} {
		n, readErr := chunk.ReadAt(buffer[:room], at)
		if readErr != nil && !errors.Is(readErr, io.EOF) {
			return header, 0, readErr
		}
		// Only the reader of bytes checks lengths before it allocates, only the other
		// one can be asked how far it came.
		var protocol thrift.CompactProtocol
		header = format.PageHeader{}
		if err = thrift.NewDecoder(protocol.NewReaderFromBytes(buffer[:n])).Decode(&header); err != nil {
			continue
		}
		header = format.PageHeader{}
		counter := &counting{rest: buffer[:n]}
		if err = thrift.NewDecoder(protocol.NewReader(counter)).Decode(&header); err == nil {
			return header, counter.read, nil
		}
	}
	return header, 0, fmt.Errorf("%w: page at %d: %w", ErrInvalid, at, err)
}

// counting is a reader of bytes that counts them.
type counting struct {
	rest []byte
	read int
}

// Read implements io.Reader.
func (c *counting) Read(buffer []byte) (int, error) {
	if len(c.rest) == 0 {
		return 0, io.EOF
	}
	n := copy(buffer, c.rest)
	c.rest, c.read = c.rest[n:], c.read+n
	return n, nil
}

// ReadByte implements io.ByteReader.
func (c *counting) ReadByte() (byte, error) {
	var one [1]byte
	_, err := c.Read(one[:])
	return one[0], err
}
