package testnet

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/psyche-go/psyche/base/child"
	"github.com/psyche-go/psyche/record/config"
)

// Extras configure what the clients of a local network do in addition to training. The zero value
// adds nothing.
type Extras struct {
	LogLevel              string // minimum log level of every process; empty: info
	WriteDistroData       string // folder for the results that clients see, with a folder for each client
	FirstClientCheckpoint string // Hub repository for the first client's checkpoints
	HFToken               string // Hub token of all clients
	OptimStats            uint32 // steps between metrics of single tensors; 0: none
	EventsDir             string // folder for the clients' event logs, with a folder for each client; empty: the run's folder
	EvalTasks             string // tasks on which clients evaluate the model
	PromptTask            bool   // clients generate text with the model

	WandbProject, WandbGroup, WandbEntity string // for Weights & Biases

	Panes bool // a tmux session shows the processes' logs
}

// clientFlags returns the flags of client i.
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
	if e.HFToken != "" { // the user who starts the network has set up the run
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

// clientEnv returns the environment of a client. It contains the token, which must not be on a
// command line, because other users can see command lines.
func (e Extras) clientEnv() []string {
	if e.HFToken == "" {
		return nil
	}
	return []string{"HF_TOKEN=" + e.HFToken}
}

// serverFlags returns the flags of the server.
func (e Extras) serverFlags() []string {
	if e.LogLevel == "" {
		return nil
	}
	return []string{"--log-level", e.LogLevel}
}

func clientName(i int) string { return fmt.Sprintf("client-%d", i+1) }

// eventsDir returns the folder of client i's event log.
func (n *network) eventsDir(i int) string {
	if n.options.EventsDir != "" {
		return filepath.Join(n.options.EventsDir, clientName(i))
	}
	return n.clientDir(i)
}

// firstModel returns the folder of the run's starting model. It is empty for the dummy model, which
// cannot be evaluated.
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
		out, err := child.Output(ctx, n.options.clientEnv(), n.options.ClientBinary, flags...)
		return strings.TrimSpace(string(out)), err
	}
	return "", nil
}

// heldOutFlags returns the flags for the data on which clients measure the held-out loss that they claim.
func (o Options) heldOutFlags() []string {
	if o.HeldOut == "" {
		return nil
	}
	return []string{"--held-out", o.HeldOut}
}

// heldOutBeside returns the folder of held-out tokens next to the run's data. It returns "" if
// there is none, or if the data is not in a folder.
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

// usualPort is the default port of a local network's server.
const usualPort = 20000

// port returns the requested port, else usualPort if it is free, else a free port.
func port(requested int) (int, error) {
	if requested != 0 || child.IsFree(usualPort) {
		return cmp.Or(requested, usualPort), nil
	}
	return child.FreePort()
}
