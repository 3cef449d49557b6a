package supervisor

import "syscall"

// ownGroup shields a child from signals that a terminal sends to all of its processes. The child leaves
// its run if its parent process dies.
func ownGroup() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
}
