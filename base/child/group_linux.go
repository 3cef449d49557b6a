package child

import "syscall"

// ownGroup puts a child into its own process group. Otherwise Ctrl-C in a terminal would reach all
// children at once, because it goes to the whole foreground group, but this process has to stop
// them in order. A child also ends when this process is killed.
func ownGroup() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
