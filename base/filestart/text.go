package filestart

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"unicode/utf16"
	"unicode/utf8"
)

// errDamaged means that UTF-16 text contains half a character.
var errDamaged = errors.New("UTF-16 is damaged")

// Text returns a reader that converts a text to UTF-8 without a byte order mark. The text is UTF-8,
// which Text does not validate, or UTF-16 with a byte order mark. For any other start that Check
// rejects, the first Read returns an error.
func Text(from io.Reader) io.Reader { return &text{from: from} }

type text struct {
	from  io.Reader
	begun bool
}

func (t *text) Read(p []byte) (int, error) {
	if !t.begun {
		t.begun = true
		start := make([]byte, Size)
		n, err := io.ReadFull(t.from, start)
		start = start[:n]
		if found := foreign(start); found != nil {
			t.from = broken{found}
		} else {
			t.from = decoder(start, t.from, err)
		}
	}
	return t.from.Read(p)
}

// broken is a reader that only returns an error.
type broken struct{ err error }

func (b broken) Read([]byte) (int, error) { return 0, b.err }

// decoder returns a reader of start and rest. If err is not nil, the reader returns start and then err.
func decoder(start []byte, rest io.Reader, err error) io.Reader {
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		rest = broken{err}
	}
	if marked(start) {
		order := binary.ByteOrder(binary.LittleEndian)
		if start[0] == markBig16[0] {
			order = binary.BigEndian
		}
		return &utf16Reader{from: bufio.NewReader(io.MultiReader(bytes.NewReader(start[2:]), rest)), order: order}
	}
	start = bytes.TrimPrefix(start, []byte(markUTF8))
	return io.MultiReader(bytes.NewReader(start), rest)
}

// utf16Reader converts UTF-16 to UTF-8.
type utf16Reader struct {
	from    *bufio.Reader
	order   binary.ByteOrder
	read    int64  // bytes, without the mark
	pending []byte // UTF-8 that was not returned yet
}

func (r *utf16Reader) Read(p []byte) (n int, _ error) {
	for n < len(p) {
		if len(r.pending) == 0 {
			char, err := r.rune()
			if err != nil && n > 0 {
				return n, nil // the next Read meets the same error
			}
			if err != nil {
				return 0, err
			}
			r.pending = utf8.AppendRune(r.pending[:0], char)
		}
		part := copy(p[n:], r.pending)
		n, r.pending = n+part, r.pending[part:]
	}
	return n, nil
}

// rune returns the next character. It consumes nothing if there is an error.
func (r *utf16Reader) rune() (rune, error) {
	first, err := r.unit(0)
	if err != nil {
		return 0, err
	}
	char, size := first, 2
	if utf16.IsSurrogate(first) {
		second, err := r.unit(2)
		if err != nil && !errors.Is(err, io.EOF) {
			return 0, err
		}
		if char, size = utf16.DecodeRune(first, second), 4; char == utf8.RuneError {
			return 0, fmt.Errorf("%w: half a pair of surrogates at byte %d", errDamaged, r.read+2)
		}
	}
	r.read += int64(size)
	_, err = r.from.Discard(size) // cannot fail after Peek
	return char, err
}

// unit returns the 16 bits at an offset ahead, or io.EOF.
func (r *utf16Reader) unit(at int) (rune, error) {
	ahead, err := r.from.Peek(at + 2)
	switch {
	case len(ahead) == at+2:
		return rune(r.order.Uint16(ahead[at:])), nil
	case len(ahead) == at+1 && errors.Is(err, io.EOF):
		return 0, fmt.Errorf("%w: odd number of bytes; get the file again if it is truncated", errDamaged)
	}
	return 0, err
}
