package prepare

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/parquet-go/parquet-go"

	"github.com/psyche-go/psyche/files/data/parquetfile"
)

// table is one column of strings, or of lists of token ids, in a Parquet file.
type table struct {
	file   *os.File
	parsed *parquetfile.File
	ctx    context.Context     // context of the run; ends the check of a long row group
	groups []parquetfile.Group // row groups not read yet
	rows   int64               // of the file
	leaf   leaf
	row    int64 // rows read so far
	sample gather

	pages  parquet.Pages // pages of the first of groups; nil: not open yet
	skip   int64         // rows of the first group to skip
	values parquet.ValueReader
	buffer [64]parquet.Value
	ready  []parquet.Value // values of buffer that were not returned yet
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
	found, err := findLeaf(opened.Root(), field)
	if err != nil {
		return nil, err
	}
	t = &table{file: file, parsed: opened, ctx: ctx, leaf: found, row: position, skip: position}
	if t.groups, err = opened.Groups(); err != nil {
		return nil, err
	}
	for _, group := range t.groups {
		t.rows += group.Count
	}
	for len(t.groups) > 0 && t.skip >= t.groups[0].Count {
		t.skip -= t.groups[0].Count
		t.groups = t.groups[1:]
	}
	return t, nil
}

// leaf is a column of values, and the selection of the values that a field names.
type leaf struct {
	column int
	limit  int   // definition level of a value that is not null
	places []int // wanted index in the list of each repetition level, from 1 on; -1: all
	ids    bool  // token ids, not texts
	nulls  bool  // the column has only nulls
	wrong  error // error for the first value; not nil if the type of the column is not supported
}

// findLeaf returns the column that a field names.
func findLeaf(root *parquet.Column, field string) (leaf, error) {
	steps := []step{{key: field}} // a name may have dots
	if root.Column(field) == nil {
		var err error
		if steps, err = parseField(field); err != nil {
			return leaf{}, err
		}
	}
	var l leaf
	at := root
	for {
		list := len(l.places) < at.MaxRepetitionLevel()
		switch {
		case list && len(steps) > 0 && steps[0].key == "":
			l.places, steps = append(l.places, steps[0].place), steps[1:]
		case list:
			l.places = append(l.places, -1)
		case at.Leaf() && len(steps) == 0:
			return l.of(at, field)
		case at.Leaf() && parquetfile.OnlyNulls(at): // objects or lists that are all null
			return leaf{nulls: true}, nil
		case at.Leaf():
			return leaf{}, fmt.Errorf("column %q: %v has no nested columns, so it has no %s", field, at.Name(), steps[0])
		default:
			next := element(at)
			if next == nil && (len(steps) == 0 || steps[0].key == "") {
				return leaf{}, fmt.Errorf("column %q has nested columns (such as %q); name a nested column, as in --field messages.content", field, at.Columns()[0].Name())
			}
			if next == nil {
				next, steps = at.Column(steps[0].key), steps[1:]
			}
			if next == nil {
				var names []string
				for _, column := range at.Columns() {
					names = append(names, column.Name())
				}
				return leaf{}, fmt.Errorf("no column %q; name the text column with --field%s", field, among(names))
			}
			at = next
		}
	}
}

// element returns the column below a column that only wraps it in a list: LIST's repeated group and
// its element, as pyarrow and Hive name them. It returns nil for other columns.
func element(of *parquet.Column) *parquet.Column {
	inner := of.Columns()
	if len(inner) != 1 {
		return nil
	}
	switch name := inner[0].Name(); {
	case inner[0].Repeated() && (name == "list" || name == "bag" || name == "array"),
		of.Repeated() && (name == "element" || name == "item" || name == "array_element"):
		return inner[0]
	}
	return nil
}

