//go:build !linux

package testnet

import "syscall"

// ownGroup puts a child into a process group of its own, because a terminal's Ctrl-C
// reaches the whole foreground group and the children must hear of it from us, in order.
func ownGroup() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true}
}
