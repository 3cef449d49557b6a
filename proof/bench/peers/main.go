package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/psyche-go/psyche/base/filelock"
	"github.com/psyche-go/psyche/base/signals"
	"github.com/psyche-go/psyche/proof/testbed"
	"github.com/psyche-go/psyche/record/config"
)

const (
	members = 3
	runID   = "peers"
	first   = "proof/bench/distro.toml" // defines the text, order and first weights of all systems
)

// bench is the data that all measurements share.
type bench struct {
	rows           rows
	bin, out, logs string
	python         string
	exchanges      int

	text   *text
	model  string // folder of the first weights
	length int    // tokens of a sequence
}

func main() {
	var b bench
	var rowsFile, only string
	flag.StringVar(&rowsFile, "file", "proof/bench/peers/rows.toml", "`file` with systems and links")
	flag.StringVar(&only, "only", "", "make only measurements whose name matches this regular `expression`")
	flag.StringVar(&b.bin, "bin", "build/bin", "`folder` of psyche and psyche-client")
	flag.StringVar(&b.out, "out", "build/peers", "`folder` for the output of the processes")
	flag.StringVar(&b.logs, "logs", "proof/bench/peers/logs", "`folder` of the measurements; existing ones are not repeated")
	flag.StringVar(&b.python, "python", "/usr/bin/python3", "Python interpreter with torch and numpy, and with hivemind for Hivemind")
	flag.IntVar(&b.exchanges, "exchanges", 24, "exchanges over each link")
	flag.Parse()
	ctx, stop := signals.Context()
	defer stop()
	if err := run(ctx, &b, rowsFile, only); err != nil {
		fmt.Fprintln(os.Stderr, "peers:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, b *bench, rowsFile, only string) (err error) {
	if b.exchanges < 4 || b.exchanges > maxExchanges {
		return fmt.Errorf("-exchanges is %d, want 4 to %d", b.exchanges, maxExchanges)
	}
	wanted, err := regexp.Compile(only)
	if err != nil {
		return fmt.Errorf("-only: %w", err)
	}
	if b.rows, err = readRows(rowsFile); err != nil {
		return err
	}
	if missing := b.missing(wanted); len(missing) > 0 {
		err = b.measure(ctx, missing)
	}
	done, readErr := b.read()
	if err = errors.Join(err, readErr); len(done) == 0 {
		return err
	}
	printTables(os.Stdout, b.rows, done)
	return errors.Join(err, writePicture(filepath.Join(b.logs, "..", "loss.svg"), b.rows, done))
}

// prepare prepares all measurements: it builds the programs, and creates the quickstart's data and
// model.
func (b *bench) prepare(ctx context.Context) error {
	for _, dir := range []string{b.out, b.logs} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return fmt.Errorf("make folder: %w", err)
		}
	}
	if err := testbed.Quickstart(ctx, b.bin); err != nil {
		return err
	}
	run, err := config.LoadState(first)
	if err != nil {
		return err
	}
	location := run.Model.DataLocations[0].Local
	if location == nil || location.Shuffle.Seed == nil || run.Model.Checkpoint.Local == nil {
		return fmt.Errorf("%s: want local shuffled data, and a local checkpoint", first)
	}
	b.length, b.model = int(run.Model.MaxSeqLen), run.Model.Checkpoint.Local.Path
	if b.rows.Model != "" {
		if err := b.makeModel(ctx); err != nil {
			return err
		}
	}
	b.text, err = openText(ctx, location.Path, b.out, *location.Shuffle.Seed, b.length)
	return err
}

// makeModel creates the first weights of the model in the rows, unless they exist.
func (b *bench) makeModel(ctx context.Context) error {
	b.model = filepath.Join(b.out, "model")
	if _, err := os.Stat(filepath.Join(b.model, "model.safetensors")); err == nil {
		return nil
	}
	program := exec.CommandContext(ctx, filepath.Join(b.bin, "psyche-client"), "init-model", "--config", b.rows.Model, "--seed", "1", "--output", b.model)
	program.Stdout, program.Stderr = os.Stderr, os.Stderr
	if err := program.Run(); err != nil {
		return fmt.Errorf("make the first weights of %s: %w", b.rows.Model, err)
	}
	return nil
}

