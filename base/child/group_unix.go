//go:build unix && !linux

package child

import "syscall"

// ownGroup puts a child into its own process group. Otherwise Ctrl-C in a terminal would reach all
// children at once, because it goes to the whole foreground group, but this process has to stop
// them in order.
func ownGroup() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true}
}
