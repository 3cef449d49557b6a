package parquetfile

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/bits"

	"github.com/andybalholm/brotli"
	"github.com/klauspost/compress/zstd"
	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/format"
)

// unpacker decompresses pages into reusable memory.
type unpacker struct {
	column         *parquet.Column
	codec          format.CompressionCodec
	packed, buffer []byte
	zstd           *zstd.Decoder
}

func (u *unpacker) close() {
	if u.zstd != nil {
		u.zstd.Close()
	}
}

// check returns an error unless a page matches its header.
func (u *unpacker) check(head format.PageHeader, body *io.SectionReader) error {
	u.packed = grow(u.packed, int(body.Size()))
	if _, err := io.ReadFull(body, u.packed); err != nil {
		return fmt.Errorf("read: %w", err)
	}
	if err := u.page(head); err != nil {
		if errors.As(err, new(refusal)) {
			return err
		}
		return fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	return nil
}

// refusal means that a file is of an unsupported kind. It is ErrInvalid, but its message does not
// call the file invalid.
type refusal string

func (r refusal) Error() string { return string(r) }

// Is implements errors.Is.
func (refusal) Is(target error) bool { return target == ErrInvalid }

func (u *unpacker) page(head format.PageHeader) error {
	size := int(head.UncompressedPageSize)
	switch head.Type {
	case format.DictionaryPage:
		_, err := u.unpack(u.packed, size)
		if encoding := head.DictionaryPageHeader.V.Encoding; err == nil && encoding != format.Plain && encoding != format.PlainDictionary { //nolint:staticcheck // old writers name it so
			err = unreadable(encoding)
		}
		return err
	case format.DataPage:
		page := head.DataPageHeader.V
		data, err := u.unpack(u.packed, size)
		if err != nil {
			return err
		}
		for _, levels := range []struct {
			limit    int
			encoding format.Encoding
		}{{u.column.MaxRepetitionLevel(), page.RepetitionLevelEncoding}, {u.column.MaxDefinitionLevel(), page.DefinitionLevelEncoding}} {
			if levels.limit == 0 {
				continue
			}
			if levels.encoding != format.RLE {
				return unreadable(levels.encoding)
			}
			if len(data) < 4 || uint64(binary.LittleEndian.Uint32(data)) > uint64(len(data)-4) {
				return errors.New("levels are longer than the page")
			}
			end := 4 + int(binary.LittleEndian.Uint32(data))
			if err := countRuns(data[4:end], bits.Len(uint(levels.limit)), int(page.NumValues)); err != nil {
				return err
			}
			data = data[end:]
		}
		return checkValues(page.Encoding, data, int(page.NumValues))
	default:
		page := head.DataPageHeaderV2.V
		data := u.packed
		for _, levels := range []struct{ limit, length int }{
			{u.column.MaxRepetitionLevel(), int(page.RepetitionLevelsByteLength)},
			{u.column.MaxDefinitionLevel(), int(page.DefinitionLevelsByteLength)},
		} {
			if levels.limit > 0 {
				if err := countRuns(data[:levels.length], bits.Len(uint(levels.limit)), int(page.NumValues)); err != nil {
					return err
				}
			}
			data = data[levels.length:]
			size -= levels.length
		}
		if !page.IsCompressed.Valid || page.IsCompressed.V {
			var err error
			if data, err = u.unpack(data, size); err != nil {
				return err
			}
		}
		return checkValues(page.Encoding, data, int(page.NumValues))
	}
}

// unpack decompresses at most size bytes.
func (u *unpacker) unpack(packed []byte, size int) ([]byte, error) {
	tooLong := fmt.Errorf("unpacks to more than the declared %d bytes", size)
	switch u.codec {
	case format.Uncompressed:
		return packed, nil
	case format.Snappy:
		// A block starts with its length (Snappy's format_description.txt).
		if length, n := binary.Uvarint(packed); n <= 0 || length > uint64(size) {
			return nil, tooLong
		}
		u.buffer = grow(u.buffer, size)
		return parquet.Snappy.Decode(u.buffer, packed)
	case format.Zstd:
		if u.zstd == nil {
			var err error
			if u.zstd, err = zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecodeAllCapLimit(true), zstd.WithDecoderMaxMemory(maxPage)); err != nil {
				return nil, err
			}
		}
		u.buffer = grow(u.buffer, size)
		unpacked, err := u.zstd.DecodeAll(packed, u.buffer[:0:size])
		if errors.Is(err, zstd.ErrDecoderSizeExceeded) {
			err = tooLong
		}
		return unpacked, err
	case format.Gzip:
		reader, err := gzip.NewReader(bytes.NewReader(packed))
		if err != nil {
			return nil, err
		}
		return u.stream(reader, size, tooLong)
	case format.Brotli:
		return u.stream(brotli.NewReader(bytes.NewReader(packed)), size, tooLong)
	default:
		return nil, refusal(fmt.Sprintf("compression %v is not supported; use snappy, zstd, gzip, Brotli, LZ4_RAW or no compression", u.codec))
	}
}

// stream decompresses at most size bytes of a stream.
func (u *unpacker) stream(from io.Reader, size int, tooLong error) ([]byte, error) {
	u.buffer = grow(u.buffer, size)
	n, err := io.ReadFull(from, u.buffer)
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return nil, err
	}
	if extra, _ := io.ReadFull(from, make([]byte, 1)); extra > 0 {
		return nil, tooLong
	}
	return u.buffer[:n], nil
}

func grow(buffer []byte, size int) []byte {
	if cap(buffer) < size {
		return make([]byte, size)
	}
	return buffer[:size]
}

func unreadable(encoding format.Encoding) error {
	return refusal(fmt.Sprintf("encoding %d (%v) is not supported; use dictionary or plain encoding", encoding, encoding))
}

// checkValues returns an error if data encodes more values than announced.
func checkValues(encoding format.Encoding, data []byte, values int) error {
	switch encoding {
	case format.Plain, format.ByteStreamSplit: // only the values
		return nil
	case format.PlainDictionary, format.RLEDictionary: //nolint:staticcheck // old writers name it so
		if len(data) == 0 {
			return nil
		}
		return countRuns(data[1:], int(data[0]), values)
	case format.DeltaBinaryPacked:
		_, err := deltasOf(data, values)
		return err
	case format.DeltaLengthByteArray:
		return checkLengths(data, values)
	case format.DeltaByteArray:
		return checkShared(data, values)
	default:
		return unreadable(encoding)
	}
}

func tooMany(values int) error {
	return fmt.Errorf("runs have more than the declared %d values", values)
}

// padding is the maximum number of additional values that a run may have to fill its last bytes.
const padding = 1024

// countRuns returns an error if the runs of the hybrid encoding of small numbers, each of width
// bits, have more values than announced.
// (https://parquet.apache.org/docs/file-format/data-pages/encodings/#run-length-encoding--bit-packing-hybrid-rle--3)
func countRuns(data []byte, width, values int) error {
	if width > 32 {
		return fmt.Errorf("bit width %d, want at most 32", width)
	}
	left := uint64(values) + padding
	for len(data) > 0 {
		head, n := binary.Uvarint(data)
		if n <= 0 {
			return errShort
		}
		data = data[n:]
		count, length := head>>1, uint64(width+7)/8
		if head&1 != 0 {
			if count > left {
				return tooMany(values)
			}
			length, count = count*uint64(width), 8*count
		}
		if count > left {
			return tooMany(values)
		}
		if left -= count; length > uint64(len(data)) {
			return errShort
		}
		data = data[length:]
	}
	return nil
}
