//go:build unix && !linux

package main

import "syscall"

// ownGroup keeps signals that a terminal sends to all of its processes from a child.
func ownGroup() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
