//go:build !cgo || !linux

package cuda

import (
	"fmt"
	"unsafe"
)

// machine has no implementation in this build, and is never created.
type machine struct {
	name    string
	traffic Traffic
}

func openMachine(libraries, int) (*machine, error) {
	return nil, fmt.Errorf("%w: this build has no cgo or is not for Linux", ErrNoCUDA)
}

func (*machine) within(func() error) error                     { return ErrNoCUDA }
func (*machine) alloc(int) (DevicePointer, error)              { return 0, ErrNoCUDA }
func (*machine) free(DevicePointer) error                      { return ErrNoCUDA }
func (*machine) write(DevicePointer, []byte) error             { return ErrNoCUDA }
func (*machine) read([]byte, DevicePointer) error              { return ErrNoCUDA }
func (*machine) launch(string, int, int, unsafe.Pointer) error { return ErrNoCUDA }
func (*machine) wait() error                                   { return ErrNoCUDA }
func (*machine) close() error                                  { return ErrNoCUDA }
