package identity

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/mr-tron/base58"

	"github.com/psyche-go/psyche/base/secret"
)

// walletVariable is the environment variable that may contain the key of a wallet. A wallet pays for
// transactions on a chain.
const walletVariable = "RAW_WALLET_PRIVATE_KEY"

// walletPaths are the environment variables that may contain the path of a wallet's key file.
var walletPaths = [...]string{"WALLET_PRIVATE_KEY_PATH", "WALLET_PATH"}

// WalletVariables returns all variables that WalletFromEnvironment reads, in their order.
func WalletVariables() []string {
	return append([]string{SecretKeyVariable, walletVariable}, walletPaths[:]...)
}

// WalletFromEnvironment reads the key in SecretKeyVariable, or else the key in walletVariable, or
// else the key file that another variable names. The second result is false if none of them is set.
// lookup is os.LookupEnv outside tests.
func WalletFromEnvironment(lookup func(string) (string, bool)) (Key, bool, error) {
	key, found, err := KeyFromEnvironment(lookup)
	if found || err != nil {
		return key, found, err
	}
	if text, _ := lookup(walletVariable); text != "" {
		key, err = parseKeypair(text)
		return key, true, ofVariable(walletVariable, err)
	}
	for _, name := range walletPaths {
		if path, _ := lookup(name); path != "" {
			key, err = LoadKeyFile(path)
			return key, true, ofVariable(name, err)
		}
	}
	return Key{}, false, nil
}

// ofVariable wraps err with the name of an environment variable.
func ofVariable(name string, err error) error {
	if err != nil {
		err = fmt.Errorf("environment variable %s: %w", name, err)
	}
	return err
}

// parseKeypair parses a keypair as wallets export it: its 64 bytes in base58, or as a JSON array of
// numbers.
func parseKeypair(text string) (Key, error) {
	// The text is a secret, so no error contains any of it.
	text = secret.Trim(text)
	wrong := fmt.Errorf("%w: want a keypair of %d bytes, in base58 or as a JSON array of numbers (found %d characters)", ErrInvalidKey, SeedSize+IDSize, len(text))
	if strings.HasPrefix(text, "[") && len(text) != SeedSize { // a file of this size would be a raw seed
		key, err := parseKeyFile([]byte(text))
		if err != nil {
			return Key{}, wrong
		}
		return key, nil
	}
	if len(text) > maxKeyFileSize {
		return Key{}, wrong
	}
	private, err := base58.Decode(text)
	if err != nil || len(private) != SeedSize+IDSize {
		return Key{}, wrong
	}
	key := FromSeed([SeedSize]byte(private[:SeedSize]))
	if id := key.ID(); !bytes.Equal(id[:], private[SeedSize:]) {
		return Key{}, wrong
	}
	return key, nil
}
