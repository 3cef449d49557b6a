package main

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"slices"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/files/data"
	"github.com/psyche-go/psyche/record/config"
)

type serverValidateConfig struct {
	State      string `required:"" placeholder:"FILE" help:"The state.toml to check."`
	DataConfig string `placeholder:"FILE" help:"Also check this data.toml."`
	RunID      string `name:"run-id" placeholder:"ID" help:"Name of the run, if the file contains no name."`

	MainAuthority string `placeholder:"KEY" help:"Key, in base58, that configures, pauses and closes the run. Default: the host's own key."`
	Permissioned  bool   `help:"Admit only keys that the join authority authorized, and their delegates."`
}

// Help returns the text below the command's summary in --help.
func (c *serverValidateConfig) Help() string {
	return `Refuses the same configuration errors as psyche server run with these flags. It only warns if data for
clients is missing on this machine, or if unknown clients or a thief of the server's key could harm
the run.`
}

// Run validates the files and describes their content.
func (c serverValidateConfig) Run(ctx context.Context, to console) error {
	run, err := loadNamedRun(c.State, c.RunID)
	if err != nil {
		return err
	}
	if _, err := run.CoordinatorState(coordinator.ClientID{}); err != nil {
		return configError{fmt.Errorf("%s: %w", c.State, err)}
	}
	if c.DataConfig != "" {
		from, _, err := loadServedData(c.State, run.Model, c.DataConfig)
		if err != nil {
			return err
		}
		if err := checkServedFolders(ctx, from); err != nil {
			return configError{fmt.Errorf("%s: %w", c.DataConfig, err)}
		}
	}
	warnings := append(run.Warnings, missingFolders(run.Model)...)
	if c.MainAuthority == "" {
		warnings = append(warnings, hostMayReplace)
	} else if _, err := identity.ParseID(c.MainAuthority); err != nil {
		return usagef("--main-authority: %w", err)
	}
	if !c.Permissioned {
		warnings = append(warnings, openWarnings(run)...)
	}
	for _, warning := range warnings {
		if _, err := fmt.Fprintf(to.err, "%s: warning: %s\n", c.State, warning); err != nil {
			return err
		}
	}
	_, err = fmt.Fprintf(to.out, "%s is valid: run %s, %s, %d steps of %d to %d sequences of %d tokens\n",
		c.State, run.RunID, run.Model.Architecture, run.Config.TotalSteps,
		run.Config.GlobalBatchSizeStart, run.Config.GlobalBatchSizeEnd, run.Model.MaxSeqLen)
	if err == nil && c.DataConfig != "" {
		_, err = fmt.Fprintf(to.out, "%s is valid\n", c.DataConfig)
	}
	return err
}

// checkServedFolders opens the local data of a data.toml as the server does. The server needs one
// working location.
func checkServedFolders(ctx context.Context, from config.DataServer) error {
	remote := func(l config.DataLocation) bool { return l.Local == nil }
	if slices.ContainsFunc(from.Locations, remote) {
		return nil
	}
	provider, err := data.New(ctx, from.Locations, data.Options{SeqLen: int(from.SeqLen)})
	if err != nil {
		return err
	}
	return provider.Close()
}

// missingFolders returns warnings for a run's folders that are missing on this machine.
func missingFolders(model config.Model) []string {
	var warnings []string
	warn := func(subject, path, or string) {
		if _, err := os.Stat(path); err != nil {
			warnings = append(warnings, fmt.Sprintf("%s folder %s is not on this machine; every client needs its own copy%s", subject, path, or))
		}
	}
	for _, location := range model.DataLocations {
		if folder := location.Folder(); folder != "" {
			warn("data", folder, "")
		}
	}
	if model.Checkpoint.Local != nil {
		warn("model", model.Checkpoint.Local.Path, ", unless psyche server run sends them its --model-path")
	}
	return warnings
}

// loadNamedRun is like loadRun, for a run that must have a name.
func loadNamedRun(state, runID string) (config.Run, error) {
	run, err := loadRun(state, runID)
	if err == nil && run.RunID == "" {
		err = configError{fmt.Errorf("%s has no run_id: add it, or set --run-id", state)}
	}
	return run, err
}

// loadRun reads a state.toml. runID, if not empty, replaces its name.
func loadRun(state, runID string) (config.Run, error) {
	run, err := config.LoadState(state)
	if err != nil {
		return config.Run{}, configError{err}
	}
	run.RunID = cmp.Or(runID, run.RunID)
	if len(run.RunID) > coordinator.MaxRunIDLength {
		return config.Run{}, usagef("--run-id has %d bytes, the limit is %d", len(run.RunID), coordinator.MaxRunIDLength)
	}
	return run, nil
}
