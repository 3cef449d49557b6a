package client

import (
	"fmt"
	"runtime/debug"
)

// recovered makes an error of a panic in what is done beside the training: it costs that work, not the client.
func recovered(do func() error) (err error) {
	defer func() {
		if failed := recover(); failed != nil {
			err = fmt.Errorf("panic: %v\n%s", failed, debug.Stack())
		}
	}()
	return do()
}
