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

// objectStream reads a sequence of JSON objects, which may span several lines each.
type objectStream struct{ objects }

// openStream opens a file, and moves to a position that an earlier reader of it reported.
func openStream(file *os.File, field string, position int64) (reader, error) {
	from, end, err := unpack(file)
	if err != nil {
		return nil, err
	}
	limit := &capped{from: from}
	limit.reset()
	s := &objectStream{objects{
		file: file, end: end, limit: limit, field: field,
		decoder: json.NewDecoder(bufio.NewReader(pythonjson.Reader(filestart.Text(limit)))),
	}}
	for s.read < position {
		if _, err := s.nextObject(); err != nil {
			end()
			return nil, fmt.Errorf("read again up to object %d: %w", position, err)
		}
	}
	return s, nil
}

// nextObject returns the next object, or io.EOF after the last object.
func (s *objectStream) nextObject() (json.RawMessage, error) {
	s.limit.reset()
	var object json.RawMessage
	if err := s.decoder.Decode(&object); errors.Is(err, io.EOF) {
		return nil, io.EOF
	} else if err != nil {
		return nil, fmt.Errorf("after object %d: %w; get the file again if it is truncated", s.read, err)
	}
	s.read++
	return object, nil
}

func (s *objectStream) next() (sample, error) {
	object, err := s.nextObject()
	if err != nil {
		return sample{}, err
	}
	text, err := textOf(object, s.field)
	if err != nil {
		return sample{}, fmt.Errorf("object %d: %w", s.read, err)
	}
	return text, nil
}

// errNotLines means that the lines of a file are not JSON objects, but parts of objects, or several
// objects.
var errNotLines = errors.New("the file does not contain one JSON object per line")

// notLines reports whether a line is an array of objects, has several objects or, if it is the
// first line, is the start of an object or an array. A later line without an end may be truncated.
func notLines(line []byte, first bool) bool {
	line = bytes.TrimSpace(pythonjson.Standard(line))
	if len(line) == 0 || line[0] != '{' && line[0] != '[' {
		return false
	}
	decoder := json.NewDecoder(bytes.NewReader(line))
	var value json.RawMessage
	switch err := decoder.Decode(&value); {
	case errors.Is(err, io.ErrUnexpectedEOF):
		return first
	case err != nil:
		return false
	case value[0] == '[':
		return len(bytes.TrimSpace(value[1:])) > 0 && bytes.TrimSpace(value[1:])[0] == '{'
	}
	return decoder.Decode(&value) == nil
}
