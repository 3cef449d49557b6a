package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/psyche-go/psyche/cmd/internal/buildinfo"
)

type doctor struct {
	Client string `help:"The psyche-client program. Default: psyche-client in the folder of this program, or else in PATH." placeholder:"FILE" type:"path"`
}

// Help returns the text below the command's summary in --help.
func (c *doctor) Help() string {
	return `This program has no dependencies. Training has dependencies, which psyche-client doctor checks. This
command also runs psyche-client doctor if it finds that program.`
}

// errNoClient explains what to do if this machine can only host.
var errNoClient = errors.New("psyche-client not found, so this machine can host runs but not train: build it with make build, or install the package psyche-client")

// Run reports the state of this installation, and runs psyche-client doctor.
func (c *doctor) Run(ctx context.Context, to console) error {
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program: %w", err)
	}
	if _, err := fmt.Fprintf(to.out, "%-22s %s\n%-22s %s\n%-22s %s\n", "program", buildinfo.Line("psyche"),
		"hosting", "ready: psyche server run --help; try it: psyche testnet start --help", "checks in browsers", verifierLine()); err != nil {
		return err
	}
	client := c.Client
	if client == "" {
		client = findClient(filepath.Dir(self))
	}
	if client == "" {
		return errNoClient
	}
	if _, err := fmt.Fprintf(to.out, "%-22s %s\n\n", "training", client); err != nil {
		return err
	}
	command := exec.CommandContext(ctx, client, "doctor")
	command.Stdout, command.Stderr = to.out, to.err
	if err := command.Run(); err != nil {
		return fmt.Errorf("%s doctor: %w", client, err)
	}
	return nil
}

// findClient returns the client program in a folder, or else in PATH; empty: there is none.
func findClient(folder string) string {
	beside := filepath.Join(folder, "psyche-client")
	if _, err := os.Stat(beside); err == nil {
		return beside
	}
	found, err := exec.LookPath("psyche-client")
	if err != nil {
		return ""
	}
	return found
}
