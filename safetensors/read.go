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
)

// lengthSize is the bytes of the header length at the start of a file.
const lengthSize = 8

// metadataKey is the one header key that names no tensor.
const metadataKey = "__metadata__"

// entry is one tensor of a header; begin and end count from the start of the data.
type entry struct {
	name       string
	dtype      DType
	shape      []int64
	begin, end int64
}

// Read returns the tensors of a file sorted by name, and its metadata (nil when it
// has none). Errors wrap ErrInvalid when the content is at fault.
func Read(path string) ([]Tensor, map[string]string, error) {
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
	tensors, metadata, err := readFrom(file, info.Size())
	if err != nil {
		return nil, nil, fmt.Errorf("read safetensors %s: %w", path, err)
	}
	return tensors, metadata, nil
}

// Decode is Read for the bytes of a file. The tensors' data are parts of b.
func Decode(b []byte) ([]Tensor, map[string]string, error) {
	entries, metadata, data, err := decodeHeader(bytes.NewReader(b), int64(len(b)))
	if err != nil {
		return nil, nil, err
	}
	return cut(entries, b[int64(len(b))-data:]), metadata, nil
}

func readFrom(r io.Reader, size int64) ([]Tensor, map[string]string, error) {
	entries, metadata, dataSize, err := decodeHeader(r, size)
	if err != nil {
		return nil, nil, err
	}
	// The offsets have been checked against the file's real size: a lying header
	// cannot make this allocation larger than the file.
	data := make([]byte, dataSize)
	if _, err := io.ReadFull(r, data); err != nil {
		return nil, nil, fmt.Errorf("%w: truncated while reading: %w", ErrInvalid, err)
	}
	return cut(entries, data), metadata, nil
}

// cut gives every entry its part of the data and sorts the tensors by name.
func cut(entries []entry, data []byte) []Tensor {
	tensors := make([]Tensor, len(entries))
	for i, e := range entries {
		tensors[i] = Tensor{Name: e.name, DType: e.dtype, Shape: e.shape, Data: data[e.begin:e.end:e.end]}
	}
	slices.SortFunc(tensors, func(a, b Tensor) int { return strings.Compare(a.Name, b.Name) })
	return tensors
}

