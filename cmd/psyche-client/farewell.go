package main

import (
	"context"
	"os"
	"time"
)

// closeTimeout is how long the rest of a command may take to close after an interrupt when the disk was found not to
// answer: what is closed may wait for the same disk.
const closeTimeout = 5 * time.Second

// endWithoutTheDisk ends the program when it is interrupted, or was, although something may wait for the disk. Last does
// what is to be done before.
func endWithoutTheDisk(ctx context.Context, last func()) {
	context.AfterFunc(ctx, func() {
		time.Sleep(closeTimeout)
		last()
		os.Exit(exitInterrupted)
	})
}
