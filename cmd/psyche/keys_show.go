package main

import (
	"fmt"

	"github.com/psyche-go/psyche/identity"
)

type keysShow struct {
	File string `arg:"" name:"file" help:"Key file, in either format."`
}

// Run prints the id of a key.
func (c keysShow) Run(to console) error {
	key, err := identity.LoadKeyFile(c.File)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(to.out, key.ID())
	return err
}
