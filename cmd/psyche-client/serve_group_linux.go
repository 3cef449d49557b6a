package main

import "syscall"

// ownGroup shields a child from signals that a terminal sends to all of its processes, and makes
// the child leave its run if its keeper dies.
func ownGroup() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
}
