package arrowfile

import (
	"fmt"
	"sort"
)

// maxParts is the maximum number of parts of a dictionary.
const maxParts = 1 << 16

// dictionary contains the values of a dictionary-encoded column. It comes in parts, whose offsets
// in the file are recorded until the column is requested.
type dictionary struct {
	id     int64
	values Field
	parts  []int64 // offsets of their messages
	read   categories
	left   int64 // bytes that may still be read
}

// categories are the values of a dictionary.
type categories struct {
	columns []*Column
	ends    []int // cumulative number of values after each part
}

// addDictionaries adds the dictionaries of the fields, and of fields within them, to f.
func (f *File) addDictionaries(fields []Field) {
	for _, field := range fields {
		if field.dictionary != nil {
			f.dictionaries = append(f.dictionaries, field.dictionary)
		} else {
			f.addDictionaries(field.Fields)
		}
	}
}

// note records a message with values of a dictionary. Its values extend the dictionary or replace
// it.
func (f *File) note(m message) error {
	id, err := m.head.number(0, 8, 0)
	if err != nil {
		return err
	}
	more, err := m.head.number(2, 1, 0)
	if err != nil {
		return err
	}
	for _, d := range f.dictionaries {
		if d.id != id {
			continue
		}
		if more == 0 {
			d.parts, d.read, d.left = nil, categories{}, maxColumn
		}
		if len(d.parts) >= maxParts {
			return fmt.Errorf("%w: a dictionary has more than %d parts; write it as one part", ErrInvalid, maxParts)
		}
		d.parts = append(d.parts, m.at)
	}
	return nil
}

// categories reads the recorded parts of a dictionary that are not read yet.
func (f *File) categories(d *dictionary) (categories, error) {
	for _, at := range d.parts[len(d.read.columns):] {
		column, err := f.part(d, at)
		if err != nil {
			return categories{}, fmt.Errorf("dictionary: %w", err)
		}
		end := column.Length
		if before := len(d.read.ends); before > 0 {
			end += d.read.ends[before-1]
		}
		d.read.columns, d.read.ends = append(d.read.columns, column), append(d.read.ends, end)
	}
	return d.read, nil
}

// part reads a part of a dictionary: a batch with one column.
func (f *File) part(d *dictionary, at int64) (*Column, error) {
	m, err := f.messageAt(at)
	if err != nil {
		return nil, err
	}
	about, found, err := m.head.table(1)
	if err == nil && !found {
		err = fmt.Errorf("%w: no values", ErrInvalid)
	}
	if err != nil {
		return nil, err
	}
	b, err := f.batch(m, about)
	if err != nil {
		return nil, err
	}
	w := walk{batch: b, left: d.left}
	column, err := w.read(d.values)
	d.left = w.left
	return column, err
}

// At returns the column and row that contain the value of a row. They are c and row, or a position
// in the dictionary if the column is dictionary-encoded. The row is not null, but the dictionary's
// value may be.
func (c *Column) At(row int) (*Column, int, error) {
	if c.Field.dictionary == nil {
		return c, row, nil
	}
	place, ends := c.Int(row), c.categories.ends
	if len(ends) == 0 || place < 0 || place >= int64(ends[len(ends)-1]) {
		return nil, 0, fmt.Errorf("%w: a value refers to category %d, which is not in the dictionary", ErrInvalid, place)
	}
	of := sort.SearchInts(ends, int(place)+1)
	if of > 0 {
		place -= int64(ends[of-1])
	}
	return c.categories.columns[of], int(place), nil
}
