package main

import (
	"fmt"

	"github.com/psyche-go/psyche/cmd/internal/buildinfo"
)

type version struct{}

// Run prints the version, the commit and the Go version that the program was built from.
func (version) Run(to console) error {
	_, err := fmt.Fprintln(to.out, buildinfo.Line("psyche"))
	return err
}
