package main

import (
	"context"
	"os"
	"time"
)

// closeTimeout is the time that a command has to close its files after an interrupt. Closing can
// block if the disk does not respond.
const closeTimeout = 5 * time.Second

// endWithoutTheDisk ends the program closeTimeout after an interrupt, even if file operations still
// block. Before that, it calls
// last.
func endWithoutTheDisk(ctx context.Context, last func()) {
	context.AfterFunc(ctx, func() {
		time.Sleep(closeTimeout)
		last()
		os.Exit(exitInterrupted)
	})
}
