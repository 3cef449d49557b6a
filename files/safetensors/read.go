package safetensors

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/psyche-go/psyche/base/filestart"
)

// lengthSize is the size in bytes of the header length at the start of a file.
const lengthSize = 8

// metadataKey is the only header key that does not name a tensor.
const metadataKey = "__metadata__"

// Header is the decoded header of a file.
type Header struct {
	Tensors  []Entry           // sorted by name
	Metadata map[string]string // nil if there is none
	DataSize int64             // bytes of the data, which is the rest of the file
}

// Entry is one tensor of a header.
type Entry struct {
	Name       string
	DType      DType
	Shape      []int64
	Begin, End int64 // offsets from the start of the data
}

// Read returns the tensors of a file sorted by name, and its metadata (nil if there is none).
// Errors wrap errInvalid if the content is invalid.
func Read(path string) ([]Tensor, map[string]string, error) {
	return ReadThrough(path, func(r io.Reader) io.Reader { return r })
}

// ReadThrough is Read through a reader that wraps the file, for example to count the bytes.
func ReadThrough(path string, through func(io.Reader) io.Reader) ([]Tensor, map[string]string, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, nil, fmt.Errorf("read safetensors: %w", err)
	}
	defer func() { _ = file.Close() }()
	info, err := file.Stat()
	if err != nil {
		return nil, nil, fmt.Errorf("read safetensors: %w", err)
	}
	if !info.Mode().IsRegular() {
		return nil, nil, fmt.Errorf("read safetensors %s: not a regular file", path)
	}
	tensors, metadata, err := readFrom(through(file), info.Size())
	if err != nil {
		return nil, nil, fmt.Errorf("read safetensors %s: %w", path, err)
	}
	return tensors, metadata, nil
}

func readFrom(r io.Reader, size int64) ([]Tensor, map[string]string, error) {
	header, err := ReadHeader(r, size)
	if err != nil {
		return nil, nil, err
	}
	// The offsets have been checked against the file's actual size, so a false header cannot make
	// this allocation larger than the file.
	data := make([]byte, header.DataSize)
	if _, err := io.ReadFull(r, data); err != nil {
		return nil, nil, fmt.Errorf("%w: truncated while reading: %w", errInvalid, err)
	}
	return cut(header.Tensors, data), header.Metadata, nil
}

// cut assigns every entry its part of the data.
func cut(entries []Entry, data []byte) []Tensor {
	tensors := make([]Tensor, len(entries))
	for i, e := range entries {
		tensors[i] = Tensor{Name: e.Name, DType: e.DType, Shape: e.Shape, Data: data[e.Begin:e.End:e.End]}
	}
	return tensors
}

// pointerStart is the start of a Git LFS pointer, which replaces a file that was not downloaded. No
// valid file begins with these bytes, because the header length would exceed the limit.
const pointerStart = "version "

// ReadHeader reads the header of a file of size bytes from r, up to the start of the data. It is as
// strict as Read: every tensor of the header fits its shape, and together they cover the data
// exactly once. It refuses a header of more than maxHeaderSize bytes without reading it.
func ReadHeader(r io.Reader, size int64) (Header, error) {
	var prefix [lengthSize]byte
	if size < lengthSize {
		return Header{}, fmt.Errorf("%w: truncated: %d bytes, want at least %d", errInvalid, size, lengthSize)
	}
	if _, err := io.ReadFull(r, prefix[:]); err != nil {
		return Header{}, fmt.Errorf("%w: %w", errInvalid, err)
	}
	if string(prefix[:]) == pointerStart {
		return Header{}, fmt.Errorf("%w: %w", errInvalid, filestart.ErrPointer)
	}
	length := binary.LittleEndian.Uint64(prefix[:])
	if length > maxHeaderSize {
		return Header{}, fmt.Errorf("%w: header has %d bytes, the limit is %d", errInvalid, length, maxHeaderSize)
	}
	if int64(length) > size-lengthSize {
		return Header{}, fmt.Errorf("%w: truncated: header has %d bytes, file has %d", errInvalid, length, size)
	}
	text := make([]byte, length)
	if _, err := io.ReadFull(r, text); err != nil {
		return Header{}, fmt.Errorf("%w: %w", errInvalid, err)
	}
	entries, metadata, err := parseHeader(text)
	if err != nil {
		return Header{}, err
	}
	dataSize := size - lengthSize - int64(length)
	if err := checkLayout(entries, dataSize); err != nil {
		return Header{}, err
	}
	slices.SortFunc(entries, func(a, b Entry) int { return strings.Compare(a.Name, b.Name) })
	return Header{Tensors: entries, Metadata: metadata, DataSize: dataSize}, nil
}

