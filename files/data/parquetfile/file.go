package parquetfile

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/encoding/thrift"
	"github.com/parquet-go/parquet-go/format"

	"github.com/psyche-go/psyche/base/filestart"
)

// ErrInvalid means that a file is not a Parquet file, is damaged, or is of a kind that cannot be
// read in bounded memory.
var ErrInvalid = errors.New("invalid Parquet file")

// Limits of footers.
const (
	maxFooter  = 64 << 20 // bytes
	maxColumns = 4096     // including column groups
)

// File is an open file.
type File struct {
	*parquet.File
	bytes  io.ReaderAt
	size   int64
	leaves []*parquet.Column // by their number
}

// Open reads the footer of a file of size bytes. The caller should defer Recovered.
func Open(r io.ReaderAt, size int64) (*File, error) {
	metadata, err := checkFooter(r, size)
	if err != nil {
		return nil, err
	}
	if r, size, err = unpackLZ4(r, size, metadata); err != nil {
		return nil, err
	}
	opened, err := parquet.OpenFile(r, size, &parquet.FileConfig{SkipPageIndex: true, SkipBloomFilters: true, ReadBufferSize: 64 << 10})
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	f := &File{File: opened, bytes: r, size: size}
	f.addLeaves(opened.Root())
	return f, nil
}

func (f *File) addLeaves(column *parquet.Column) {
	if column.Leaf() {
		f.leaves = append(f.leaves, column)
	}
	for _, inner := range column.Columns() {
		f.addLeaves(inner)
	}
}

// maxRows is the maximum number of rows of a row group.
const maxRows = 1 << 40

// Group is a row group.
type Group struct {
	parquet.RowGroup
	Number int   // number in the file, from 0
	Count  int64 // number of rows, at least 1
}

// Groups returns the row groups that have rows. Writers leave empty groups in a file, for example
// if a filter removes all rows of a group.
func (f *File) Groups() ([]Group, error) {
	var groups []Group
	for number, group := range f.RowGroups() {
		switch rows := group.NumRows(); {
		case rows < 0 || rows > maxRows:
			return nil, fmt.Errorf("%w: row group %d has an invalid number of rows, %d", ErrInvalid, number, rows)
		case rows > 0:
			groups = append(groups, Group{group, number, rows})
		}
	}
	return groups, nil
}

// OnlyNulls reports whether a column has the type NULL, which has no values except null. Pyarrow
// and pandas write a column without values with this type.
func OnlyNulls(column parquet.Node) bool {
	logical := column.Type().LogicalType()
	if logical == nil {
		return false
	}
	_, null := logical.Value.(*format.NullType)
	return null
}

// checkFooter decodes the footer of a file. It refuses a footer that is invalid, or that would take
// too much memory.
func checkFooter(r io.ReaderAt, size int64) (metadata format.FileMetaData, err error) {
	var tail [8]byte
	if size < 12 {
		return metadata, fmt.Errorf("%w: not a Parquet file (%d bytes)", ErrInvalid, size)
	}
	if _, err := r.ReadAt(tail[:], size-8); err != nil {
		return metadata, err
	}
	var start [filestart.Size]byte
	if n, err := r.ReadAt(start[:], 0); err == nil || errors.Is(err, io.EOF) {
		if err := filestart.Pointer(start[:n]); err != nil {
			return metadata, fmt.Errorf("%w: %w", ErrInvalid, err)
		}
	}
	if string(tail[4:]) != "PAR1" {
		return metadata, fmt.Errorf("%w: the end of the file is not a Parquet footer; get the file again if it is truncated, or decrypt it", ErrInvalid)
	}
	n := int64(binary.LittleEndian.Uint32(tail[:]))
	if n > size-12 || n > maxFooter {
		return metadata, fmt.Errorf("%w: footer has an invalid length of %d bytes", ErrInvalid, n)
	}
	footer := make([]byte, n)
	if _, err := r.ReadAt(footer, size-8-n); err != nil {
		return metadata, err
	}
	length, err := structLength(footer)
	if err != nil {
		return metadata, fmt.Errorf("%w: footer: %w", ErrInvalid, err)
	}
	if err := thrift.Unmarshal(new(thrift.CompactProtocol), footer[:length], &metadata); err != nil {
		return metadata, fmt.Errorf("%w: footer: %w", ErrInvalid, err)
	}
	if n := len(metadata.Schema); n > maxColumns {
		return metadata, fmt.Errorf("%w: %d columns and groups of columns, the limit is %d", ErrInvalid, n, maxColumns)
	}
	if n := len(metadata.Schema) * len(metadata.RowGroups); n > maxElements {
		return metadata, fmt.Errorf("%w: %d row groups of %d columns are too many; write larger row groups", ErrInvalid, len(metadata.RowGroups), len(metadata.Schema))
	}
	return metadata, nil
}

// Recovered turns a panic into an error, because package parquet panics on some damaged files. It
// must be deferred directly, because only a deferred function itself can recover a panic.
func Recovered(err *error) {
	if panicked := recover(); panicked != nil {
		*err = fmt.Errorf("%w: damaged: %v", ErrInvalid, panicked)
	}
}
