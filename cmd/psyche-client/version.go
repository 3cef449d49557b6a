package main

import (
	"fmt"

	"github.com/psyche-go/psyche/cmd/internal/buildinfo"
)

type versionCommand struct{}

// Run prints the version, the commit and the Go version of the build.
func (*versionCommand) Run(t terminal) error {
	_, err := fmt.Fprintln(t.Out, buildinfo.Line("psyche-client"))
	return err
}
