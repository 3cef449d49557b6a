package paths

import (
	"errors"
	"path/filepath"
)

// State returns the user's folder for the state of the programs: psyche in XDG_STATE_HOME, or in
// ~/.local/state. lookup is os.LookupEnv outside tests.
func State(lookup func(string) (string, bool)) (string, error) {
	if dir, _ := lookup("XDG_STATE_HOME"); filepath.IsAbs(dir) { // the specification ignores relative paths
		return filepath.Join(dir, "psyche"), nil
	}
	home, _ := lookup("HOME")
	if !filepath.IsAbs(home) {
		return "", errors.New("this user has no state folder: set HOME or XDG_STATE_HOME")
	}
	return filepath.Join(home, ".local", "state", "psyche"), nil
}
