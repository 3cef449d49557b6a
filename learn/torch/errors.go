package torch

/*
#include "bind.h"
*/
import "C"

import (
	"errors"
	"fmt"
	"regexp"
	"runtime/debug"
	"strconv"
	"strings"
	"unsafe"

	"github.com/psyche-go/psyche/base/diskspace"
)

var (
	// errNotLoaded is returned by NewEngine before a successful Load.
	errNotLoaded = errors.New("torch: Load has not been called")
	// ErrNoLibrary is returned by Load if the shim or libtorch is missing.
	ErrNoLibrary = errors.New("libtorch is not available")
	// ErrStaleLibrary is returned by Load if the shim was built from other sources than this
	// program.
	ErrStaleLibrary = errors.New("the libtorch shim does not fit this program")
	// ErrClosed is returned by Do on an engine that was closed.
	ErrClosed = errors.New("torch: engine is closed")
	// ErrMemory means that libtorch could not allocate memory, of the host or of a device.
	ErrMemory = errors.New("torch: out of memory")
	// errNested is returned by Do when called from inside another Do of the same engine.
	errNested = errors.New("torch: Do called inside Do of the same engine")
)

// Error is a failure inside libtorch, or a misuse of a tensor.
type Error struct {
	Op      string // the method that failed
	Message string // message of libtorch
}

// Error returns the operation and the message of libtorch. For a failed allocation it omits the message, which describes a
// line of libtorch.
func (e *Error) Error() string {
	if !outOfMemory.MatchString(e.Message) {
		return "torch: " + e.Op + ": " + e.Message
	}
	text := "torch: " + e.Op + ": out of memory"
	if size := e.Wanted(); size != "" {
		text += ", " + size + " wanted"
	}
	return text
}

// Is reports whether target is ErrMemory and libtorch could not allocate memory.
func (e *Error) Is(target error) bool {
	return target == ErrMemory && outOfMemory.MatchString(e.Message)
}

// outOfMemory matches the messages of libtorch's allocators and of C++.
var outOfMemory = regexp.MustCompile(`can't allocate memory|not enough memory|bad_alloc|out of memory|CUDNN_STATUS_ALLOC_FAILED|CUBLAS_STATUS_ALLOC_FAILED`)

// wanted matches the size in a message of an allocator.
var wanted = regexp.MustCompile(`(?i)tried to allocate ([0-9.]+ (?:bytes|[KMGT]i?B))`)

// Wanted returns the size that libtorch could not allocate, such as "2.00 GiB", or "" if its message has none.
func (e *Error) Wanted() string {
	size := wanted.FindStringSubmatch(e.Message)
	if size == nil {
		return ""
	}
	if digits, ok := strings.CutSuffix(size[1], " bytes"); ok {
		if bytes, err := strconv.ParseUint(digits, 10, 64); err == nil {
			return diskspace.Format(bytes)
		}
	}
	return size[1]
}

// panicError is a panic in the function given to Do, other than a panic from libtorch.
type panicError struct {
	Value any
	Stack []byte
}

func (e *panicError) Error() string {
	return fmt.Sprintf("torch: panic in Do: %v\n%s", e.Value, e.Stack)
}

// Unwrap returns the panic value if it was an error.
func (e *panicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}

// recovered turns a panic value into the error that Do returns.
func recovered(value any) error {
	if err, ok := value.(*Error); ok {
		return err
	}
	return &panicError{Value: value, Stack: debug.Stack()}
}

// text copies a malloc'ed C string to Go and frees it.
func text(c *C.char) string {
	defer C.free(unsafe.Pointer(c))
	return C.GoString(c)
}

// check panics if libtorch returned a message.
func check(op string, message *C.char) {
	if message != nil {
		panic(&Error{Op: op, Message: text(message)})
	}
}
