package arrowfile

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/psyche-go/psyche/base/filestart"
)

// ErrInvalid means that a file is not an Arrow file, is damaged, or is of an unsupported kind.
var ErrInvalid = errors.New("invalid Arrow file")

// maxDescription is the maximum size of a message's description in bytes.
const maxDescription = 64 << 20

// maxRows is the maximum number of rows of a record batch.
const maxRows = 1 << 27

const magic = "ARROW1\x00\x00"

// Kinds of messages (Message.fbs).
const (
	messageSchema     = 1
	messageDictionary = 2
	messageBatch      = 3
)

// continuation precedes the length of a description.
const continuation = 0xffffffff

// File is an open file or stream.
type File struct {
	Fields []Field

	from    io.ReaderAt
	size    int64
	at      int64 // offset of the next message
	version int64

	dictionaries []*dictionary
}

// Open reads the schema of a file of size bytes. An Arrow file contains an Arrow stream with an end
// mark, and Open reads both kinds as a stream.
func Open(from io.ReaderAt, size int64) (*File, error) {
	f := &File{from: from, size: size}
	start := make([]byte, min(size, filestart.Size))
	if _, err := from.ReadAt(start, 0); err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	if err := filestart.Pointer(start); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	if strings.HasPrefix(string(start), magic) {
		f.at = int64(len(magic))
	}
	if len(start) >= 4 && string(start[:4]) == "FEA1" {
		return nil, fmt.Errorf("%w: Feather version 1 is not supported; write the file as Feather version 2 (Arrow IPC)", ErrInvalid)
	}
	m, err := f.message()
	if errors.Is(err, io.EOF) {
		err = fmt.Errorf("%w: truncated before the schema", ErrInvalid)
	}
	if err != nil {
		return nil, err
	}
	if m.kind != messageSchema {
		return nil, fmt.Errorf("%w: the first message is not a schema", ErrInvalid)
	}
	if order, err := m.head.number(0, 2, 0); err != nil || order != 0 {
		return nil, fmt.Errorf("%w: big-endian data is not supported; write the file as little-endian", ErrInvalid)
	}
	left := maxFields
	f.version = m.version
	if f.Fields, err = readFields(m.head, 1, 0, &left); err != nil {
		return nil, err
	}
	f.addDictionaries(f.Fields)
	return f, nil
}

// message is a part of a stream.
type message struct {
	kind       int64
	version    int64
	head       flatTable
	at         int64 // its offset
	body, size int64 // offset and size of its body
}

// message reads the next message, or returns io.EOF at the end.
func (f *File) message() (message, error) {
	m, err := f.messageAt(f.at)
	if err == nil {
		f.at = m.body + m.size
	}
	return m, err
}

func (f *File) messageAt(at int64) (m message, err error) {
	var start [8]byte
	if at == f.size {
		return m, io.EOF
	}
	n, err := f.from.ReadAt(start[:], at)
	if err != nil && !errors.Is(err, io.EOF) {
		return m, err
	}
	length, before := binary.LittleEndian.Uint32(start[:]), int64(4) // as before Arrow 0.15
	if length == continuation {
		length, before = binary.LittleEndian.Uint32(start[4:]), 8
	}
	if int64(n) < before {
		return m, fmt.Errorf("%w: truncated within a message; get the file again", ErrInvalid)
	}
	if length == 0 {
		return m, io.EOF
	}
	if int64(length) > f.size-at-before || length > maxDescription {
		return m, fmt.Errorf("%w: at byte %d a message header has an invalid length of %d bytes; check that this is an Arrow file, and get it again if it is truncated", ErrInvalid, at, length)
	}
	raw := make([]byte, length)
	if _, err := f.from.ReadAt(raw, at+before); err != nil {
		return m, err
	}
	root, err := rootTable(raw)
	if err != nil {
		return m, err
	}
	var found bool
	var errs [5]error
	m.version, errs[0] = root.number(0, 2, 0)
	m.kind, errs[1] = root.number(1, 1, 0)
	m.head, found, errs[2] = root.table(2)
	m.size, errs[3] = root.number(3, 8, 0)
	m.at, m.body = at, at+before+int64(length)
	if err := errors.Join(errs[:]...); err != nil {
		return m, err
	}
	if !found || m.size < 0 || m.size > f.size-m.body {
		return m, fmt.Errorf("%w: the message at byte %d has %d bytes, but the file ends earlier; get the file again", ErrInvalid, at, m.size)
	}
	return m, nil
}

// Next returns the next record batch, or io.EOF after the last.
func (f *File) Next() (*Batch, error) {
	for {
		m, err := f.message()
		if err != nil {
			return nil, err
		}
		switch m.kind {
		case messageBatch:
			return f.batch(m, m.head)
		case messageDictionary:
			if err := f.note(m); err != nil {
				return nil, err
			}
		default:
			return nil, fmt.Errorf("%w: unexpected message of kind %d between record batches", ErrInvalid, m.kind)
		}
	}
}
