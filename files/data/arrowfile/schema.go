package arrowfile

import (
	"errors"
	"fmt"
	"slices"
)

// Kind is the kind of a column's values.
type Kind int

// Kinds of columns.
const (
	KindOther  Kind = iota // not supported
	KindText               // UTF-8, or bytes that may be UTF-8
	KindInt                // integers
	KindList               // lists of the values of the only child
	KindStruct             // structs of the children
	KindNull               // only nulls
)

// Limits of schemas.
const (
	maxFields  = 4096
	maxNesting = 32
)

// Arrow types (Schema.fbs), named if this package or an error distinguishes them.
const (
	typeNull            = 1
	typeInt             = 2
	typeBinary          = 4
	typeUTF8            = 5
	typeList            = 12
	typeStruct          = 13
	typeUnion           = 14
	typeFixedSizeList   = 16
	typeMap             = 17
	typeLargeBinary     = 19
	typeLargeUTF8       = 20
	typeLargeList       = 21
	typeRunEndEncoded   = 22
	typeBinaryView      = 23
	typeUTF8View        = 24
	typeListView        = 25
	typeLargeListView   = 26
	unionDense          = 1
	buffersOfFixedWidth = 2 // validity, values
)

// Field describes a column.
type Field struct {
	Name   string
	Kind   Kind
	Fields []Field // children

	kind       int64 // a type above
	width      int   // bytes of an integer, or of an offset
	signed     bool
	length     int         // of the lists of a FixedSizeList
	buffers    int         // number of its own buffers
	dictionary *dictionary // contains its values; nil: not dictionary-encoded
}

// views reports whether values are views of text.
func (f Field) views() bool {
	return f.dictionary == nil && (f.kind == typeUTF8View || f.kind == typeBinaryView)
}

// Type returns the name of the type for errors.
func (f Field) Type() string {
	names := map[int64]string{
		typeNull: "null", typeInt: "integers", typeBinary: "bytes", typeUTF8: "text", typeList: "lists", typeStruct: "objects", typeUnion: "unions",
		typeFixedSizeList: "lists", typeMap: "maps", typeLargeBinary: "bytes", typeLargeUTF8: "text", typeLargeList: "lists",
		typeBinaryView: "bytes", typeUTF8View: "text", typeListView: "lists", typeLargeListView: "lists",
	}
	switch name, found := names[f.kind]; {
	case f.dictionary != nil:
		return "categories of " + f.dictionary.values.Type()
	case found:
		return name
	}
	return fmt.Sprintf("Arrow's type %d", f.kind)
}

// readFields reads the fields in a vector of a table.
func readFields(of flatTable, vector, depth int, left *int) ([]Field, error) {
	at, length, err := of.vector(vector, 4)
	if err != nil {
		return nil, err
	}
	if *left -= length; *left < 0 || depth > maxNesting {
		return nil, fmt.Errorf("%w: more than %d columns, or nested deeper than %d", ErrInvalid, maxFields, maxNesting)
	}
	fields := make([]Field, length)
	for i := range fields {
		table, err := tableAt(of.raw, at+4*i)
		if err != nil {
			return nil, err
		}
		if fields[i], err = readField(table, depth, left); err != nil {
			return nil, err
		}
	}
	return fields, nil
}

func readField(t flatTable, depth int, left *int) (f Field, err error) {
	if f.Name, err = t.text(0); err != nil {
		return f, err
	}
	if f.kind, err = t.number(2, 1, 0); err != nil {
		return f, err
	}
	if f.Fields, err = readFields(t, 5, depth+1, left); err != nil {
		return f, err
	}
	about, found, err := t.table(3)
	if err != nil {
		return f, err
	}
	if !found {
		return f, fmt.Errorf("%w: column %q has no type", ErrInvalid, f.Name)
	}
	if err := f.setType(about); err != nil {
		return f, err
	}
	encoding, found, err := t.table(4)
	if err != nil || !found {
		return f, err
	}
	return f.inDictionary(encoding)
}

// inDictionary returns the field for a dictionary-encoded column: its values are indices into a
// dictionary of values of f.
func (f Field) inDictionary(encoding flatTable) (Field, error) {
	id, idErr := encoding.number(0, 8, 0)
	about, found, typeErr := encoding.table(1)
	if err := errors.Join(idErr, typeErr); err != nil {
		return f, err
	}
	places := Field{Name: f.Name, Kind: f.Kind, Fields: f.Fields, kind: typeInt, buffers: buffersOfFixedWidth, width: 4, signed: true}
	if found {
		if err := places.setInt(about); err != nil {
			return f, err
		}
	}
	if f.nested() {
		places.Kind = KindOther
	}
	places.dictionary = &dictionary{id: id, values: f}
	return places, nil
}

// nested reports whether a field has dictionary-encoded children.
func (f Field) nested() bool {
	return slices.ContainsFunc(f.Fields, func(inner Field) bool { return inner.dictionary != nil || inner.nested() })
}

// setInt sets the properties of an integer type.
func (f *Field) setInt(about flatTable) error {
	bits, bitsErr := about.number(0, 4, 0)
	signed, signErr := about.number(1, 1, 0)
	if bitsErr != nil || signErr != nil || (bits != 8 && bits != 16 && bits != 32 && bits != 64) {
		return fmt.Errorf("%w: column %q has integers of an unsupported size, %d bits", ErrInvalid, f.Name, bits)
	}
	f.width, f.signed = int(bits/8), signed != 0
	return nil
}

// setType sets the buffers of a type.
func (f *Field) setType(about flatTable) (err error) {
	f.buffers, f.width = buffersOfFixedWidth, 4
	within := -1
	switch f.kind {
	case typeNull:
		f.Kind, f.buffers = KindNull, 0
	case typeRunEndEncoded:
		f.buffers = 0
	case typeInt:
		f.Kind, within = KindInt, 0
		if err := f.setInt(about); err != nil {
			return err
		}
	case typeUTF8, typeLargeUTF8, typeBinary, typeLargeBinary:
		f.Kind, f.buffers, within = KindText, 3, 0
	case typeUTF8View, typeBinaryView: // plus the number of text buffers in the record batch
		f.Kind, within = KindText, 0
	case typeList, typeLargeList, typeMap:
		f.Kind, within = KindList, 1
	case typeFixedSizeList:
		f.Kind, f.buffers, within = KindList, 1, 1
		length, err := about.number(0, 4, 0)
		if err != nil || length < 1 {
			return fmt.Errorf("%w: column %q has lists of an invalid size, %d values", ErrInvalid, f.Name, length)
		}
		f.length = int(length)
	case typeStruct:
		f.Kind, f.buffers = KindStruct, 1
	case typeUnion:
		mode, err := about.number(0, 2, 0)
		if err != nil {
			return err
		}
		f.buffers = 1
		if mode == unionDense {
			f.buffers = 2
		}
	case typeListView, typeLargeListView:
		f.Kind, f.buffers, within = KindList, 3, 1
	}
	if f.kind == typeLargeUTF8 || f.kind == typeLargeBinary || f.kind == typeLargeList || f.kind == typeLargeListView {
		f.width = 8
	}
	if within >= 0 && within != len(f.Fields) {
		return fmt.Errorf("%w: column %q of type %s has an invalid number of child columns, %d", ErrInvalid, f.Name, f.Type(), len(f.Fields))
	}
	return nil
}
