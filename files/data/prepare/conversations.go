package prepare

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
)

// conversations reads the conversations of one file, in order.
type conversations interface {
	// conversation returns the JSON of a conversation, or io.EOF after the last conversation. The
	// JSON is empty for an empty line, and valid until the next call. Errors name the position.
	conversation() ([]byte, error)
	// place names the last conversation, such as "line 3".
	place() string
	io.Closer
}

// errTables means that the format of a file is not supported for conversations.
var errTables = errors.New("conversations must be JSON; write them as JSON lines, for example with to_json of Python's datasets")

// openConversations opens a file of JSON lines. A file with the ending .json has an array of
// objects, or objects one after the other.
func openConversations(path string) (r conversations, err error) {
	format := formatByName(path)
	if format == formatParquet || format == formatArrow || format == formatCSV {
		return nil, errTables
	}
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	if format == formatJSON {
		r, err = openObjects(file)
	} else {
		r, err = openLines(file, "", 0)
	}
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return r, nil
}

func (l *lines) conversation() ([]byte, error) {
	line, err := l.readLine()
	if err != nil && !errors.Is(err, io.EOF) {
		err = fmt.Errorf("after line %d: %w", l.line, err)
	}
	return line, err
}

func (l *lines) place() string { return fmt.Sprintf("line %d", l.line) }

func (o *objects) conversation() ([]byte, error) { return o.nextObject() }
func (o *objects) place() string                 { return fmt.Sprintf("object %d", o.read) }

// openObjects opens a file with an array of objects, or with objects one after the other.
func openObjects(file *os.File) (conversations, error) {
	a, buffer, err := newObjects(file, "")
	if err != nil {
		return nil, err
	}
	a.array = firstByte(buffer) == '['
	return a, a.begin(0)
}

// holdsConversations reports whether a file in a folder is read: JSON lines, and .json with an
// array of objects or with several objects. A single object describes a data set, as in
// dataset_info.json.
func holdsConversations(path string) (bool, error) {
	switch formatByName(path) {
	case formatJSONL:
		return true, nil
	case formatJSON:
		format, err := formatOfJSON(path, false)
		return format == formatJSON || format == formatJSONL, err
	}
	return false, nil
}

// pairs reads Alpaca's history: questions with their answers.
func pairs(raw json.RawMessage) (read [][2]string, err error) {
	var lists [][]*string
	err = json.Unmarshal(raw, &lists)
	for i, list := range lists {
		if err == nil && (len(list) != 2 || list[0] == nil || list[1] == nil) {
			err = fmt.Errorf("item %d is not a pair of texts", i)
		}
		if err == nil {
			read = append(read, [2]string{*list[0], *list[1]})
		}
	}
	if err != nil {
		return nil, fmt.Errorf("history: want a list of pairs of texts: %w", err)
	}
	return read, nil
}