// decodeHeader reads length and header from a file of the given size, checks
// everything, and returns the entries and the number of data bytes that follow.
func decodeHeader(r io.Reader, size int64) ([]entry, map[string]string, int64, error) {
	var prefix [lengthSize]byte
	if size < lengthSize {
		return nil, nil, 0, fmt.Errorf("%w: truncated: %d bytes, a file has at least %d", ErrInvalid, size, lengthSize)
	}
	if _, err := io.ReadFull(r, prefix[:]); err != nil {
		return nil, nil, 0, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	length := binary.LittleEndian.Uint64(prefix[:])
	if length > MaxHeaderSize {
		return nil, nil, 0, fmt.Errorf("%w: header of %d bytes, at most %d are allowed", ErrInvalid, length, MaxHeaderSize)
	}
	if int64(length) > size-lengthSize {
		return nil, nil, 0, fmt.Errorf("%w: truncated: header of %d bytes in a file of %d", ErrInvalid, length, size)
	}
	header := make([]byte, length)
	if _, err := io.ReadFull(r, header); err != nil {
		return nil, nil, 0, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	entries, metadata, err := parseHeader(header)
	if err != nil {
		return nil, nil, 0, err
	}
	dataSize := size - lengthSize - int64(length)
	if err := checkLayout(entries, dataSize); err != nil {
		return nil, nil, 0, err
	}
	return entries, metadata, dataSize, nil
}

// checkLayout wants every tensor's bytes to fit its shape and all of them to cover
// the data exactly once.
func checkLayout(entries []entry, dataSize int64) error {
	order := slices.Clone(entries)
	slices.SortFunc(order, func(a, b entry) int {
		return cmp.Or(cmp.Compare(a.begin, b.begin), cmp.Compare(a.end, b.end))
	})
	var at int64
	for _, e := range order {
		size, err := Size(e.dtype, e.shape)
		if err != nil {
			return fmt.Errorf("tensor %q: %w", e.name, err)
		}
		switch {
		case e.end < e.begin || e.end-e.begin != size:
			return fmt.Errorf("%w: tensor %q: %s of shape %v needs %d bytes, data_offsets are [%d,%d]",
				ErrInvalid, e.name, e.dtype, e.shape, size, e.begin, e.end)
		case e.begin < at:
			return fmt.Errorf("%w: tensor %q overlaps another one at data offset %d", ErrInvalid, e.name, e.begin)
		case e.begin > at:
			return fmt.Errorf("%w: %d bytes before tensor %q belong to no tensor", ErrInvalid, e.begin-at, e.name)
		case e.end > dataSize:
			return fmt.Errorf("%w: truncated: tensor %q ends at data offset %d, the file has %d data bytes",
				ErrInvalid, e.name, e.end, dataSize)
		}
		at = e.end
	}
	if at != dataSize {
		return fmt.Errorf("%w: %d bytes after the last tensor", ErrInvalid, dataSize-at)
	}
	return nil
}

// parseHeader reads the JSON object by tokens: the decoder's mapping to structs would
// accept duplicate keys, other letter case and unknown fields.
func parseHeader(header []byte) ([]entry, map[string]string, error) {
	if len(header) == 0 || header[0] != '{' {
		return nil, nil, fmt.Errorf("%w: header does not start with '{'", ErrInvalid)
	}
	if !utf8.Valid(header) {
		return nil, nil, fmt.Errorf("%w: header is not UTF-8", ErrInvalid)
	}
	p := parser{json.NewDecoder(bytes.NewReader(header))}
	p.UseNumber()
	var (
		entries  []entry
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
		return nil, nil, fmt.Errorf("%w: %d bytes follow the header's JSON object", ErrInvalid, len(rest))
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
		return nil, fmt.Errorf("%w: header: %w", ErrInvalid, err)
	}
	return token, nil
}

func (p parser) delim(want json.Delim, what string) error {
	token, err := p.token()
	if err != nil {
		return err
	}
	if token != want {
		return fmt.Errorf("%w: header: %s: want %q, found %v", ErrInvalid, what, want.String(), token)
	}
	return nil
}

// object reads one JSON object; value is called after each key and must read its value.
func (p parser) object(what string, value func(key string) error) error {
	if err := p.delim('{', what); err != nil {
		return err
	}
	seen := map[string]bool{}
	for p.More() {
		key, err := p.text()
		if err != nil {
			return err
		}
		if seen[key] {
			return fmt.Errorf("%w: header: %s: name %q occurs twice", ErrInvalid, what, key)
		}
		seen[key] = true
		if err := value(key); err != nil {
			return err
		}
	}
	return p.delim('}', what)
}

func (p parser) text() (string, error) {
	token, err := p.token()
	if err != nil {
		return "", err
	}
	text, ok := token.(string)
	if !ok {
		return "", fmt.Errorf("%w: header: want a string, found %v", ErrInvalid, token)
	}
	return text, nil
}

// integers reads an array of integers from 0 to 2^63-1.
func (p parser) integers(what string) ([]int64, error) {
	if err := p.delim('[', what); err != nil {
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
			return nil, fmt.Errorf("%w: header: %s: want an integer, found %v", ErrInvalid, what, token)
		}
		number, err := strconv.ParseUint(literal.String(), 10, 63)
		if err != nil {
			return nil, fmt.Errorf("%w: header: %s: want an integer from 0 to 2^63-1, found %s", ErrInvalid, what, literal)
		}
		numbers = append(numbers, int64(number))
	}
	return numbers, p.delim(']', what)
}

func (p parser) entry(name string) (entry, error) {
	e := entry{name: name}
	what := fmt.Sprintf("tensor %q", name)
	fields := 0
	err := p.object(what, func(key string) error {
		fields++
		switch key {
		case "dtype":
			text, err := p.text()
			e.dtype = DType(text)
			return err
		case "shape":
			shape, err := p.integers(what + " shape")
			e.shape = shape
			return err
		case "data_offsets":
			offsets, err := p.integers(what + " data_offsets")
			if err != nil {
				return err
			}
			if len(offsets) != 2 {
				return fmt.Errorf("%w: header: %s: data_offsets has %d numbers, want 2", ErrInvalid, what, len(offsets))
			}
			e.begin, e.end = offsets[0], offsets[1]
			return nil
		}
		return fmt.Errorf("%w: header: %s: unknown key %q", ErrInvalid, what, key)
	})
	if err == nil && fields != 3 {
		err = fmt.Errorf("%w: header: %s: wants dtype, shape and data_offsets", ErrInvalid, what)
	}
	return e, err
}
