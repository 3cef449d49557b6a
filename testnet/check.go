package testnet

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/psyche-go/psyche/config"
	"github.com/psyche-go/psyche/coordinator"
	"github.com/psyche-go/psyche/data/tokens"
)

// FlagError is of an option, which names it as the flag that gives it.
type FlagError struct{ error }

func (e FlagError) Unwrap() error { return e.error }

func flagError(format string, args ...any) error { return FlagError{fmt.Errorf(format, args...)} }

// ConfigError is of the run's configuration.
type ConfigError struct{ error }

func (e ConfigError) Unwrap() error { return e.error }

// check looks at everything that a run needs, so that what is missing is said before any
// process starts.
func check(options Options, run config.Run) error {
	if options.NumClients < 1 || options.NumClients > coordinator.MaxClients {
		return flagError("--num-clients is %d: want 1 to %d", options.NumClients, coordinator.MaxClients)
	}
	if options.Timeout <= 0 {
		return flagError("--timeout is %s: want more than zero", options.Timeout)
	}
	if minimum := int(run.Config.InitMinClients); options.NumClients < minimum {
		return flagError("--num-clients is %d, but init_min_clients in %s is %d: the run would never start",
			options.NumClients, filepath.Join(options.ConfigPath, stateFile), minimum)
	}
	if err := options.Faults.check(options.NumClients); err != nil {
		return err
	}
	for _, binary := range []string{options.ServerBinary, options.ClientBinary} {
		if _, err := os.Stat(binary); err != nil {
			return fmt.Errorf("%s is not there: build it with: make build", binary)
		}
	}
	if options.HeldOut == "" && heldOutBeside(run) == "" {
		return flagError("%s: its first data location is not a folder (data_location.Local), beside which held-out tokens could be: name them with --held-out", options.ConfigPath)
	}
	for _, location := range run.Model.DataLocations {
		if location.Local == nil {
			continue
		}
		if err := checkFolder("data", location.Local.Path, "*.ds", "prepare it with: psyche data tokenize"); err != nil {
			return err
		}
	}
	model := run.Model.Checkpoint.Local
	if model == nil {
		return ConfigError{fmt.Errorf("%s: a local testnet starts from a model in a folder: want checkpoint.Local", options.ConfigPath)}
	}
	return checkFolder("model", model.Path, "config.json", "make one with: psyche-client init-model")
}

// heldOutBeside returns the folder of held-out tokens beside the run's data, or nothing
// when the data is no folder.
func heldOutBeside(run config.Run) string {
	if locations := run.Model.DataLocations; len(locations) > 0 && locations[0].Local != nil {
		return filepath.Join(locations[0].Local.Path, tokens.HeldOut)
	}
	return ""
}

// checkFolder wants at least one file of the pattern in the folder.
func checkFolder(what, folder, pattern, remedy string) error {
	if _, err := os.Stat(folder); errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("%s folder %s is not there: %s (make demo does both)", what, folder, remedy)
	} else if err != nil {
		return fmt.Errorf("%s folder: %w", what, err)
	}
	found, err := filepath.Glob(filepath.Join(folder, pattern))
	if err != nil {
		return fmt.Errorf("%s folder: %w", what, err)
	}
	if len(found) == 0 {
		return fmt.Errorf("%s folder %s holds no %s: %s", what, folder, pattern, remedy)
	}
	return nil
}
