package prepare

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/psyche-go/psyche/base/filestart"
	"github.com/psyche-go/psyche/base/pythonjson"
)

// objects is a file with several JSON objects.
type objects struct {
	file    *os.File
	end     func()
	limit   *capped
	decoder *json.Decoder
	array   bool // the objects are the elements of an array, not one after the other
	field   string
	read    int64 // objects
}

// newObjects returns the objects of a file, and the reader of their text. The caller sets array and
// calls begin.
func newObjects(file *os.File, field string) (*objects, *bufio.Reader, error) {
	from, end, err := unpack(file)
	if err != nil {
		return nil, nil, err
	}
	limit := &capped{from: from}
	limit.reset()
	buffer := bufio.NewReader(pythonjson.Reader(filestart.Text(limit)))
	return &objects{file: file, end: end, limit: limit, decoder: json.NewDecoder(buffer), field: field}, buffer, nil
}

// openJSON opens a file with an array of JSON objects, with a sequence of objects, or with one
// object.
func openJSON(file *os.File, field string, position int64) (reader, error) {
	found, err := lookAtJSON(file.Name())
	if err != nil {
		return nil, err
	}
	a, buffer, err := newObjects(file, field)
	if err != nil {
		return nil, err
	}
	if !found.several && firstByte(buffer) == '{' {
		defer a.end()
		return openObject(buffer, file, field, position)
	}
	a.array = !found.several
	return a, a.begin(position)
}

// firstByte returns the first byte that is not white space, without consuming it. It returns 0 at
// the end.
func firstByte(from *bufio.Reader) byte {
	for {
		next, err := from.Peek(1)
		if err != nil {
			return 0 // the next read returns the error
		}
		if !bytes.Contains([]byte(" \t\r\n"), next) {
			return next[0]
		}
		_, _ = from.Discard(1)
	}
}

// begin reads the start of an array, and the objects before position.
func (o *objects) begin(position int64) error {
	if o.array {
		if start, err := o.decoder.Token(); err != nil || start != json.Delim('[') {
			o.end()
			return fmt.Errorf("want an array of JSON objects, or one object: %w", errors.Join(err, errNotObjects))
		}
	}
	for o.read < position {
		if _, err := o.nextObject(); err != nil {
			o.end()
			return fmt.Errorf("read again up to object %d: %w", position, err)
		}
	}
	return nil
}

var errNotObjects = errors.New("set another --format (jsonl: one object per line; text: one text per file)")

func (o *objects) position() int64 { return o.read }

func (o *objects) Close() error {
	o.end()
	return o.file.Close()
}

// nextObject returns the next object, or io.EOF after the last object.
func (o *objects) nextObject() (json.RawMessage, error) {
	o.limit.reset()
	if o.array && !o.decoder.More() {
		if end, err := o.decoder.Token(); err != nil || end != json.Delim(']') {
			return nil, o.cutOff(err)
		}
		if _, err := o.decoder.Token(); !errors.Is(err, io.EOF) {
			return nil, fmt.Errorf("after object %d: unexpected data after the array", o.read)
		}
		return nil, io.EOF
	}
	var object json.RawMessage
	switch err := o.decoder.Decode(&object); {
	case err == nil:
		o.read++
		return object, nil
	case !o.array && errors.Is(err, io.EOF):
		return nil, io.EOF
	case !o.array:
		return nil, fmt.Errorf("after object %d: %w; get the file again if it is truncated", o.read, err)
	case errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF):
		return nil, o.cutOff(err)
	default:
		return nil, fmt.Errorf("object %d: %w", o.read+1, err)
	}
}

// cutOff is the error for an array without an end. It differs from io.EOF, which ends the texts.
func (o *objects) cutOff(err error) error {
	if err == nil || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("after object %d: the array has no end; get the file again if it is truncated", o.read)
	}
	return fmt.Errorf("after object %d: %w", o.read, err)
}

func (o *objects) next() (sample, error) {
	object, err := o.nextObject()
	if err != nil {
		return sample{}, err
	}
	text, err := textOf(object, o.field)
	if err != nil {
		return sample{}, fmt.Errorf("object %d: %w", o.read, err)
	}
	return text, nil
}
