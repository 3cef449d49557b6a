package objstore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

// Errors that all stores wrap.
var (
	ErrNotFound     = errors.New("no such object")
	ErrChanged      = errors.New("the object was replaced or removed")
	ErrPrecondition = errors.New("the object is not the expected version")
	ErrName         = errors.New("invalid object name")
)

// MaxName is the maximum length of an object's name in bytes.
const MaxName = 1024

// Object is one version of an object.
type Object struct {
	Name       string // path with slashes
	Size       int64  // bytes
	Generation string // ID of the version; may only be compared
}

// Condition restricts what Put may replace. The zero value permits everything.
type Condition struct{ generation string }

const absent = "absent"

// IfAbsent permits Put to write only a name without an object.
func IfAbsent() Condition { return Condition{generation: absent} }

// IfStill permits Put to replace only this version.
func IfStill(o Object) Condition { return Condition{generation: "=" + o.Generation} }

// Generation returns the version that must be there; ok is false if there is no such condition. If
// the version is empty, the object must not exist.
func (c Condition) Generation() (generation string, ok bool) {
	switch c.generation {
	case "":
		return "", false
	case absent:
		return "", true
	default:
		return c.generation[1:], true
	}
}

// Store is a set of named objects. Its methods may be called concurrently.
type Store interface {
	// List returns the objects whose names begin with prefix, in the byte order of their names, or
	// ErrTooMany if there are more than limit.
	List(ctx context.Context, prefix string, limit int) ([]Object, error)

	// Stat returns the current version of an object, or ErrNotFound.
	Stat(ctx context.Context, name string) (Object, error)

	// ReadAt fills buffer with the bytes of a version from offset on.
	ReadAt(ctx context.Context, o Object, buffer []byte, offset int64) error

	// Open returns all bytes of a version. Its Read fails once ctx is done.
	Open(ctx context.Context, o Object) (io.ReadCloser, error)

	// Put writes an object of size bytes atomically. If the condition does not hold, it returns
	// ErrPrecondition and changes nothing.
	Put(ctx context.Context, name string, content io.Reader, size int64, when Condition) (Object, error)

	// Close closes the store's connections.
	Close() error
}

// ErrTooMany means that there are more objects than the caller allows.
var ErrTooMany = errors.New("too many objects")

// CheckName refuses names that some stores do not support, or that could lead out of a folder:
// empty elements, "." and "..", backslashes and control characters.
func CheckName(name string) error {
	if name == "" || len(name) > MaxName || !utf8.ValidString(name) {
		return fmt.Errorf("%w: want 1 to %d bytes of UTF-8", ErrName, MaxName)
	}
	for _, r := range name {
		if r < ' ' || r == 0x7f || r == '\\' {
			return fmt.Errorf("%w: %q has a backslash or control character", ErrName, name)
		}
	}
	for element := range strings.SplitSeq(name, "/") {
		if element == "" || element == "." || element == ".." {
			return fmt.Errorf("%w: %q contains the element %q", ErrName, name, element)
		}
	}
	return nil
}

// CheckRange refuses a read outside an object.
func CheckRange(o Object, buffer []byte, offset int64) error {
	if offset < 0 || int64(len(buffer)) > o.Size || offset > o.Size-int64(len(buffer)) {
		return fmt.Errorf("read %d bytes of object %s at offset %d: the object has only %d bytes", len(buffer), o.Name, offset, o.Size)
	}
	return nil
}
