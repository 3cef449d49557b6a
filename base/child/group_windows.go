package child

import "syscall"

// ownGroup puts a child into its own process group, so that Ctrl-C in a terminal does not reach it.
func ownGroup() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{CreationFlags: syscall.CREATE_NEW_PROCESS_GROUP}
}
