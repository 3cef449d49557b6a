package client

import (
	"fmt"
	"runtime/debug"
)

// recovered turns a panic in background work into an error, so that only this work is lost and the
// client continues.
func recovered(do func() error) (err error) {
	defer func() {
		if failed := recover(); failed != nil {
			err = fmt.Errorf("panic: %v\n%s", failed, debug.Stack())
		}
	}()
	return do()
}

// largeModel is the size in bytes from which a model is hashed with the lowest priority.
const largeModel = 1 << 20