// of fills in a leaf from its column.
func (l leaf) of(column *parquet.Column, field string) (leaf, error) {
	l.column, l.limit = column.Index(), column.MaxDefinitionLevel()
	if l.nulls = parquetfile.OnlyNulls(column); l.nulls {
		return l, nil
	}
	switch kind := column.Type().Kind(); {
	case kind == parquet.ByteArray:
	case (kind == parquet.Int32 || kind == parquet.Int64) && len(l.places) > 0:
		l.ids = true
	default: // pandas gives the type DOUBLE to a column of only NaN
		l.wrong = fmt.Errorf("column %q has type %v, want strings, or lists of token ids", field, column.Type())
	}
	return l, nil
}

func (t *table) position() int64 { return t.row }

func (t *table) Close() error {
	var err error
	if t.pages != nil {
		err = t.pages.Close()
	}
	return errors.Join(err, t.file.Close())
}

func (t *table) next() (s sample, err error) {
	defer parquetfile.Recovered(&err)
	if t.leaf.nulls {
		if t.row >= t.rows {
			return sample{}, io.EOF
		}
		t.row++
		return sample{}, nil
	}
	t.sample = gather{sample: sample{t.sample.text[:0], t.sample.ids[:0]}}
	at := make([]int, len(t.leaf.places)) // index in the list of each level
	for first := true; ; first = false {
		more, err := t.more(first)
		if err != nil && (!errors.Is(err, io.EOF) || !first) {
			return sample{}, fmt.Errorf("after row %d: %w", t.row, err)
		}
		if err != nil {
			return sample{}, io.EOF
		}
		if !more {
			t.row++
			return t.sample.sample, nil
		}
		value := t.ready[0]
		t.ready = t.ready[1:]
		level := value.RepetitionLevel()
		if level > len(at) || first != (level == 0) {
			return sample{}, fmt.Errorf("after row %d: %w: a row begins within a list", t.row, parquetfile.ErrInvalid)
		}
		if level > 0 {
			at[level-1]++
		}
		clear(at[level:])
		if value.IsNull() || value.DefinitionLevel() < t.leaf.limit || !t.leaf.wants(at) {
			continue
		}
		if t.leaf.wrong != nil {
			return sample{}, t.leaf.wrong
		}
		if err := t.add(value); err != nil {
			return sample{}, fmt.Errorf("row %d %w", t.row+1, err)
		}
	}
}

// wants reports whether a field names the value at the given indices of lists.
func (l leaf) wants(at []int) bool {
	for i, place := range l.places {
		if place >= 0 && place != at[i] {
			return false
		}
	}
	return true
}

func (t *table) add(value parquet.Value) error {
	switch {
	case !t.leaf.ids:
		return t.sample.add(value.ByteArray())
	case value.Kind() == parquet.Int32:
		return t.sample.addID(int64(value.Int32()))
	default:
		return t.sample.addID(value.Int64())
	}
}

// more ensures that a value is available, and reports whether it belongs to the current row. The
// first value of a row may be in the next row group.
func (t *table) more(first bool) (bool, error) {
	for len(t.ready) == 0 {
		if !first && t.values == nil && t.pages == nil {
			return false, nil
		}
		if err := t.fill(); err != nil {
			return false, err
		}
	}
	return first || t.ready[0].RepetitionLevel() > 0, nil
}

// fill reads values, or opens the next source of values.
func (t *table) fill() error {
	switch {
	case t.values != nil:
		n, err := t.values.ReadValues(t.buffer[:])
		t.ready = t.buffer[:n]
		if err != nil {
			// The page is not released, so it stays valid for the values that were read.
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
			t.pages, t.groups = nil, t.groups[1:]
			return err
		}
		if err != nil {
			return err
		}
		t.values = page.Values()
		return nil
	case len(t.groups) > 0:
		if err := t.parsed.CheckPages(t.ctx, t.groups[0].Number, t.leaf.column); err != nil {
			return fmt.Errorf("row group %d: %w", t.groups[0].Number, err)
		}
		t.pages = t.groups[0].ColumnChunks()[t.leaf.column].Pages()
		skip := t.skip
		t.skip = 0
		if skip > 0 {
			return t.pages.SeekToRow(skip)
		}
		return nil
	}
	return io.EOF
}
