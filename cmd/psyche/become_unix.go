//go:build unix

package main

import (
	"fmt"
	"os"
	"syscall"
)

// become replaces this process with a different program.
func become(program string, args []string) error {
	return fmt.Errorf("%s: %w", program, syscall.Exec(program, append([]string{program}, args...), os.Environ()))
}
