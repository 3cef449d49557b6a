package published

import (
	"path/filepath"
	"strings"
)

// commands are what the programs of the original are here, by the names that links give to
// psyche and psyche-client.
var commands = map[string][]string{
	"psyche-centralized-server":        {"server"},
	"psyche-centralized-local-testnet": {"testnet"},
	"psyche-centralized-client":        nil,
	"psyche-solana-client":             {"solana"},
}

// Arguments returns the command line of a program that was started as os.Args says. Under the
// name of a program of the original, a first argument is put before the others.
func Arguments(args []string) []string {
	if len(args) == 0 {
		return nil
	}
	name := strings.TrimSuffix(filepath.Base(args[0]), ".exe")
	return append(append([]string(nil), commands[name]...), args[1:]...)
}
