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
)

// serveCommand keeps this machine in one of several runs.
type serveCommand struct {
	Runs     string        `type:"path" placeholder:"FILE" help:"File with the runs that this machine may take part in, the preferred one first, where no LINK is given. Default: psyche/runs.toml in the user's folder for configuration."`
	Patience time.Duration `default:"10m" help:"How long a run may be paused, closed to this machine or out of reach until its client is ended for another run that is open (${default})."`

	Links words `arg:"" optional:"" name:"link …" placeholder:"LINK" help:"Runs that this machine may take part in, the preferred one first, as psyche run invite prints them, in quotes."`
	Flags words `arg:"" optional:"" name:"-- flags" help:"Flags of psyche-client join for all runs, behind --."`
}

// words are some that stand together on a command line, with all from a -- on. They are no slice: kong lets no other
// argument follow one.
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

// Help is shown by --help below the command's summary.
func (c *serveCommand) Help() string {
	return `For machines that are lent to training: they take part in the first of the runs that is open. A
run is open when it is neither paused nor over and admits the key of this machine. When it is over, or
not open for --patience while another one is, the machine goes to the next. It does not leave a run because
one that is preferred has opened. A run that waits for members is open: it is left when no round ran and nobody
came for 6 hours, for another one in which rounds run.

The client is a process of its own, psyche-client join, of the program that is installed when it starts.
One that ends before its run does is started again, after 5 seconds at first and up to 10 minutes later
on; after four such ends in a row the next run has its turn. A run whose link or command line is
wrong, or whose server lied, is not tried again, since that needs you: that is said, and the others go on. With a server that has
another key than the link says, no run is ever taken part in: where the right one was seen before it is waited
for, else it is looked for every hour while there are other runs. The first Ctrl-C, or SIGTERM, lets the
client leave its run politely; a second one ends it at once. When all runs are over, this command ends.

The file has the links and flags of psyche-client join, in TOML:

  flags = ["--device=cuda"]              # for all runs

  [[run]]
  link = "psyche://host.example:39405/friends?key=KEY&genesis=HASH"

  [[run]]
  link = "psyche://other.example:39405/large?key=KEY&genesis=HASH"
  flags = ["--micro-batch-size=4"]       # for this one, too

Exit codes: 0 all runs are over; 1 the others are not to be taken part in, and why is said; 2 the list of
runs or a flag is wrong; 130 interrupted.`
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
	program, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program, to start it again as a client: %w", err)
	}
	var seed [16]byte
	_, _ = crand.Read(seed[:]) // never fails
	signals.Hold(ctx)
	impatient, stop := signals.Second(ctx)
	defer stop()
	k := keeper{
		runs: runs, patience: c.Patience, logger: logger, impatient: impatient,
		look: lookAt,
		start: func(r *servedRun) (*child, error) {
			return startChild(program, append([]string{"join", r.link}, r.flags...), lock, t)
		},
		random: rand.New(rand.NewPCG(binary.LittleEndian.Uint64(seed[:]), binary.LittleEndian.Uint64(seed[8:]))),
	}
	return k.run(ctx)
}

// lockServing takes the right to start clients of this user. A client keeps the lock's file open too, so that one
// which outlives its keeper keeps others away.
func lockServing() (*os.File, error) {
	state, err := stateFolder(os.LookupEnv)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(string(state), 0o700); err != nil {
		return nil, fmt.Errorf("make a folder for what this user keeps: %w", err)
	}
	lock, err := filelock.Open(filepath.Join(string(state), "serve.lock"), 0o600)
	if errors.Is(err, filelock.ErrHeld) {
		return nil, fmt.Errorf("%w: another psyche-client serve of this user runs, or a client that one has left; end it, or set XDG_STATE_HOME to a folder for this one", err)
	}
	return lock, err
}
