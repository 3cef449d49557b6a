package main

import (
	"context"
	"os"
	"time"
)

// closeTimeout is the time for the rest of a command to close after an interrupt, if the disk does
// not respond. Other files may wait for the same disk.
const closeTimeout = 5 * time.Second

// endWithoutTheDisk ends the program after an interrupt, even if operations wait for the disk. It
// calls last before.
func endWithoutTheDisk(ctx context.Context, last func()) {
	context.AfterFunc(ctx, func() {
		time.Sleep(closeTimeout)
		last()
		os.Exit(exitInterrupted)
	})
}
