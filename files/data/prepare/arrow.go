package prepare

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/psyche-go/psyche/files/data/arrowfile"
)

// batches reads one column of an Arrow file, or the part of the column that a field names.
type batches struct {
	file   *os.File
	parsed *arrowfile.File
	column int
	steps  []step // steps within the column
	field  string
	wrong  error // error for the first value; not nil if the type of the column is not supported
	row    int64 // rows read so far

	skip   int64             // rows to skip before the next row
	values *arrowfile.Column // of the current record batch
	at, of int               // next row of the batch, and the number of its rows
	sample gather
}

func openArrow(file *os.File, field string, position int64) (*batches, error) {
	info, err := file.Stat()
	if err != nil {
		return nil, err
	}
	parsed, err := arrowfile.Open(file, info.Size())
	if err != nil {
		return nil, err
	}
	b := &batches{file: file, parsed: parsed, field: field, row: position, skip: position}
	b.column, b.steps, b.wrong, err = findColumn(parsed.Fields, field)
	return b, err
}

func namesOf(columns []arrowfile.Field) (names []string) {
	for _, column := range columns {
		names = append(names, column.Name)
	}
	return names
}

// findColumn returns the column that a field names and the steps within it. If the type of the
// values is not supported, wrong is the error for the first value that is not null.
func findColumn(columns []arrowfile.Field, field string) (number int, within []step, wrong, err error) {
	steps := []step{{key: field}} // a name may have dots
	if number = columnOf(columns, field); number < 0 {
		if steps, err = parseField(field); err != nil {
			return 0, nil, nil, err
		}
		number = columnOf(columns, steps[0].key)
	}
	if number < 0 {
		return 0, nil, nil, fmt.Errorf("no column %q; name the text column with --field%s", field, among(namesOf(columns)))
	}
	within = steps[1:]
	at, rest, listed := columns[number], within, false
	for {
		switch {
		case at.Kind == arrowfile.KindNull: // the type of the column's values is unknown
			return number, within, nil, nil
		case at.Kind == arrowfile.KindList:
			if len(rest) > 0 && rest[0].key == "" {
				rest = rest[1:]
			}
			at, listed = at.Fields[0], true
		case at.Kind == arrowfile.KindStruct && (len(rest) == 0 || rest[0].key == ""):
			return 0, nil, nil, fmt.Errorf("column %q has nested columns; name a nested column, as in --field messages.content", field)
		case at.Kind == arrowfile.KindStruct:
			inner := columnOf(at.Fields, rest[0].key)
			if inner < 0 {
				return 0, nil, nil, fmt.Errorf("no column %q; name the text column with --field%s", field, among(namesOf(at.Fields)))
			}
			at, rest = at.Fields[inner], rest[1:]
		case len(rest) > 0:
			return 0, nil, nil, fmt.Errorf("column %q: %q has no nested columns, so it has no %s", field, at.Name, rest[0])
		case at.Kind == arrowfile.KindText, at.Kind == arrowfile.KindInt && listed:
			return number, within, nil, nil
		default:
			return number, within, fmt.Errorf("column %q has type %s, want strings, or lists of token ids", field, at.Type()), nil
		}
	}
}

func columnOf(columns []arrowfile.Field, name string) int {
	for i, column := range columns {
		if column.Name == name {
			return i
		}
	}
	return -1
}

func (b *batches) position() int64 { return b.row }
func (b *batches) Close() error    { return b.file.Close() }

func (b *batches) next() (sample, error) {
	for b.at == b.of {
		if err := b.advance(); errors.Is(err, io.EOF) {
			return sample{}, io.EOF
		} else if err != nil {
			return sample{}, fmt.Errorf("after row %d: %w", b.row, err)
		}
	}
	b.sample = gather{sample: sample{b.sample.text[:0], b.sample.ids[:0]}, wrong: b.wrong}
	if err := b.sample.fromArrow(b.values, b.at, b.steps); errors.Is(err, errOfColumn) {
		return sample{}, b.wrong
	} else if err != nil {
		return sample{}, fmt.Errorf("row %d: column %q %w", b.row+1, b.field, err)
	}
	b.at++
	b.row++
	return b.sample.sample, nil
}

// advance moves to the next record batch.
func (b *batches) advance() error {
	batch, err := b.parsed.Next()
	if err != nil {
		return err
	}
	b.at, b.of = 0, 0
	if b.skip >= int64(batch.Rows) {
		b.skip -= int64(batch.Rows)
		return nil
	}
	b.values, err = batch.Column(b.column)
	b.at, b.of, b.skip = int(b.skip), batch.Rows, 0
	return err
}

// errOfColumn means that a column of an unsupported type has a value.
var errOfColumn = errors.New("the column has values")

// fromArrow adds the values that a field names within the value of a row. findColumn must have
// accepted the field.
func (g *gather) fromArrow(column *arrowfile.Column, row int, steps []step) error {
	if row >= column.Length {
		return fmt.Errorf("is damaged: %w: a nested column has fewer values than its parent", arrowfile.ErrInvalid)
	}
	if column.Null(row) {
		return nil
	}
	if column.Field.Kind == arrowfile.KindOther {
		return errOfColumn
	}
	column, row, err := column.At(row)
	if err != nil {
		return err
	}
	if column.Null(row) {
		return nil
	}
	switch column.Field.Kind {
	case arrowfile.KindOther:
		return errOfColumn
	case arrowfile.KindText:
		text, err := column.Text(row)
		if err != nil {
			return err
		}
		return g.add(text)
	case arrowfile.KindInt:
		if g.wrong != nil {
			return errOfColumn
		}
		return g.addID(column.Int(row))
	case arrowfile.KindList:
		from, to, err := column.List(row)
		if err != nil {
			return err
		}
		if len(steps) > 0 && steps[0].key == "" {
			from += steps[0].place
			to, steps = min(from+1, to), steps[1:]
		}
		if column.Columns[0].Field.Kind == arrowfile.KindNull {
			return nil
		}
		for at := from; at < to; at++ {
			if err := g.fromArrow(column.Columns[0], at, steps); err != nil {
				return err
			}
		}
		return nil
	default:
		return g.fromArrow(column.Columns[columnOf(column.Field.Fields, steps[0].key)], row, steps[1:])
	}
}
