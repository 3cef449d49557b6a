//go:build unix && !linux

package supervisor

import "syscall"

// ownGroup shields a child from signals that a terminal sends to all of its processes.
func ownGroup() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
