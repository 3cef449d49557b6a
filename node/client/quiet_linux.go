package client

import (
	"runtime"
	"syscall"

	"github.com/psyche-go/psyche/files/checkpoint"
	"github.com/psyche-go/psyche/node/models"
)

// quietly runs background work, with the lowest priority if the model is large enough for that to
// matter. It returns a panic as an error. On Linux a priority belongs to a thread; the thread ends
// with the goroutine.
func quietly(s checkpoint.Snapshot, do func() error) (err error) {
	if models.Size(s) < largeModel {
		return recovered(do)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread()
		_ = syscall.Setpriority(syscall.PRIO_PROCESS, 0, 19) // on failure the priority stays
		err = recovered(do)
	}()
	<-done
	return err
}