// job is a measurement to make.
type job struct {
	name     string
	system   system
	link     *link // nil: the curve
	kill     bool
	versions string // of the required libraries
}

// missing lists the measurements without logs, curves first.
func (b *bench) missing(wanted *regexp.Regexp) (jobs []job) {
	for _, s := range b.rows.System {
		if s.measured(curveOnly) {
			jobs = append(jobs, job{name: "curve-" + slug(s.Name), system: s})
		}
	}
	for _, l := range b.rows.Link {
		for _, s := range b.rows.System {
			if s.Only == "" {
				jobs = append(jobs, job{name: "link-" + slug(l.Name) + "-" + slug(s.Name), system: s, link: &l})
			}
		}
	}
	for _, s := range b.rows.System {
		if s.measured(killOnly) {
			jobs = append(jobs, job{name: "kill-" + slug(s.Name), system: s, link: &link{}, kill: true})
		}
	}
	var all []job
	for _, j := range jobs {
		if _, err := os.Stat(b.path(j.name)); errors.Is(err, os.ErrNotExist) && wanted.MatchString(j.name) {
			all = append(all, j)
		}
	}
	return all
}

// measure makes measurements one after another. It skips measurements that are not possible here,
// with a message.
func (b *bench) measure(ctx context.Context, jobs []job) (err error) {
	if err := b.prepare(ctx); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.text.close()) }()
	for _, j := range jobs {
		if j.system.Torch != "" {
			if j.versions, err = versions(ctx, b.python, j.system.libraries()...); err != nil {
				fmt.Printf("proof/bench/peers: %s is skipped: %v\n", j.name, err)
				continue
			}
		}
		err := b.locked(ctx, j)
		if errors.Is(err, testbed.ErrNoLinks) {
			fmt.Printf("proof/bench/peers: %s is skipped: %v\n", j.name, err)
			continue
		}
		if err != nil {
			return fmt.Errorf("%s: %w", j.name, err)
		}
	}
	return nil
}

// locked makes a measurement and writes its log, unless another process is making it or has made
// it.
func (b *bench) locked(ctx context.Context, j job) (err error) {
	file, err := filelock.Open(b.path(j.name)+".part", 0o644)
	if errors.Is(err, filelock.ErrHeld) {
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	if _, err := os.Stat(b.path(j.name)); err == nil {
		return os.Remove(b.path(j.name) + ".part")
	}
	fmt.Fprintln(os.Stderr, j.name)
	m, err := b.one(ctx, j)
	if err != nil {
		return err
	}
	m.System, m.Torch, m.Ended, m.Load = j.system.Name, j.versions, time.Now().UTC().Truncate(time.Second), loadAverage()
	if j.link != nil {
		m.Link = j.link.Name
	}
	fmt.Fprintln(os.Stderr, m.summary(b.length))
	return m.write(file, b.path(j.name))
}

// one makes a measurement.
func (b *bench) one(ctx context.Context, j job) (m measurement, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, jobTimeout, fmt.Errorf("the measurement took longer than %v", jobTimeout))
	defer cancel()
	if j.kill {
		return b.killed(ctx, j.system)
	}
	if j.link == nil {
		if j.system.State != "" {
			return b.ownCurve(ctx, j.system)
		}
		return b.torchRun(ctx, j.system, testbed.Loopback(members), j.system.Exchanges, "--measure-every", fmt.Sprint(j.system.Measure))
	}
	places, end := testbed.Loopback(members+1), func() error { return nil }
	if !j.link.loopback() {
		if places, end, err = testbed.Links(j.link.process(), members+1); err != nil {
			return m, err
		}
	}
	defer func() { err = errors.Join(err, end()) }()
	exchanges := min(b.exchanges, j.system.Exchanges)
	if j.system.State != "" {
		return b.ownRun(ctx, j.system, places, exchanges)
	}
	return b.torchRun(ctx, j.system, places, exchanges, j.system.OnLinks...)
}

// loadAverage returns the one-minute load average in Linux's format.
func loadAverage() string {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return ""
	}
	load, _, _ := strings.Cut(string(text), " ")
	return load
}