// checkLayout requires every tensor's bytes to fit its shape and all of them to cover the data
// exactly once.
func checkLayout(entries []Entry, dataSize int64) error {
	order := slices.Clone(entries)
	slices.SortFunc(order, func(a, b Entry) int {
		return cmp.Or(cmp.Compare(a.Begin, b.Begin), cmp.Compare(a.End, b.End))
	})
	var at int64
	for _, e := range order {
		size, err := Size(e.DType, e.Shape)
		if err != nil {
			return fmt.Errorf("tensor %q: %w", e.Name, err)
		}
		switch {
		case e.End < e.Begin || e.End-e.Begin != size:
			return fmt.Errorf("%w: tensor %q: %s of shape %v needs %d bytes, data_offsets are [%d,%d]",
				errInvalid, e.Name, e.DType, e.Shape, size, e.Begin, e.End)
		case e.Begin < at:
			return fmt.Errorf("%w: tensor %q overlaps the tensor before it at data offset %d", errInvalid, e.Name, e.Begin)
		case e.Begin > at:
			return fmt.Errorf("%w: %d unused bytes before tensor %q", errInvalid, e.Begin-at, e.Name)
		case e.End > dataSize:
			return fmt.Errorf("%w: truncated: tensor %q ends at data offset %d, the file has %d data bytes",
				errInvalid, e.Name, e.End, dataSize)
		}
		at = e.End
	}
	if at != dataSize {
		return fmt.Errorf("%w: %d bytes after the last tensor", errInvalid, dataSize-at)
	}
	return nil
}

// parseHeader parses the JSON object by tokens: the decoder's mapping to structs would accept
// duplicate keys, different letter case and unknown fields.
func parseHeader(header []byte) ([]Entry, map[string]string, error) {
	if len(header) == 0 || header[0] != '{' {
		return nil, nil, fmt.Errorf("%w: header does not start with '{'", errInvalid)
	}
	if !utf8.Valid(header) {
		return nil, nil, fmt.Errorf("%w: header is not UTF-8", errInvalid)
	}
	p := parser{json.NewDecoder(bytes.NewReader(header))}
	p.UseNumber()
	var (
		entries  []Entry
		metadata map[string]string
	)
	err := p.object("header", func(name string) error {
		if name == metadataKey {
			metadata = map[string]string{}
			return p.object(metadataKey, func(key string) error {
				value, err := p.text()
				metadata[key] = value
				return err
			})
		}
		e, err := p.entry(name)
		entries = append(entries, e)
		return err
	})
	if err != nil {
		return nil, nil, err
	}
	if rest := bytes.TrimLeft(header[p.InputOffset():], " "); len(rest) > 0 {
		return nil, nil, fmt.Errorf("%w: %d bytes follow the header's JSON object", errInvalid, len(rest))
	}
	return entries, metadata, nil
}

type parser struct{ *json.Decoder }

func (p parser) token() (json.Token, error) {
	token, err := p.Token()
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return nil, fmt.Errorf("%w: header: %w", errInvalid, err)
	}
	return token, nil
}

func (p parser) delim(want json.Delim, subject string) error {
	token, err := p.token()
	if err != nil {
		return err
	}
	if token != want {
		return fmt.Errorf("%w: header: %s: want %q, found %v", errInvalid, subject, want.String(), token)
	}
	return nil
}

// object parses one JSON object. It calls value after each key; value must read the value.
func (p parser) object(subject string, value func(key string) error) error {
	if err := p.delim('{', subject); err != nil {
		return err
	}
	seen := map[string]bool{}
	for p.More() {
		key, err := p.text()
		if err != nil {
			return err
		}
		if seen[key] {
			return fmt.Errorf("%w: header: %s: name %q occurs twice", errInvalid, subject, key)
		}
		seen[key] = true
		if err := value(key); err != nil {
			return err
		}
	}
	return p.delim('}', subject)
}

func (p parser) text() (string, error) {
	token, err := p.token()
	if err != nil {
		return "", err
	}
	text, ok := token.(string)
	if !ok {
		return "", fmt.Errorf("%w: header: want a string, found %v", errInvalid, token)
	}
	return text, nil
}

// integers parses an array of integers from 0 to 2^63-1.
func (p parser) integers(subject string) ([]int64, error) {
	if err := p.delim('[', subject); err != nil {
		return nil, err
	}
	numbers := []int64{}
	for p.More() {
		token, err := p.token()
		if err != nil {
			return nil, err
		}
		literal, ok := token.(json.Number)
		if !ok {
			return nil, fmt.Errorf("%w: header: %s: want an integer, found %v", errInvalid, subject, token)
		}
		number, err := strconv.ParseUint(literal.String(), 10, 63)
		if err != nil {
			return nil, fmt.Errorf("%w: header: %s: want an integer from 0 to 2^63-1, found %s", errInvalid, subject, literal)
		}
		numbers = append(numbers, int64(number))
	}
	return numbers, p.delim(']', subject)
}

func (p parser) entry(name string) (Entry, error) {
	e := Entry{Name: name}
	subject := fmt.Sprintf("tensor %q", name)
	fields := 0
	err := p.object(subject, func(key string) error {
		fields++
		switch key {
		case "dtype":
			text, err := p.text()
			e.DType = DType(text)
			return err
		case "shape":
			shape, err := p.integers(subject + " shape")
			e.Shape = shape
			return err
		case "data_offsets":
			offsets, err := p.integers(subject + " data_offsets")
			if err != nil {
				return err
			}
			if len(offsets) != 2 {
				return fmt.Errorf("%w: header: %s: data_offsets has %d numbers, want 2", errInvalid, subject, len(offsets))
			}
			e.Begin, e.End = offsets[0], offsets[1]
			return nil
		}
		return fmt.Errorf("%w: header: %s: unknown key %q", errInvalid, subject, key)
	})
	if err == nil && fields != 3 {
		err = fmt.Errorf("%w: header: %s: want dtype, shape and data_offsets", errInvalid, subject)
	}
	return e, err
}
