package main

import (
	"crypto/rand"
	"fmt"

	"github.com/psyche-go/psyche/base/identity"
)

type keysNew struct {
	Output string `required:"" placeholder:"FILE" help:"Output key file. An existing file is never overwritten."`
	Format string `enum:"json,raw" default:"json" help:"Format: json (as solana-keygen writes it) or raw (32 bytes) (${default})."`
}

// Run creates a key, saves it and prints its id.
func (c keysNew) Run(to console) error {
	key, err := identity.Generate(rand.Reader)
	if err != nil {
		return err
	}
	save := identity.SaveKeyFile
	if c.Format == "raw" {
		save = identity.SaveRawKeyFile
	}
	if err := save(c.Output, key); err != nil {
		return err
	}
	_, err = fmt.Fprintln(to.out, key.ID())
	return err
}
