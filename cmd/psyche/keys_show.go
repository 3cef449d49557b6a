package main

import (
	"fmt"
	"os"
	"strings"

	"github.com/psyche-go/psyche/base/identity"
)

type keysShow struct {
	File string `arg:"" optional:"" name:"file" help:"Key file, in either format. Default: RAW_IDENTITY_SECRET_KEY (hex), RAW_WALLET_PRIVATE_KEY (base58 or JSON), or the file in WALLET_PRIVATE_KEY_PATH or WALLET_PATH."`
}

// Run prints the id of a key.
func (c keysShow) Run(to console) error {
	key, found, err := identity.Key{}, true, error(nil)
	if c.File != "" {
		key, err = identity.LoadKeyFile(c.File)
	} else {
		key, found, err = identity.WalletFromEnvironment(os.LookupEnv)
	}
	if err != nil {
		return err
	}
	if !found {
		return usagef("no key: give a key file, or set %s", strings.Join(identity.WalletVariables(), ", "))
	}
	_, err = fmt.Fprintln(to.out, key.ID())
	return err
}
