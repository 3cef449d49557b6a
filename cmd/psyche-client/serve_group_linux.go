package main

import "syscall"

// ownGroup keeps signals that a terminal sends to all of its processes from a child, and asks the child to leave its
// run when its keeper dies.
func ownGroup() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
}
