package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/pelletier/go-toml/v2"

	"github.com/psyche-go/psyche/base/signals"
)

// options are the flags.
type options struct {
	of              string
	clients, rounds int
	batch, blocks   int
	bin, state, out string
	within          float64 // percent
}

// row is a run with some features enabled.
type row struct {
	name  string
	how   manner   // of the trackers; empty: no trackers
	flags []string // of psyche testnet start; {} is the run's folder
}

// tables are the comparisons.
var tables = map[string][]row{
	"everything": {
		{name: "without"},
		{name: "with", how: answers, flags: []string{
			"--optim-stats", "5", "--write-distro-data", "{}/distro", "--events-dir", "{}/events",
			"--eval-tasks", "arc_easy,hellaswag,piqa,boolq", "--prompt-task",
		}},
	},
	"failures": {{name: "without"}, {name: "answers", how: answers}, {name: "hangs", how: hangs}, {name: "refuses", how: refuses}, {name: "garbage", how: garbage}},
}

// runTimeout limits a run: only a hang exceeds it.
const runTimeout = 5 * time.Minute

// dummySeconds is the training time of the dummy model.
const dummySeconds = "0.3"

func main() {
	var o options
	flag.StringVar(&o.of, "of", "everything", "`what` to compare: everything, with a model that trains, or failures, with the dummy model")
	flag.IntVar(&o.clients, "clients", 5, "clients of a run")
	flag.IntVar(&o.rounds, "rounds", 20, "counted rounds of a run")
	flag.IntVar(&o.batch, "batch", 20, "sequences of a round")
	flag.IntVar(&o.blocks, "blocks", 0, "repetitions of each row; 0: 6 for everything, 4 for failures")
	flag.StringVar(&o.bin, "bin", "build/bin", "`folder` of psyche and psyche-client")
	flag.StringVar(&o.state, "state", "configs/quickstart/state.toml", "base settings of the run")
	flag.StringVar(&o.out, "out", "build/trackers", "`folder` for the output of the processes")
	flag.Float64Var(&o.within, "within", 0, "fail if a row's median differs from the first row's by more than this `percentage`; 0: never")
	flag.Parse()
	ctx, stop := signals.Context()
	defer stop()
	if err := o.run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "trackers:", err)
		os.Exit(1)
	}
}

func (o options) run(ctx context.Context) error {
	rows, found := tables[o.of]
	switch {
	case !found:
		return fmt.Errorf("-of is %q: want everything or failures", o.of)
	case o.clients < 1 || o.rounds < 1 || o.batch < o.clients || o.blocks < 0:
		return errors.New("want -clients, -rounds of 1 or more, -batch of as many as the clients or more")
	}
	if o.blocks == 0 {
		o.blocks = map[string]int{"everything": 6, "failures": 4}[o.of]
	}
	if err := os.MkdirAll(o.out, 0o755); err != nil {
		return err
	}
	if err := o.prepare(ctx); err != nil {
		return err
	}
	fmt.Printf("%d clients on %d CPUs, %d blocks of %d rounds.\n\n", o.clients, runtime.NumCPU(), o.blocks, o.rounds)
	var blocks [][]measured
	for b := range o.blocks {
		block := make([]measured, len(rows))
		for i := range rows {
			if b%2 == 1 {
				i = len(rows) - 1 - i
			}
			m, err := o.measure(ctx, rows[i])
			if err == nil {
				err = m.same()
			}
			if err != nil {
				return fmt.Errorf("row %q: %w", rows[i].name, err)
			}
			block[i] = m
			fmt.Fprintf(os.Stderr, "block %d, %s: median %.0f ms, %d requests, digest %.8s\n", b+1, m.row, 1000*median(m.rounds), m.requests, m.digests[0])
		}
		blocks = append(blocks, block)
	}
	all := compare(blocks)
	if err := print(os.Stdout, all); err != nil || o.within == 0 {
		return err
	}
	for _, c := range all {
		if p := percent(median(c.ratios)); p > o.within {
			return fmt.Errorf("row %q takes %.2f %% longer, more than %v %%", c.row, p, o.within)
		}
	}
	return nil
}

