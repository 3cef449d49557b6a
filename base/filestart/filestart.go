// Package filestart detects files in unexpected formats by their first bytes: encodings other than
// UTF-8, compressed files, and Git LFS pointers.
//
//	if err := filestart.Check(config); err != nil {
//		return fmt.Errorf("config.json: %w", err)
//	}
package filestart

import (
	"bytes"
	"errors"
	"fmt"
)

// Errors of Check and Text. Each names the fix.
var (
	ErrPointer = errors.New("a Git LFS pointer instead of the file; get the file itself, as with git lfs pull")
	ErrMark    = errors.New("file starts with a byte order mark; save it as UTF-8 without the mark")
	ErrUTF16   = errors.New("file is UTF-16; convert it to UTF-8, as with iconv -f UTF-16 -t UTF-8")
	ErrUTF32   = errors.New("file is UTF-32; convert it to UTF-8, as with iconv -f UTF-32 -t UTF-8")
	ErrPacked  = errors.New("unpack it")
)

// errUnmarked is ErrUTF16 for a text without a byte order mark, whose byte order cannot be
// determined for certain.
var errUnmarked = fmt.Errorf("file looks like UTF-16 without a byte order mark: %w", ErrUTF16)

// Size is the number of bytes at the start of a file that Check examines.
const Size = 24

const (
	markUTF8     = "\ufeff"
	markLittle16 = "\xff\xfe"
	markBig16    = "\xfe\xff"
	pointer      = "version https://git-lfs"
)

// packed lists the first bytes of compressed files.
var packed = []struct{ start, name string }{
	{"\x1f\x8b\x08", "gzip (.gz)"}, {"\x28\xb5\x2f\xfd", "zstd (.zst)"}, {"\x04\x22\x4d\x18", "LZ4 (.lz4)"},
	{"\xfd7zXZ\x00", "xz (.xz)"}, {"BZh91AY&SY", "bzip2 (.bz2)"}, {"PK\x03\x04", "zip (.zip, .xlsx)"}, {"7z\xbc\xaf\x27\x1c", "7-Zip (.7z)"},
}

// Check returns an error if the first bytes of a file show a known problem: an encoding other than
// UTF-8, a byte order mark, compression, or a Git LFS pointer. It returns nil for all other bytes.
func Check(start []byte) error {
	if bytes.HasPrefix(start, []byte(markUTF8)) {
		return ErrMark
	}
	if marked(start) {
		return ErrUTF16
	}
	return foreign(start)
}

// Pointer returns ErrPointer for the first bytes of a Git LFS pointer.
func Pointer(start []byte) error {
	if bytes.HasPrefix(start, []byte(pointer)) {
		return ErrPointer
	}
	return nil
}

// marked reports whether a text is UTF-16 with a byte order mark.
func marked(start []byte) bool {
	return (bytes.HasPrefix(start, []byte(markLittle16)) || bytes.HasPrefix(start, []byte(markBig16))) && !wide(start)
}

// wide reports whether a text is UTF-32.
func wide(start []byte) bool {
	return bytes.HasPrefix(start, []byte(markLittle16+"\x00\x00")) || bytes.HasPrefix(start, []byte("\x00\x00"+markBig16))
}

// foreign returns an error for an encoding or compression that Text cannot decode.
func foreign(start []byte) error {
	if err := Pointer(start); err != nil {
		return err
	}
	if wide(start) {
		return ErrUTF32
	}
	for _, p := range packed {
		if bytes.HasPrefix(start, []byte(p.start)) {
			return fmt.Errorf("file is compressed with %s: %w", p.name, ErrPacked)
		}
	}
	// In nearly all formats, text starts with ASCII characters. UTF-16 encodes each of them with a NUL
	// byte, which UTF-8 text does not contain.
	if len(start) >= 4 && (start[0] == 0) == (start[2] == 0) && (start[1] == 0) == (start[3] == 0) && (start[0] == 0) != (start[1] == 0) {
		return errUnmarked
	}
	return nil
}
