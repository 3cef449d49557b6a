package evidence

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/record/wire"
)

// ErrInvalid means that bytes are not an evidence file, or that the evidence file proves nothing.
var ErrInvalid = errors.New("invalid evidence file")

const (
	magic      = "PSYE"
	version    = 1
	headerSize = len(magic) + 1 + 32 + 3*4
	// MaxSize is the maximum size of an evidence file. Results of the largest models are about a tenth of
	// this size.
	MaxSize = 1 << 30
)

// Suffix is the file name extension of evidence files.
const Suffix = ".psye"

// FileName returns the name of the file in which an accuser keeps the evidence file of a result.
func FileName(step uint32, accused identity.ID) string {
	return fmt.Sprintf("exhibit-%d-%s%s", step, accused.Short(), Suffix)
}

// File is the evidence of an accuser about one result.
type File struct {
	Announcement []byte   // signed by the accused
	Result       []byte   // announced by Announcement
	Previous     [32]byte // root in the header of the preceding result of the accused; zero: none
	Opening      []byte   // encoded by package audit
}

// Encode returns the bytes of an evidence file:
//
//	"PSYE" ‖ version u8 = 1 ‖ previous [32] ‖ three lengths u32 ‖ announcement ‖ result ‖ opening
//
// Integers are little-endian.
func (e File) Encode() []byte {
	b := append([]byte(magic), version)
	b = append(b, e.Previous[:]...)
	for _, part := range e.parts() {
		b = binary.LittleEndian.AppendUint32(b, uint32(len(*part)))
	}
	for _, part := range e.parts() {
		b = append(b, *part...)
	}
	return b
}

func (e *File) parts() []*[]byte { return []*[]byte{&e.Announcement, &e.Result, &e.Opening} }

// Decode decodes the output of Encode, and nothing else. The result aliases b. The error wraps
// ErrInvalid.
func Decode(b []byte) (e File, err error) {
	switch {
	case len(b) > MaxSize:
		return e, fmt.Errorf("%w: %d bytes, at most %d", ErrInvalid, len(b), MaxSize)
	case len(b) < headerSize:
		return e, fmt.Errorf("%w: %d bytes, the header alone has %d", ErrInvalid, len(b), headerSize)
	case string(b[:len(magic)]) != magic:
		return e, fmt.Errorf("%w: not an evidence file: magic %q", ErrInvalid, b[:len(magic)])
	case b[len(magic)] != version:
		return e, fmt.Errorf("%w: version %d, this program reads %d", ErrInvalid, b[len(magic)], version)
	}
	e.Previous = [32]byte(b[len(magic)+1:])
	lengths, rest := b[headerSize-3*4:headerSize], b[headerSize:]
	for i, part := range e.parts() {
		length := uint64(binary.LittleEndian.Uint32(lengths[4*i:]))
		if length > uint64(len(rest)) {
			return File{}, fmt.Errorf("%w: a part of %d bytes, %d are left", ErrInvalid, length, len(rest))
		}
		*part, rest = rest[:length:length], rest[length:]
	}
	switch {
	case len(rest) > 0:
		return File{}, fmt.Errorf("%w: %d bytes after the last part", ErrInvalid, len(rest))
	case len(e.Announcement) > wire.MaxAnnouncementSize:
		return File{}, fmt.Errorf("%w: an announcement of %d bytes, at most %d", ErrInvalid, len(e.Announcement), wire.MaxAnnouncementSize)
	}
	return e, nil
}