// prepare creates the quickstart's data and the run's configuration folder.
func (o options) prepare(ctx context.Context) error {
	make := exec.CommandContext(ctx, "scripts/quickstart-data.sh", o.bin, "build/quickstart")
	make.Stdout, make.Stderr = os.Stderr, os.Stderr
	if err := make.Run(); err != nil {
		return fmt.Errorf("prepare the quickstart's data: %w", err)
	}
	text, err := os.ReadFile(o.state)
	if err != nil {
		return err
	}
	if text, err = o.settings(text); err != nil {
		return fmt.Errorf("%s: %w", o.state, err)
	}
	return os.WriteFile(filepath.Join(o.out, "state.toml"), text, 0o644)
}

// settings modifies a state.toml.
func (o options) settings(text []byte) ([]byte, error) {
	var document struct {
		RunID  string                    `toml:"run_id"`
		Config map[string]any            `toml:"config"`
		Model  map[string]map[string]any `toml:"model"`
	}
	if err := toml.Unmarshal(text, &document); err != nil {
		return nil, err
	}
	document.RunID = "trackers"
	for key, value := range map[string]int{
		"init_min_clients": o.clients, "min_clients": o.clients, "total_steps": o.rounds + 2, "rounds_per_epoch": o.rounds + 2,
		"global_batch_size_start": o.batch, "global_batch_size_end": o.batch, "global_batch_size_warmup_tokens": 0,
	} {
		document.Config[key] = value
	}
	if o.of == "failures" {
		model := document.Model["LLM"]
		if model == nil {
			return nil, errors.New("no model.LLM")
		}
		delete(model, "data_locations")
		model["data_location"], model["checkpoint"] = "Dummy", map[string]any{"Dummy": map[string]any{"repo_id": ""}}
	}
	return toml.Marshal(document)
}

// measure runs a row.
func (o options) measure(ctx context.Context, r row) (m measured, err error) {
	ctx, cancel := context.WithTimeout(ctx, runTimeout)
	defer cancel()
	dir, err := os.MkdirTemp(o.out, "run-")
	if err != nil {
		return m, err
	}
	args := []string{
		"testnet", "start", "--num-clients", strconv.Itoa(o.clients), "--config-path", o.out, "--run-dir", filepath.Join(dir, "runs"), "--no-tui",
	}
	for _, flag := range r.flags {
		args = append(args, strings.ReplaceAll(flag, "{}", dir))
	}
	command := exec.CommandContext(ctx, filepath.Join(o.bin, "psyche"), args...)
	command.Cancel = func() error { return command.Process.Signal(os.Interrupt) }
	command.WaitDelay = 30 * time.Second
	command.Env = slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "WANDB_") || strings.HasPrefix(v, "OLTP_") })
	command.Env = append(command.Env, "DUMMY_TRAINING_DELAY_SECS="+dummySeconds, "EVAL_DATA=learn/eval/testdata/data", "HF_HUB_OFFLINE=1")
	service := newStandin(r.how)
	defer service.end()
	if r.how != "" {
		command.Env = append(command.Env, service.environment()...)
	}
	if text, err := command.CombinedOutput(); err != nil {
		return m, fmt.Errorf("%w\n%s", err, text[max(0, len(text)-2000):])
	}
	found, err := filepath.Glob(filepath.Join(dir, "runs", "*"))
	if err != nil || len(found) != 1 {
		return m, fmt.Errorf("%s holds not one run: %w", dir, err)
	}
	if m, err = readRun(found[0]); err != nil {
		return m, err
	}
	m.row, m.requests = r.name, service.requests.Load()
	return m, os.RemoveAll(dir)
}
