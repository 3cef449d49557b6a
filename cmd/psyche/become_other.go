//go:build !unix

package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
)

// become runs a different program to its end.
func become(program string, args []string) error {
	command := exec.Command(program, args...)
	command.Stdin, command.Stdout, command.Stderr = os.Stdin, os.Stdout, os.Stderr
	err := command.Run()
	if ended, ok := errors.AsType[*exec.ExitError](err); ok {
		panic(exit(ended.ExitCode()))
	}
	if err != nil {
		err = fmt.Errorf("%s: %w", program, err)
	}
	return err
}
