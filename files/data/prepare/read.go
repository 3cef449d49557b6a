package prepare

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/psyche-go/psyche/base/filestart"
	"github.com/psyche-go/psyche/base/pythonjson"
)

// reader reads the texts of one file, in order.
type reader interface {
	// next returns a text, or io.EOF after the last text. The text is valid until the next call.
	next() (sample, error)
	// position returns the number of lines, rows or texts read so far, for errors and resuming.
	position() int64
	io.Closer
}

// errBinary means that a text file contains something other than text.
var errBinary = errors.New("not UTF-8 text")

// open opens a file and moves to a position that an earlier reader of it reported.
func (o Options) open(ctx context.Context, s source, position int64) (reader, error) {
	file, err := os.Open(s.path)
	if err != nil {
		return nil, fmt.Errorf("read text: %w", err)
	}
	var r reader
	field := o.Field
	switch s.format {
	case formatParquet:
		r, err = openParquet(ctx, file, field, position)
	case formatArrow:
		r, err = openArrow(file, field, position)
	case formatJSONL:
		r, err = openLines(file, field, position)
	case formatJSON:
		r, err = openJSON(file, field, position)
	case formatCSV:
		r, err = openRecords(file, field, o.Quotes, position)
	default:
		r = &textFile{file: file, read: position}
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("read text %s: %w", s.path, err), file.Close())
	}
	return r, nil
}

// textFile is a file that is one text.
type textFile struct {
	file *os.File
	read int64
}

func (f *textFile) Close() error    { return f.file.Close() }
func (f *textFile) position() int64 { return f.read }

// next returns the content of the file, or errBinary: text is UTF-8 without a NUL, or UTF-16 with a byte order mark.
// A byte order mark of UTF-8 stays, as in Python.
func (f *textFile) next() (sample, error) {
	if f.read > 0 {
		return sample{}, io.EOF
	}
	f.read++
	text, err := f.content()
	if err == nil {
		text, err = decoded(text)
	}
	if err != nil {
		return sample{}, err
	}
	return sample{text: text}, nil
}

// decoded returns the text of a file in UTF-8, or errBinary, wrapped with the reason if that is
// known.
func decoded(text []byte) ([]byte, error) {
	start := filestart.Check(text[:min(len(text), filestart.Size)])
	if errors.Is(start, filestart.ErrUTF16) {
		text, start = io.ReadAll(filestart.Text(bytes.NewReader(text)))
	}
	if start != nil && !errors.Is(start, filestart.ErrMark) {
		return nil, fmt.Errorf("%w: %w", errBinary, start)
	}
	if bytes.IndexByte(text, 0) >= 0 || !utf8.Valid(text) {
		return nil, errBinary
	}
	return text, nil
}

func (f *textFile) content() ([]byte, error) {
	if slices.Contains(compressions, path.Ext(strings.ToLower(f.file.Name()))) {
		from, end, err := unpack(f.file)
		if err != nil {
			return nil, err
		}
		defer end()
		text, err := io.ReadAll(io.LimitReader(from, maxDocument+1))
		if err == nil && len(text) > maxDocument {
			err = fmt.Errorf("unpacks to more than %d bytes; split it", maxDocument)
		}
		return text, err
	}
	info, err := f.file.Stat()
	if err != nil {
		return nil, err
	}
	if info.Size() > maxTextSize {
		return nil, fmt.Errorf("%d bytes, the limit is %d; split it", info.Size(), maxTextSize)
	}
	text := make([]byte, info.Size())
	if _, err := io.ReadFull(f.file, text); err != nil {
		return nil, fmt.Errorf("%w; the file may have changed, run the command again", err)
	}
	return text, nil
}

// lines is a file with a JSON object in every line.
type lines struct {
	file   *os.File
	end    func()
	buffer *bufio.Reader
	field  string
	line   int64 // number of the last line read
	long   []byte
	found  bool // an object was read
}

func openLines(file *os.File, field string, position int64) (*lines, error) {
	from, end, err := unpack(file)
	if err != nil {
		return nil, err
	}
	l := &lines{file: file, end: end, field: field}
	l.buffer = bufio.NewReaderSize(filestart.Text(from), 1<<20)
	for l.line < position {
		if _, err := l.readLine(); err != nil {
			end()
			return nil, fmt.Errorf("resume after line %d: %w", position, err)
		}
	}
	return l, nil
}

func (l *lines) position() int64 { return l.line }

func (l *lines) Close() error {
	l.end()
	return l.file.Close()
}

// readLine returns the next line without its line break, or io.EOF.
func (l *lines) readLine() ([]byte, error) {
	l.long = l.long[:0]
	for {
		part, err := l.buffer.ReadSlice('\n')
		if len(l.long)+len(part) > maxDocument {
			return nil, fmt.Errorf("the next line is longer than %d bytes; split it", maxDocument)
		}
		if errors.Is(err, bufio.ErrBufferFull) {
			l.long = append(l.long, part...)
			continue
		}
		if len(l.long) > 0 {
			l.long = append(l.long, part...)
			part = l.long
		}
		if errors.Is(err, io.EOF) && len(part) > 0 {
			err = nil
		}
		if errors.Is(err, io.ErrUnexpectedEOF) {
			err = fmt.Errorf("%w; get the file again if it is truncated", err)
		}
		if err == nil {
			l.line++
		}
		return bytes.TrimRight(part, "\r\n"), err
	}
}

func (l *lines) next() (sample, error) {
	for {
		line, err := l.readLine()
		if errors.Is(err, io.EOF) {
			return sample{}, err
		}
		if err != nil {
			return sample{}, fmt.Errorf("after line %d: %w", l.line, err)
		}
		if len(bytes.TrimSpace(line)) == 0 {
			continue
		}
		text, err := textOf(line, l.field)
		if _, wrong := errors.AsType[*json.SyntaxError](err); wrong && bytes.IndexByte(line, '\r') >= 0 {
			err = errLoneCR
		} else if err != nil && notLines(line, !l.found) {
			err = fmt.Errorf("%w; read the file with --format json (%w)", errNotLines, err)
		}
		if err != nil {
			return sample{}, fmt.Errorf("line %d: %w", l.line, err)
		}
		l.found = true
		return text, nil
	}
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
