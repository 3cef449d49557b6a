package main

import (
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"

	"github.com/psyche-go/psyche/face/testnet"
)

// extraFlags configure what the processes of a testnet do in addition to training.
type extraFlags struct {
	Log                   string `placeholder:"LEVEL" help:"Minimum log level of the processes: debug, info, warn or error. In a list such as warn,psyche=debug, the level of psyche applies. Default: info." group:"Display and files:"`
	WriteLog              bool   `help:"No effect: logs are always written to the run's folder." group:"Display and files:"`
	Panes                 bool   `help:"Show the log of every process in a pane of a tmux session." group:"Display and files:"`
	EventsDir             string `placeholder:"DIR" help:"Folder for the clients' event logs, with a subfolder per client. Default: the run's folder." type:"path" group:"Display and files:"`
	WriteDistroData       string `placeholder:"DIR" help:"Folder for every result that a client sees, with a subfolder per client." type:"path" group:"Display and files:"`
	OptimStats            uint32 `placeholder:"N" help:"Write each tensor's share of the gradient and momentum to the clients' event logs every N steps; 0 means never." env:"OPTIM_STATS" group:"Display and files:"`
	FirstClientCheckpoint string `placeholder:"OWNER/NAME" help:"Hugging Face Hub repository for the checkpoints of the first client." group:"Uploads and the Hub:"`
	HFToken               string `name:"hf-token" placeholder:"TOKEN" help:"The clients' token for the Hugging Face Hub. Other users can see command lines: prefer HF_TOKEN." group:"Uploads and the Hub:"`
	EvalTasks             string `placeholder:"TASK,…" help:"Tasks for evaluating the model during training, passed to the clients." env:"EVAL_TASKS" group:"Evaluation:"`
	PromptTask            bool   `help:"Let clients generate text with the model during training." env:"PROMPT_TASK" group:"Evaluation:"`
	WandbProject          string `placeholder:"NAME" help:"Weights & Biases project, passed to the clients." env:"WANDB_PROJECT" group:"Trackers:"`
	WandbGroup            string `placeholder:"NAME" help:"Weights & Biases group, passed to the clients." env:"WANDB_GROUP" group:"Trackers:"`
	WandbEntity           string `placeholder:"NAME" help:"Weights & Biases entity, passed to the clients." env:"WANDB_ENTITY" group:"Trackers:"`
}

// extras parses the flags.
func (f extraFlags) extras(to console) (testnet.Extras, error) {
	level, err := logLevel(f.Log)
	if err != nil {
		return testnet.Extras{}, err
	}
	if f.WriteLog {
		_, err = fmt.Fprintln(to.err, "psyche: --write-log changes nothing: logs are always written to the run's folder")
	}
	e := testnet.Extras{
		LogLevel: level, Panes: f.Panes,
		OptimStats: f.OptimStats, FirstClientCheckpoint: f.FirstClientCheckpoint, HFToken: f.HFToken,
		EvalTasks: f.EvalTasks, PromptTask: f.PromptTask,
		WandbProject: f.WandbProject, WandbGroup: f.WandbGroup, WandbEntity: f.WandbEntity,
	}
	for _, folder := range []struct {
		given string
		into  *string
	}{{f.EventsDir, &e.EventsDir}, {f.WriteDistroData, &e.WriteDistroData}} {
		if folder.given != "" && err == nil {
			*folder.into, err = filepath.Abs(folder.given)
		}
	}
	return e, err
}

// logLevel parses a level, or a list of levels by target. In a list, the level of the target psyche counts.
func logLevel(text string) (string, error) {
	if text == "" {
		return "", nil
	}
	chosen := ""
	for part := range strings.SplitSeq(text, ",") {
		target, level, named := strings.Cut(part, "=")
		if !named {
			target, level = "", target
		}
		if level = strings.TrimSpace(level); level == "trace" {
			level = "debug" // the most verbose level
		}
		var known slog.Level
		if err := known.UnmarshalText([]byte(level)); err != nil {
			return "", usagef("--log %s: want debug, info, warn or error, or a list such as warn,psyche=debug", text)
		}
		if target = strings.TrimSpace(target); target == "psyche" || !named && chosen == "" {
			chosen = level
		}
	}
	return chosen, nil
}
