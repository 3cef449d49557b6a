package testnet

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/psyche-go/psyche/record/config"
)

// Extras are what the clients of a local network do besides training. The zero value is
// nothing.
type Extras struct {
	LogLevel              string // least level that every process logs; empty: info
	WriteDistroData       string // folder for the results that clients see, one below it for each
	FirstClientCheckpoint string // repository of the Hub for the first client's checkpoints
	HFToken               string // for the Hub, of all clients
	OptimStats            uint32 // steps between figures of single tensors; 0: none
	EventsDir             string // folder for the clients' event logs, one below it for each; empty: that of the run
	EvalTasks             string // tasks that clients measure the model in
	PromptTask            bool   // clients write text with the model

	WandbProject, WandbGroup, WandbEntity string // of Weights & Biases

	Panes bool // a session of tmux shows the processes' logs
}

// clientFlags are what a client's command line has for them.
func (e Extras) clientFlags(i int) []string {
	var flags []string
	add := func(flag, value string) {
		if value != "" {
			flags = append(flags, flag, value)
		}
	}
	add("--log-level", e.LogLevel)
	if e.WriteDistroData != "" {
		add("--write-gradients-dir", filepath.Join(e.WriteDistroData, clientName(i)))
	}
	if i == 0 {
		add("--hub-repo", e.FirstClientCheckpoint)
	}
	if e.HFToken != "" { // whoever starts the network set up the run
		flags = append(flags, "--allow-private-repos")
	}
	if e.OptimStats > 0 {
		add("--optim-stats-steps", strconv.FormatUint(uint64(e.OptimStats), 10))
	}
	add("--eval-tasks", e.EvalTasks)
	if e.PromptTask {
		flags = append(flags, "--prompt-task")
	}
	add("--wandb-project", e.WandbProject)
	add("--wandb-group", e.WandbGroup)
	add("--wandb-entity", e.WandbEntity)
	return flags
}

// clientEnv is what a client's environment has for them: a token does not belong on a
// command line, which others can see.
func (e Extras) clientEnv() []string {
	if e.HFToken == "" {
		return nil
	}
	return []string{"HF_TOKEN=" + e.HFToken}
}

// serverFlags are what the server's command line has for them.
func (e Extras) serverFlags() []string {
	if e.LogLevel == "" {
		return nil
	}
	return []string{"--log-level", e.LogLevel}
}

func clientName(i int) string { return fmt.Sprintf("client-%d", i+1) }

// eventsDir is where client i writes its event log.
func (n *network) eventsDir(i int) string {
	if n.options.EventsDir != "" {
		return filepath.Join(n.options.EventsDir, clientName(i))
	}
	return n.clientDir(i)
}

// firstModel returns the folder of the model that the run begins with; empty if it is the
// dummy, which is nothing to measure.
func (n *network) firstModel(ctx context.Context) (string, error) {
	at := n.run.Model.Checkpoint
	switch {
	case at.Local != nil:
		return at.Local.Path, nil
	case at.Hub != nil:
		flags := []string{"download", at.Hub.RepoID}
		if at.Hub.Revision != "" {
			flags = append(flags, "--revision", at.Hub.Revision)
		}
		out, err := output(ctx, n.options.clientEnv(), n.options.ClientBinary, flags...)
		return strings.TrimSpace(string(out)), err
	}
	return "", nil
}

// heldOutBeside returns the folder of held-out tokens beside the run's data, or nothing
// when there is none, or the data is in no folder.
func heldOutBeside(configPath string, run config.Run) string {
	locations := run.Model.DataLocations
	if _, from, err := servedData(configPath, run); err == nil {
		locations = append(locations[:len(locations):len(locations)], from.Locations...)
	}
	for _, location := range locations {
		if location.Local == nil {
			continue
		}
		folder := filepath.Join(location.Local.Path, heldOutFolder)
		if info, err := os.Stat(folder); err == nil && info.IsDir() {
			return folder
		}
	}
	return ""
}

// usualPort is where servers of local networks listen, unless somebody does already.
const usualPort = 20000

// port returns the port that was asked for, else the usual one, else one that is free.
func port(asked int) (int, error) {
	if asked != 0 || isFree(usualPort) {
		return cmp.Or(asked, usualPort), nil
	}
	return freePort()
}
