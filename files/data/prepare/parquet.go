package prepare

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"unicode/utf8"

	"github.com/parquet-go/parquet-go"

	"github.com/psyche-go/psyche/files/data/parquetfile"
)

// table is one column of strings of a Parquet file.
type table struct {
	file   *os.File
	parsed *parquetfile.File
	ctx    context.Context // of the run; ends the check of a long row group
	group  int             // number of the first of groups
	groups []parquet.RowGroup
	column int
	row    int64 // rows that were read

	pages  parquet.Pages // of the first of groups; nil: not open yet
	skip   int64         // rows of the first group to pass over
	values parquet.ValueReader
	buffer [64]parquet.Value
	ready  []parquet.Value // of buffer, not given out yet
}

func openParquet(ctx context.Context, file *os.File, field string, position int64) (t *table, err error) {
	defer parquetfile.Recovered(&err)
	info, err := file.Stat()
	if err != nil {
		return nil, err
	}
	opened, err := parquetfile.Open(file, info.Size())
	if err != nil {
		return nil, err
	}
	column, found := opened.Schema().Lookup(field)
	if !found && opened.Root().Column(field) != nil {
		return nil, fmt.Errorf("column %q is a list or has columns of its own, strings are read; name the column of the text with --field", field)
	}
	if !found {
		return nil, fmt.Errorf("no column %q; name the column of the text with --field", field)
	}
	if kind := column.Node.Type().Kind(); kind != parquet.ByteArray || column.MaxRepetitionLevel > 0 {
		return nil, fmt.Errorf("column %q is of %v, want strings", field, column.Node)
	}
	t = &table{file: file, parsed: opened, ctx: ctx, groups: opened.RowGroups(), column: column.ColumnIndex, row: position, skip: position}
	for len(t.groups) > 0 && t.skip >= t.groups[0].NumRows() {
		t.skip -= t.groups[0].NumRows()
		t.groups, t.group = t.groups[1:], t.group+1
	}
	return t, nil
}

func (t *table) position() int64 { return t.row }

func (t *table) Close() error {
	var err error
	if t.pages != nil {
		err = t.pages.Close()
	}
	return errors.Join(err, t.file.Close())
}

func (t *table) next() (text []byte, err error) {
	defer parquetfile.Recovered(&err)
	for len(t.ready) == 0 {
		if err := t.fill(); err != nil {
			if errors.Is(err, io.EOF) {
				return nil, io.EOF
			}
			return nil, fmt.Errorf("after row %d: %w", t.row, err)
		}
	}
	value := t.ready[0]
	t.ready = t.ready[1:]
	t.row++
	if value.IsNull() {
		return nil, nil
	}
	text = value.ByteArray()
	if len(text) > maxDocument {
		return nil, fmt.Errorf("row %d has %d bytes, at most %d are read", t.row, len(text), maxDocument)
	}
	if !utf8.Valid(text) {
		return nil, fmt.Errorf("row %d is not UTF-8", t.row)
	}
	return text, nil
}

// fill reads values, or opens what they are read from.
func (t *table) fill() error {
	switch {
	case t.values != nil:
		n, err := t.values.ReadValues(t.buffer[:])
		t.ready = t.buffer[:n]
		if err != nil {
			// The page stays valid for the values that were read: it is not given back.
			t.values = nil
			if !errors.Is(err, io.EOF) {
				return err
			}
		}
		return nil
	case t.pages != nil:
		page, err := t.pages.ReadPage()
		if errors.Is(err, io.EOF) {
			err = t.pages.Close()
			t.pages, t.groups, t.group = nil, t.groups[1:], t.group+1
			return err
		}
		if err != nil {
			return err
		}
		t.values = page.Values()
		return nil
	case len(t.groups) > 0:
		if err := t.parsed.CheckPages(t.ctx, t.group, t.column); err != nil {
			return fmt.Errorf("row group %d: %w", t.group, err)
		}
		t.pages = t.groups[0].ColumnChunks()[t.column].Pages()
		skip := t.skip
		t.skip = 0
		if skip > 0 {
			return t.pages.SeekToRow(skip)
		}
		return nil
	}
	return io.EOF
}
