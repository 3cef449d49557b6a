package published

import (
	"path/filepath"
	"strings"
)

// commands maps each program name of the original Psyche to the command that replaces it. psyche or
// psyche-client gets this name through a link.
var commands = map[string][]string{
	"psyche-centralized-server":        {"server"},
	"psyche-centralized-local-testnet": {"testnet"},
	"psyche-centralized-client":        nil,
	"psyche-solana-client":             {"solana"},
}

// Arguments returns the command line for os.Args. If the program was started under the name of one of
// the original Psyche's programs, Arguments inserts the command that replaces it as the first argument.
func Arguments(args []string) []string {
	if len(args) == 0 {
		return nil
	}
	name := strings.TrimSuffix(filepath.Base(args[0]), ".exe")
	return append(append([]string(nil), commands[name]...), args[1:]...)
}
