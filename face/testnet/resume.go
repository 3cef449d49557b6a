package testnet

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/psyche-go/psyche/base/filelock"
	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/chain/admin"
	"github.com/psyche-go/psyche/chain/kept"
	"github.com/psyche-go/psyche/chain/layout"
	"github.com/psyche-go/psyche/chain/localnet"
	"github.com/psyche-go/psyche/chain/transaction"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/host/server"
	"github.com/psyche-go/psyche/record/config"
)

// reopen prepares to resume the run in a folder. The folder contains the server's key and journal,
// or the chain's ledger, and every client's key, checkpoints and events.
func reopen(options Options) (*network, error) {
	n := &network{dir: options.Resume}
	if err := n.claim(); err != nil {
		return nil, FlagError{fmt.Errorf("--resume %s: %w", options.Resume, err)}
	}
	if err := n.restore(options); err != nil {
		n.release()
		return nil, err
	}
	return n, nil
}

// claim locks the run's folder for this process. It fails if another testnet is still running or
// ending there.
func (n *network) claim() error {
	folder, err := os.Open(n.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return errors.New("no such folder; name a folder of psyche testnet start")
	}
	if err != nil {
		return err
	}
	err = filelock.Try(folder)
	if errors.Is(err, filelock.ErrHeld) {
		err = errors.New("another testnet uses this folder; wait until it ends, or stop it with Ctrl-C")
	}
	if err != nil {
		return errors.Join(err, folder.Close())
	}
	n.claimed = folder
	return nil
}

// restore reads the folder, and creates the processes.
func (n *network) restore(options Options) (err error) {
	if options.Chain.Used, err = wasOnChain(n.serverDir(), options.Chain); err != nil {
		return fmt.Errorf("--resume %s: %w", options.Resume, err)
	}
	saved := savedOnServer
	if options.Chain.Used {
		saved = savedOnChain
	}
	if n.run, n.resumed, err = saved(n.serverDir()); err != nil {
		return fmt.Errorf("--resume %s: %w", options.Resume, err)
	}
	options.NumClients = 0
	for {
		if _, err := os.Stat(filepath.Join(n.clientDir(options.NumClients), identityFile)); err != nil {
			break
		}
		n.resumed.look(clientName(options.NumClients), n.checkpointDir(options.NumClients))
		options.NumClients++
	}
	if err := check(options, n.run); err != nil {
		return err
	}
	if err := n.resumed.check(options.AcceptLoss); err != nil {
		return fmt.Errorf("--resume %s: %w", options.Resume, err)
	}
	if n.options, err = options.withDefaults(n.run); err != nil {
		return err
	}
	if n.before, err = secondsBefore(n.dir); err != nil {
		return err
	}
	if err := n.makeProcesses(); err != nil {
		return err
	}
	n.progress = newTracker(n.ids, n.run)
	n.progress.since = time.Now()
	return nil
}

// wasOnChain reports whether a testnet's run is on a saved chain.
func wasOnChain(dir string, requested Chain) (bool, error) {
	here := func(name string) bool {
		_, err := os.Stat(filepath.Join(dir, name))
		return err == nil
	}
	switch {
	case here(ledgerFile) && requested.Validator != "":
		return false, flagError("--validator: the run's chain is from psyche chain start; omit --validator")
	case here(ledgerFile):
		return true, nil
	case here(validatorLedger):
		return false, FlagError{fmt.Errorf("testnet cannot restart the validator of the run's chain; run the commands in %s manually, one after the other", filepath.Join(filepath.Dir(dir), byHandFile))}
	case requested.Used:
		return false, flagError("--backend solana: the run is not on a chain: omit the flag")
	}
	return false, nil
}

// savedOnChain reads a testnet's run and its state from a chain's ledger.
func savedOnChain(dir string) (config.Run, *resumedRun, error) {
	path := filepath.Join(dir, ledgerFile)
	ledger, err := kept.Read(path)
	if err != nil {
		return config.Run{}, nil, err
	}
	authority, err := identity.LoadKeyFile(filepath.Join(dir, authorityFile))
	if err != nil {
		return config.Run{}, nil, err
	}
	program, err := admin.ProgramOf(transaction.PublicKey(authority.ID()))
	if err != nil {
		return config.Run{}, nil, err
	}
	view := ledger.At(localnet.Processed, 0)
	for _, account := range view.Owned(program) {
		if run, err := layout.ReadAccount(account.Data); err == nil && run.RunID != "" {
			state := run.State
			return resumedOf(&state, fmt.Sprintf("the chain continues after slot %d, from %s", view.Slot, path))
		}
	}
	return config.Run{}, nil, fmt.Errorf("the chain in %s has no run; start a new testnet without --resume", path)
}

// savedOnServer reads a run and its state from a server's folder.
func savedOnServer(dir string) (config.Run, *resumedRun, error) {
	journals, err := filepath.Glob(filepath.Join(dir, "*.journal"))
	if err != nil || len(journals) != 1 {
		return config.Run{}, nil, FlagError{fmt.Errorf("%s has %d journals, want 1; name a folder of psyche testnet start", dir, len(journals))}
	}
	log, _, err := server.Replay(journals[0], nil)
	if err != nil {
		return config.Run{}, nil, err
	}
	return resumedOf(&log.State, "")
}

// resumedOf returns the configuration and state of a run that is not finished.
func resumedOf(state *coordinator.State, chain string) (config.Run, *resumedRun, error) {
	if state.RunState == coordinator.Finished {
		return config.Run{}, nil, fmt.Errorf("run %s is finished and cannot be resumed; its %s is in the folder", state.RunID, summaryFile)
	}
	model, err := config.DecodeModel(state.Model.Definition)
	if err != nil {
		return config.Run{}, nil, err
	}
	return config.Run{RunID: state.RunID, Config: state.Config, Model: model}, &resumedRun{state: state, chain: chain}, nil
}

// secondsBefore returns how long the run took before it was interrupted, from its summary.
func secondsBefore(dir string) (time.Duration, error) {
	path := filepath.Join(dir, summaryFile)
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil // it was killed
	}
	var s Summary
	if err == nil {
		err = json.Unmarshal(text, &s)
	}
	if err != nil {
		return 0, fmt.Errorf("read %s: %w", path, err)
	}
	return time.Duration(s.Seconds * float64(time.Second)), nil
}
