//go:build !cgo || !linux

package cuda

import "unsafe"

// program has no implementation in this build, and is never created.
type program struct{}

func (*machine) compileProgram([]string, string, []string, int) (*program, error) {
	return nil, ErrNoCUDA
}
func (*program) launcher() (function, context unsafe.Pointer) { return nil, nil }
func (*program) close() error                                 { return ErrNoCUDA }
