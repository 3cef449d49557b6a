package wire

import (
	"encoding/binary"
	"fmt"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/core/bloom"
)

var le = binary.LittleEndian

// reader decodes the fields of a body until the first error. After an error, every method returns
// zero.
type reader struct {
	rest []byte
	err  error
}

func (r *reader) fail(field string) {
	if r.err == nil {
		r.err = fmt.Errorf("%w: %s, with %d bytes left", errMalformed, field, len(r.rest))
	}
}

// take returns the next n bytes, or nil after an error.
func (r *reader) take(n int, field string) []byte {
	if r.err != nil {
		return nil
	}
	if n > len(r.rest) {
		r.fail(field)
		return nil
	}
	taken := r.rest[:n]
	r.rest = r.rest[n:]
	return taken
}

func (r *reader) uint8(field string) byte {
	if b := r.take(1, field); b != nil {
		return b[0]
	}
	return 0
}

func (r *reader) uint16(field string) uint16 {
	if b := r.take(2, field); b != nil {
		return le.Uint16(b)
	}
	return 0
}

func (r *reader) uint32(field string) uint32 {
	if b := r.take(4, field); b != nil {
		return le.Uint32(b)
	}
	return 0
}

func (r *reader) uint64(field string) uint64 {
	if b := r.take(8, field); b != nil {
		return le.Uint64(b)
	}
	return 0
}

func (r *reader) bool(field string) bool {
	b := r.uint8(field)
	if b > 1 {
		r.fail(field)
	}
	return b == 1
}

func (r *reader) hash(field string) (hash [32]byte) {
	copy(hash[:], r.take(len(hash), field))
	return hash
}

func (r *reader) signature(field string) (signature [identity.SignatureSize]byte) {
	copy(signature[:], r.take(len(signature), field))
	return signature
}

func (r *reader) filter(field string) (filter bloom.Filter) {
	for i := range filter {
		filter[i] = r.uint64(field)
	}
	return filter
}

// run decodes the hash of the run and compares it with want.
func (r *reader) run(want [runSize]byte) {
	got := r.hash("run")
	if r.err == nil && got != want {
		r.err = fmt.Errorf("%w: got %x, want %x", ErrRun, got, want)
	}
}

// end returns the first error. Bytes after the last field are an error.
func (r *reader) end() error {
	if len(r.rest) > 0 {
		r.fail("bytes after the end")
	}
	return r.err
}

func appendFilter(b []byte, filter *bloom.Filter) []byte {
	for _, word := range filter {
		b = le.AppendUint64(b, word)
	}
	return b
}
