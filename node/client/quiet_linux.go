package client

import (
	"runtime"
	"syscall"

	"github.com/psyche-go/psyche/files/checkpoint"
)

// quietly does what can wait: with the lowest priority where a model is large enough for that to matter. A
// panic is an error.
// On Linux a priority is a thread's; the thread ends with the goroutine.
func quietly(s checkpoint.Snapshot, do func() error) (err error) {
	if sizeOf(s) < largeModel {
		return recovered(do)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread()
		_ = syscall.Setpriority(syscall.PRIO_PROCESS, 0, 19) // as it is elsewhere
		err = recovered(do)
	}()
	<-done
	return err
}
