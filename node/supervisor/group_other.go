//go:build !unix

package supervisor

import "syscall"

// ownGroup returns nil: this system has no process groups.
func ownGroup() *syscall.SysProcAttr { return nil }
