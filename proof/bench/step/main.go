package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"
)

type options struct {
	models, dtypes, sides string
	batches, threads      string
	tokens, rounds        int
	budget                time.Duration
	python, folder        string
	device                string
	cpu                   bool
}

func main() {
	if len(os.Args) > 1 {
		if own, found := processes[os.Args[1]]; found {
			if err := own(os.Args[2:]); err != nil {
				fmt.Fprintf(os.Stderr, "step %s: %v\n", os.Args[1], err)
				os.Exit(1)
			}
			return
		}
	}
	var o options
	flag.StringVar(&o.models, "models", "20m,100m", "`models` to measure: model-NAME.json")
	flag.StringVar(&o.dtypes, "dtypes", "f32,bf16", "element types for computation")
	flag.StringVar(&o.batches, "batches", "1,4", "sequences of a step")
	flag.StringVar(&o.threads, "threads", "1,2", "threads of a process")
	flag.StringVar(&o.sides, "sides", "ours,installed,tuned",
		"sides to measure, from ours, recompute, installed, tuned, pure (bf16 weights), sdpa and compile; ratios are relative to the first")
	flag.IntVar(&o.tokens, "tokens", 512, "tokens of a sequence")
	flag.IntVar(&o.rounds, "rounds", 3, "minimum number of rounds after the first, which does not count")
	flag.DurationVar(&o.budget, "budget", 12*time.Second, "continue with more rounds until this time is over")
	flag.StringVar(&o.python, "python", "/usr/bin/python3", "Python interpreter with torch")
	flag.StringVar(&o.folder, "folder", "proof/bench/step", "folder of reference.py and the models")
	flag.StringVar(&o.device, "device", "cpu", "device: cpu, cuda or cuda:N. On CUDA, memory is nvidia-smi's value for each process after its steps")
	flag.BoolVar(&o.cpu, "cpu", false, "measure CPU time instead of elapsed time: less affected by other load, but ignores waiting")
	flag.Parse()
	if err := run(context.Background(), o); err != nil {
		fmt.Fprintln(os.Stderr, "step:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, o options) error {
	sides := strings.Split(o.sides, ",")
	version, err := exec.CommandContext(ctx, o.python, "-c", "import torch; print(torch.__version__)").Output()
	if err != nil {
		fmt.Printf("proof/bench/step: skipped, %s has no torch (Debian: apt-get install python3-torch)\n", o.python)
		return nil
	}
	fmt.Printf("Reference: PyTorch %s; %d CPUs; device %s; sequences of %d tokens; ratios are medians of paired rounds.\n\n",
		strings.TrimSpace(string(version)), runtime.NumCPU(), o.device, o.tokens)
	header(os.Stdout, sides)
	for _, model := range strings.Split(o.models, ",") {
		for _, dtype := range strings.Split(o.dtypes, ",") {
			for _, batch := range strings.Split(o.batches, ",") {
				for _, threads := range strings.Split(o.threads, ",") {
					s := setup{model: model, dtype: dtype, batch: batch, threads: threads}
					if err := measure(ctx, o, s, sides); err != nil {
						return fmt.Errorf("model %s, %s, batch %s, %s threads: %w", model, dtype, batch, threads, err)
					}
				}
			}
		}
	}
	return nil
}

// setup is one row of the table.
type setup struct{ model, dtype, batch, threads string }

func measure(ctx context.Context, o options, s setup, sides []string) (err error) {
	var all []*side
	defer func() {
		for _, one := range all {
			err = errors.Join(err, one.kill())
		}
	}()
	for _, name := range sides {
		one, err := start(ctx, o, s, name)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		all = append(all, one)
	}
	begin := time.Now()
	for round := 0; round <= o.rounds || time.Since(begin) < o.budget; round++ {
		for _, one := range all {
			if err := one.step(round > 0); err != nil {
				return fmt.Errorf("%s: %w", one.name, err)
			}
		}
	}
	for _, one := range all {
		if err := one.finish(); err != nil {
			return fmt.Errorf("%s: %w", one.name, err)
		}
	}
	batch, err := strconv.Atoi(s.batch)
	if err != nil {
		return err
	}
	flops, err := stepFLOPs(filepath.Join(o.folder, "model-"+s.model+".json"), o.tokens)
	if err != nil {
		return err
	}
	row(os.Stdout, s, batch*o.tokens, flops, all)
	return nil
}

// command returns the command that runs a side.
func command(ctx context.Context, o options, s setup, name string) (*exec.Cmd, error) {
	arguments := []string{
		"--config", filepath.Join(o.folder, "model-"+s.model+".json"), "--dtype", s.dtype,
		"--batch", s.batch, "--threads", s.threads, "--tokens", strconv.Itoa(o.tokens), "--device", o.device,
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	reference := append([]string{filepath.Join(o.folder, "reference.py")}, arguments...)
	var c *exec.Cmd
	switch name {
	case "ours":
		c = exec.CommandContext(ctx, self, append([]string{"worker"}, arguments...)...)
	case "recompute":
		c = exec.CommandContext(ctx, self, append([]string{"worker", "--recompute"}, arguments...)...)
	case "installed", "tuned":
		c = exec.CommandContext(ctx, o.python, reference...)
	case "pure", "sdpa", "compile":
		c = exec.CommandContext(ctx, o.python, append(reference, "--"+name)...)
	default:
		return nil, fmt.Errorf("unknown side %q", name)
	}
	c.Stderr = os.Stderr
	c.Env = untuned()
	if name == "installed" || name == "ours" || name == "recompute" {
		return c, nil
	}
	tuning, err := tuned(ctx, self, s.threads)
	c.Env = append(c.Env, tuning...)
	return c, err
}

// untuned returns this process's environment without variables that tune the libraries.
func untuned() []string {
	var out []string
	for _, entry := range os.Environ() {
		key, _, _ := strings.Cut(entry, "=")
		switch {
		case strings.HasPrefix(key, "OPENBLAS_"), strings.HasPrefix(key, "OMP_"), strings.HasPrefix(key, "GOMP_"),
			strings.HasPrefix(key, "MKL_"), strings.HasPrefix(key, "ATEN_"), strings.HasPrefix(key, "MALLOC_"), key == "LD_PRELOAD":
		default:
			out = append(out, entry)
		}
	}
	return out
}

// tuned returns the environment that gives PyTorch the settings of package torch. A Psyche process
// reports the variables that it set. The BLAS and the allocator, which package torch chooses by
// function calls, are added.
func tuned(ctx context.Context, self, threads string) ([]string, error) {
	c := exec.CommandContext(ctx, self, "settings", "--threads", threads)
	c.Env, c.Stderr = untuned(), os.Stderr
	settings, err := c.Output()
	if err != nil {
		return nil, fmt.Errorf("ask for the settings of package torch: %w", err)
	}
	out := strings.Fields(string(settings))
	if found, err := filepath.Glob("/usr/lib/*/openblas-openmp/libopenblas.so.0"); err == nil && len(found) > 0 {
		out = append(out, "LD_PRELOAD="+found[0])
	}
	return append(out, "MALLOC_MMAP_MAX_=0", "MALLOC_TRIM_THRESHOLD_=2147483647",
		"MALLOC_TOP_PAD_=67108864", "MALLOC_ARENA_MAX=1"), nil
}

func header(w io.Writer, sides []string) {
	line, rule := "| model | type | batch | threads", "|---|---|---|---"
	for _, name := range sides {
		if name == "ours" {
			name = "Psyche"
		}
		line, rule = line+" | "+name+" tok/s", rule+"|---"
	}
	for _, name := range sides[1:] {
		line, rule = line+" | speed / "+name, rule+"|---"
	}
	for _, name := range sides[1:] {
		line, rule = line+" | memory / "+name, rule+"|---"
	}
	_, _ = fmt.Fprintln(w, line+" | peak MB | GFLOP/s | of a product | rounds |\n"+rule+"|---|---|---|---|")
}

// row prints one line. flops are the operations per token.
func row(w io.Writer, s setup, tokens int, flops float64, all []*side) {
	line := fmt.Sprintf("| %s | %s | %s | %s", s.model, s.dtype, s.batch, s.threads)
	first := all[0]
	for _, one := range all {
		line += fmt.Sprintf(" | %.0f", float64(tokens)/median(one.seconds))
	}
	for _, one := range all[1:] {
		line += fmt.Sprintf(" | %.2f", median(quotients(one.seconds, first.seconds)))
	}
	for _, one := range all[1:] {
		line += fmt.Sprintf(" | %.2f", float64(first.peak)/float64(one.peak))
	}
	reached, share := flops*float64(tokens)/median(first.seconds), "–" // PyTorch's process does not measure a product
	if first.product > 0 {
		share = fmt.Sprintf("%.2f", reached/first.product)
	}
	_, _ = fmt.Fprintf(w, "%s | %d | %.0f | %s | %d |\n", line, first.peak>>10, reached/1e9, share, len(first.seconds))
}
