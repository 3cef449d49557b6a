package main

import (
	"context"
	crand "crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/alecthomas/kong"

	"github.com/psyche-go/psyche/base/filelock"
	"github.com/psyche-go/psyche/base/signals"
	"github.com/psyche-go/psyche/cmd/internal/buildinfo"
	"github.com/psyche-go/psyche/node/supervisor"
)

// serveCommand keeps this machine in one of several runs.
type serveCommand struct {
	Runs     string        `type:"path" placeholder:"FILE" help:"File that lists the runs for this machine, in order of preference; used if no LINK is given. Default: psyche/runs.toml in the user's configuration folder."`
	Patience time.Duration `default:"10m" help:"Time that a run may be paused, closed to this machine, or unreachable before its client moves to another open run (${default})."`

	Links words `arg:"" optional:"" name:"link …" placeholder:"LINK" help:"Invite links (from psyche run invite) of the runs for this machine, in order of preference. Put each link in quotes."`
	Flags words `arg:"" optional:"" name:"-- flags" help:"Flags of psyche-client join for all runs, after --."`
}

// words are consecutive words of a command line, including everything after --. The type is not a
// slice, because kong permits no arguments after a slice.
type words struct{ list []string }

// Decode implements kong.MapperValue.
func (w *words) Decode(ctx *kong.DecodeContext) error {
	for behind := false; !ctx.Scan.Peek().IsEOL(); {
		next := ctx.Scan.Peek()
		word := next.String()
		switch {
		case behind || next.Type != kong.UntypedToken || !strings.HasPrefix(word, "-"):
			w.list = append(w.list, word)
		case word == "--":
			behind = true
		default: // a flag of this command
			return nil
		}
		ctx.Scan.Pop()
	}
	return nil
}

// Help returns the text below the command's summary in --help.
func (c *serveCommand) Help() string {
	return `For machines that are available for training: the machine joins the first open run of the list. A
run is open if it is neither paused nor over and admits the key of this machine.

The machine moves to the next run when its run is over, or when its run is not open for --patience
and another run is open. It does not leave a run because a preferred run has opened. A run that
waits for members counts as open. If no round runs and no client joins for 6 hours, the machine
moves to another run in which rounds run.

The client is a separate process that runs psyche-client join, in the version installed when the
process starts. If it exits before its run ends, it is restarted, after 5 seconds at first and up
to 10 minutes later on. After four such exits in a row, the machine tries the next run. If the link
or the command line of a run is wrong, or its server lied, the machine does not try that run again:
it reports the problem and continues with the other runs. It never joins a run on a server whose
key differs from the key in the link. If it has seen the right key before, it waits for that server;
otherwise it checks the address every hour while there are other runs.

At the first Ctrl-C or SIGTERM, the client leaves its run properly; a second signal ends the client
immediately. When all runs are over, this command exits.

The file contains the links and flags of psyche-client join, in TOML:

  flags = ["--device=cuda"]              # for all runs

  [[run]]
  link = "psyche://host.example:39405/friends?key=KEY&genesis=HASH"

  [[run]]
  link = "psyche://other.example:39405/large?key=KEY&genesis=HASH"
  flags = ["--micro-batch-size=4"]       # also for this run

Exit codes: 0 all runs are over; 1 the remaining runs cannot be joined, for the reported reasons; 2 the
list of runs or a flag is wrong; 130 interrupted.`
}

// Run keeps the machine busy until all runs are over or it is interrupted.
func (c *serveCommand) Run(ctx context.Context, t terminal) (err error) {
	runs, err := c.read(ctx, t)
	if err != nil {
		return usageError{err}
	}
	logger, file, err := runs[0].joins.open(t, nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	lock, err := lockServing()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lock.Close()) }()
	for _, r := range runs {
		if err := r.identify(); err != nil {
			return usageError{fmt.Errorf("%s: %w", r.given, err)}
		}
	}
	program, err := findInstalled()
	if err != nil {
		return fmt.Errorf("find this program, to start it as a client: %w", err)
	}
	var seed [16]byte
	_, _ = crand.Read(seed[:]) // never fails
	signals.Hold(ctx)
	impatient, stop := signals.Second(ctx)
	defer stop()
	s := supervisor.Supervisor{
		Patience: c.Patience, ExitCodes: exitCodes, Impatient: impatient, Logger: logger,
		Random: rand.New(rand.NewPCG(binary.LittleEndian.Uint64(seed[:]), binary.LittleEndian.Uint64(seed[8:]))),
	}
	for _, r := range runs {
		r.installed = program
		s.Runs = append(s.Runs, &supervisor.Run{ID: r.joins.RunID, Given: r.given, Look: r.lookAt, Start: func() (*supervisor.Client, error) {
			return supervisor.Start(program.path, append([]string{"join", r.link}, r.flags...), lock, t.Out, t.Err)
		}})
	}
	return s.Supervise(ctx)
}

// exitCodes describes the exit codes of a client.
var exitCodes = map[int]supervisor.ExitCode{
	exitFailure:     {Meaning: "it failed; see the messages above"},
	exitUsage:       {Meaning: "its client reported a wrong command line or input; see the messages above", Final: true},
	exitRefused:     {Meaning: "the run or its server refused it"},
	exitConnection:  {Meaning: "the server is unreachable, has the wrong key, or serves the wrong run"},
	exitHostFault:   {Meaning: "its server provably lied; the messages above name the evidence", Final: true},
	exitInterrupted: {Meaning: "it was interrupted"},
}

// installed is the program that psyche-client serve starts as a client.
type installed struct {
	path  string
	first os.FileInfo // at the start of this process
}

func findInstalled() (*installed, error) {
	path, err := os.Executable()
	if err != nil {
		return nil, err
	}
	first, err := os.Stat(path)
	return &installed{path, first}, err
}

// version returns the program's version, or "" if an upgrade has replaced the program since this process
// started: then only the client knows its version.
func (p *installed) version() string {
	if p != nil {
		if now, err := os.Stat(p.path); err == nil && (!os.SameFile(p.first, now) || !p.first.ModTime().Equal(now.ModTime())) {
			return ""
		}
	}
	return buildinfo.Version()
}

// lockServing takes this user's lock for starting clients. Clients inherit the open file, so that a
// client that outlives psyche-client serve still holds the lock.
func lockServing() (*os.File, error) {
	state, err := stateFolder()
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(string(state), 0o700); err != nil {
		return nil, fmt.Errorf("create this user's state folder: %w", err)
	}
	lock, err := filelock.Open(filepath.Join(string(state), "serve.lock"), 0o600)
	if errors.Is(err, filelock.ErrHeld) {
		return nil, fmt.Errorf("%w: psyche-client serve, or a client that it started, is already running for this user; stop it, or set XDG_STATE_HOME to a separate folder", err)
	}
	return lock, err
}
