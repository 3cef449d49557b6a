package main

import (
	"fmt"

	"github.com/psyche-go/psyche/cmd/internal/buildinfo"
)

type version struct{}

// Run prints the version, the commit and the Go version of the build.
func (version) Run(to console) error {
	_, err := fmt.Fprintln(to.out, buildinfo.Line("psyche"))
	return err
}
