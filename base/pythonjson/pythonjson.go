// Package pythonjson converts JSON with the constants of Python's json module (NaN, Infinity and
// -Infinity) to standard JSON that Go reads.
//
// It replaces a constant only where JSON expects a value, not within strings. All other text is
// unchanged, so that the reader of the JSON finds the errors in it.
package pythonjson

import (
	"bufio"
	"bytes"
	"io"
	"strings"
)

// constants are the values that Python writes and JSON does not allow, with their replacements.
var constants = []struct{ name, standard, quoted string }{
	{"NaN", "null", `"N"`},
	{"Infinity", "1e9999", `"Infini"`},
	{"-Infinity", "-1e9999", `"-Infini"`},
}

// longest is the length of the longest constant plus one byte after it.
const longest = len("-Infinity") + 1

// Standard returns the text with NaN replaced by null, and Infinity by a number too large for any type.
// It returns the same slice if there is no constant.
func Standard(text []byte) []byte {
	if !bytes.Contains(text, []byte("NaN")) && !bytes.Contains(text, []byte("Infinity")) {
		return text
	}
	made, err := io.ReadAll(Reader(bytes.NewReader(text)))
	if err != nil { // a bytes.Reader never fails
		return text
	}
	return made
}

// Quoted returns the text with a string of the same length for each constant, so that offsets stay
// valid and a reader that expects a number rejects the value. It returns the same slice if there is
// no constant.
func Quoted(text []byte) []byte {
	if !bytes.Contains(text, []byte("NaN")) && !bytes.Contains(text, []byte("Infinity")) {
		return text
	}
	made := bytes.Clone(text)
	var s scanner
	for at := 0; at < len(text); at++ {
		if found := s.constant(text[at], text[at:min(at+longest, len(text))]); found >= 0 {
			at += copy(made[at:], constants[found].quoted) - 1
			s.before = 'y'
		}
	}
	return made
}

// Unquoted undoes Quoted for one value, so that messages show the original text: it replaces the string
// with its constant.
func Unquoted(value []byte) []byte {
	for _, c := range constants {
		if string(value) == c.quoted {
			return []byte(c.name)
		}
	}
	return value
}

// scanner follows JSON byte by byte.
type scanner struct {
	quoted, escaped bool // in a string; after a backslash in a string
	before          byte // outside of strings; 0 at the start
}

// constant processes the next byte and returns the index of the constant that starts there, or -1.
// ahead is the text from that byte on. It has at least longest bytes unless the text ends earlier.
func (s *scanner) constant(next byte, ahead []byte) int {
	switch {
	case s.escaped:
		s.escaped = false
		return -1
	case s.quoted:
		s.escaped, s.quoted = next == '\\', next != '"'
		return -1
	}
	before := s.before
	s.before, s.quoted = next, next == '"'
	if next != 'N' && next != 'I' && next != '-' || before != 0 && !strings.ContainsRune(" \t\r\n[,:", rune(before)) {
		return -1
	}
	for i, c := range constants {
		if rest, found := bytes.CutPrefix(ahead, []byte(c.name)); found && (len(rest) == 0 || strings.ContainsRune(" \t\r\n],}", rune(rest[0]))) {
			return i
		}
	}
	return -1
}

// Reader returns a reader that converts a stream as Standard converts a text.
func Reader(from io.Reader) io.Reader { return &reader{from: bufio.NewReaderSize(from, 64<<10)} }

type reader struct {
	scanner
	from    *bufio.Reader
	pending string // of a replacement
	err     error
}

func (r *reader) Read(p []byte) (n int, _ error) {
	for n < len(p) && r.err == nil {
		if r.pending != "" {
			part := copy(p[n:], r.pending)
			n, r.pending = n+part, r.pending[part:]
			continue
		}
		var next byte
		if next, r.err = r.from.ReadByte(); r.err != nil {
			break
		}
		p[n] = next
		n++
		if !r.quoted && (next == 'N' || next == 'I' || next == '-') {
			p[n-1] = r.replace(next)
		} else {
			r.constant(next, nil)
		}
	}
	if n > 0 {
		return n, nil
	}
	return 0, r.err
}

// replace skips the constant that starts with next, if there is one, and returns the first byte of
// its replacement, or next.
func (r *reader) replace(next byte) byte {
	rest, _ := r.from.Peek(longest - 1) // the read of the next byte returns the error
	found := r.constant(next, append([]byte{next}, rest...))
	if found < 0 {
		return next
	}
	_, _ = r.from.Discard(len(constants[found].name) - 1) // cannot fail after Peek
	r.before = 'y'
	r.pending = constants[found].standard[1:]
	return constants[found].standard[0]
}
