package testnet

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/host/server"
	"github.com/psyche-go/psyche/record/config"
)

// reopen prepares to go on with the run of a folder, which has everything that it needs:
// the server its key and journal, every client its key, checkpoints and events.
func reopen(options Options) (*network, error) {
	n := &network{dir: options.Resume}
	var err error
	if n.run, n.standing, err = savedRun(n.serverDir()); err != nil {
		return nil, fmt.Errorf("--resume %s: %w", options.Resume, err)
	}
	options.NumClients = 0
	for {
		if _, err := os.Stat(filepath.Join(n.clientDir(options.NumClients), identityFile)); err != nil {
			break
		}
		n.standing.look(clientName(options.NumClients), n.checkpointDir(options.NumClients))
		options.NumClients++
	}
	if err := check(options, n.run); err != nil {
		return nil, err
	}
	if err := n.standing.check(options.AcceptLoss); err != nil {
		return nil, fmt.Errorf("--resume %s: %w", options.Resume, err)
	}
	if n.options, err = options.withDefaults(n.run); err != nil {
		return nil, err
	}
	if n.before, err = secondsBefore(n.dir); err != nil {
		return nil, err
	}
	if err := n.makeProcesses(); err != nil {
		return nil, err
	}
	n.progress = newTracker(n.ids, n.run)
	n.progress.since = time.Now()
	return n, nil
}

// savedRun reads from a server's folder what its run is, and where it stands.
func savedRun(dir string) (config.Run, *standing, error) {
	journals, err := filepath.Glob(filepath.Join(dir, "*.journal"))
	if err != nil || len(journals) != 1 {
		return config.Run{}, nil, FlagError{fmt.Errorf("%s has %d journals, want the one of a testnet's run: name a folder that psyche testnet start made", dir, len(journals))}
	}
	log, _, err := server.Replay(journals[0], nil)
	if err != nil {
		return config.Run{}, nil, err
	}
	state := &log.State
	if state.RunState == coordinator.Finished {
		return config.Run{}, nil, fmt.Errorf("run %s is finished: there is nothing left to do; its %s is in the folder", state.RunID, summaryFile)
	}
	model, err := config.DecodeModel(state.Model.Definition)
	if err != nil {
		return config.Run{}, nil, err
	}
	return config.Run{RunID: state.RunID, Config: state.Config, Model: model}, &standing{state: state}, nil
}

// secondsBefore returns how long the run took until now, which its summary tells.
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
