package testnet

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/files/data/tokens"
	"github.com/psyche-go/psyche/files/data/walk"
	"github.com/psyche-go/psyche/record/config"
)

// FlagError is an error in an option. Its text names the option's flag.
type FlagError struct{ error }

func (e FlagError) Unwrap() error { return e.error }

func flagError(format string, args ...any) error { return FlagError{fmt.Errorf(format, args...)} }

// ConfigError is an error in the run's configuration.
type ConfigError struct{ error }

func (e ConfigError) Unwrap() error { return e.error }

// check verifies that everything a run needs exists, before any process starts.
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
	if err := options.Chain.check(options); err != nil {
		return err
	}
	if err := options.Faults.check(options.NumClients); err != nil {
		return err
	}
	if err := checkCheats(options, run); err != nil {
		return err
	}
	for _, binary := range []string{options.ServerBinary, options.ClientBinary} {
		if _, err := os.Stat(binary); err != nil {
			return fmt.Errorf("%s is missing; build it with: make build", binary)
		}
	}
	if err := checkData(options.ConfigPath, run, options.Chain); err != nil {
		return err
	}
	switch from := run.Model.Checkpoint; {
	case from.Local != nil:
		return checkModel(from.Local.Path)
	case from.Hub != nil, from.Dummy != nil:
		return nil
	}
	return ConfigError{fmt.Errorf("%s: a local testnet starts from a model in a folder or of the Hub: want checkpoint.Local, Hub or Dummy", options.ConfigPath)}
}

// heldOutFolder is the folder of held-out tokens next to the training data.
const heldOutFolder = tokens.HeldOut

// checkData returns an error unless the run's data folders contain token files.
func checkData(configPath string, run config.Run, chain Chain) error {
	path, from, err := servedData(configPath, run)
	switch {
	case err != nil:
		return err
	case path != "" && from.SeqLen != run.Model.MaxSeqLen:
		return ConfigError{fmt.Errorf("%s: seq_len is %d, but max_seq_len of the run is %d; make them the same", path, from.SeqLen, run.Model.MaxSeqLen)}
	case path != "":
		if err := checkServed(path, run, chain); err != nil {
			return err
		}
	}
	for _, location := range append(run.Model.DataLocations[:len(run.Model.DataLocations):len(run.Model.DataLocations)], from.Locations...) {
		if location.Local == nil {
			continue
		}
		if err := checkTokens(location.Local.Path); err != nil {
			return err
		}
	}
	return nil
}

const prepareData = "prepare it with: psyche data tokenize"

// checkTokens returns an error unless path is a token file, or a folder with at least one.
func checkTokens(path string) error {
	if info, err := os.Stat(path); err == nil && !info.IsDir() {
		return nil
	}
	files, err := walk.Files(path, walk.Options{})
	found := slices.ContainsFunc(files.Files, func(file walk.File) bool { return tokens.IsTokenFile(file.Inside) })
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("data folder %s is missing; %s (make demo does both)", path, prepareData)
	case err != nil:
		return fmt.Errorf("data folder: %w", err)
	case !found:
		return fmt.Errorf("data folder %s holds no %s file: %s", path, strings.Join(tokens.Extensions, ", "), prepareData)
	}
	return nil
}

const makeModel = "make one with: psyche-client init-model"

// checkModel returns an error unless a model's folder contains a config.json.
func checkModel(folder string) error {
	if _, err := os.Stat(folder); errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("model folder %s is missing; %s (make demo does both)", folder, makeModel)
	}
	if _, err := os.Stat(filepath.Join(folder, "config.json")); err != nil {
		return fmt.Errorf("model folder %s holds no config.json: %s", folder, makeModel)
	}
	return nil
}
