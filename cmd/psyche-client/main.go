package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strconv"
	"time"

	"github.com/alecthomas/kong"
	"github.com/lmittmann/tint"

	"github.com/psyche-go/psyche/base/plain"
	"github.com/psyche-go/psyche/base/release"
	"github.com/psyche-go/psyche/base/signals"
	"github.com/psyche-go/psyche/cmd/internal/buildinfo"
	"github.com/psyche-go/psyche/cmd/internal/manual"
	"github.com/psyche-go/psyche/cmd/internal/numbers"
	"github.com/psyche-go/psyche/cmd/internal/onchain"
	"github.com/psyche-go/psyche/cmd/internal/paths"
	"github.com/psyche-go/psyche/cmd/internal/published"
	_ "github.com/psyche-go/psyche/cmd/psyche-client/addressspace" // ends the program if its limit is too small
	"github.com/psyche-go/psyche/files/data/local"
	"github.com/psyche-go/psyche/host/tcp"
	"github.com/psyche-go/psyche/learn/memory/fit"
	"github.com/psyche-go/psyche/learn/train"
	"github.com/psyche-go/psyche/node/client"
	"github.com/psyche-go/psyche/record/backend"
	"github.com/psyche-go/psyche/record/follow"
)

// commands are the program's commands, in the order of its help.
type commands struct {
	ShowVersion kong.VersionFlag `name:"version" short:"v" help:"Print the version of the program."`

	Join       joinCommand       `cmd:"" help:"Join a run by its invite link and train until the run is finished." group:"Take part:"`
	Train      trainCommand      `cmd:"" help:"Join a run and train until the run is finished." group:"Take part:"`
	Serve      serveCommand      `cmd:"" help:"Keep this machine in the first open run of a list." group:"Take part:"`
	InitModel  initModelCommand  `cmd:"" help:"Create a model with random weights." group:"Work with models alone:"`
	Solo       soloCommand       `cmd:"" help:"Train a model alone, without a network." group:"Work with models alone:"`
	Evaluate   evaluateCommand   `cmd:"" help:"Evaluate a model: mean loss on token files, scores in tasks." group:"Work with models alone:"`
	Generate   generateCommand   `cmd:"" help:"Generate text with a model." group:"Work with models alone:"`
	ServeModel serveModelCommand `cmd:"" help:"Serve a model through an OpenAI-compatible API." group:"Work with models alone:"`
	Download   downloadCommand   `cmd:"" help:"Download a model from the Hugging Face Hub or a bucket." group:"Move models:"`
	Upload     uploadCommand     `cmd:"" help:"Upload a model to the Hugging Face Hub or a bucket." group:"Move models:"`
	Doctor     doctorCommand     `cmd:"" help:"Check the installation and report missing parts." group:"This program:"`
	Version    versionCommand    `cmd:"" help:"Print the version of the program." group:"This program:"`

	ShowIdentity showIdentityCommand `cmd:"" help:"Print the id of a key, which names its owner in runs." group:"Take part:"`
	PrintAllHelp manualCommand       `cmd:"" hidden:"" help:"Print the help of every command."`

	Completion completionCommand `cmd:"" help:"Print a shell completion script." group:"This program:"`
	PrintMan   manPageCommand    `cmd:"" hidden:"" help:"Print the man page."`
}

const description = `Train language models together, or alone.

Exit codes: 0 done; 1 failed; 2 wrong command line; 4 the run or its server refused; 5 the server is unreachable, has the wrong key, or serves the wrong run; 7 the server provably lied about the run; 130 interrupted.`

// Exit codes of the program, with the same meanings as in psyche. They are also listed in the help
// and the documentation.
const (
	exitFailure     = 1
	exitUsage       = 2
	exitRefused     = 4
	exitConnection  = 5
	exitHostFault   = 7
	exitInterrupted = signals.Interrupted
)

// usageError marks errors of the command line.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

// otherProgram has the commands of psyche, which users may look for here.
var otherProgram = manual.Other{Program: "psyche", Commands: []string{"host", "testnet", "server", "run", "data", "chain", "keys", "dash", "sim"}}

// terminal is the output of a command: results to Out, everything else to Err.
type terminal struct {
	Out, Err io.Writer
}

// logger writes warnings and errors for people.
func (t terminal) logger() *slog.Logger {
	return slog.New(tint.NewTextHandler(t.Err, &tint.Options{Level: slog.LevelWarn, TimeFormat: time.TimeOnly, NoColor: true}))
}

func main() {
	os.Exit(signals.Run("psyche-client", func(ctx context.Context) int {
		return run(ctx, published.Arguments(os.Args), terminal{os.Stdout, os.Stderr})
	}))
}

// exit is the code with which kong ends the program, after printing help.
type exit int

// run executes one command line and returns the exit code.
func run(ctx context.Context, args []string, t terminal) (code int) {
	defer func() {
		if value := recover(); value != nil {
			wanted, ok := value.(exit)
			if !ok {
				panic(value)
			}
			code = int(wanted)
		}
	}()
	parser, err := newParser(ctx, &commands{}, t)
	if err != nil {
		return report(t, err, exitFailure)
	}
	command, err := parser.Parse(buildinfo.Help(args))
	if err != nil {
		message, try := manual.Explain("psyche-client", otherProgram, err)
		return report(t, fmt.Errorf("%s (see %s)", message, try), exitUsage)
	}
	switch err := command.Run(); {
	case err == nil:
		return 0
	case errors.Is(err, context.Canceled) && ctx.Err() != nil:
		return report(t, errors.New("interrupted"), exitInterrupted)
	default:
		return report(t, explainMemory(err), exitCode(err))
	}
}

// explainMemory adds advice to the error of a failed allocation that has none.
func explainMemory(err error) error {
	if !train.LacksMemory(err) || fit.Advised(err) {
		return err
	}
	return fmt.Errorf("%w; use a smaller micro batch or shorter sequences, --recompute or --compute-dtype bf16 if the command has them, another --device, or a smaller model", err)
}

// newParser returns a parser that fills all from a command line.
func newParser(ctx context.Context, all *commands, t terminal) (*kong.Kong, error) {
	return kong.New(all,
		kong.Name("psyche-client"),
		kong.Vars{"version": buildinfo.Line("psyche-client"), "sample_sequences": strconv.Itoa(local.SampleSequences), "claim_sequences": strconv.Itoa(local.ClaimSequences)},
		kong.Description(description),
		kong.Writers(t.Out, t.Err),
		kong.Exit(func(code int) { panic(exit(code)) }),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true}),
		kong.BindTo(ctx, (*context.Context)(nil)),
		kong.Bind(t),
		numbers.Option(),
		paths.Option(),
		published.Switches(),
		examples.Option(),
		published.Environment("train", publishedVariables...),
		published.Environment("join", joinVariables()...),
	)
}

// exitCode returns the exit code for an error, so that scripts can distinguish failures.
func exitCode(err error) int {
	if _, wrong := errors.AsType[usageError](err); wrong || errors.Is(err, onchain.ErrFlags) || errors.Is(err, client.ErrReplaced) {
		return exitUsage
	}
	if _, faulty := errors.AsType[*follow.HostFault](err); faulty {
		return exitHostFault
	}
	switch {
	case errors.Is(err, tcp.ErrUnreachable), errors.Is(err, tcp.ErrUntrusted), errors.Is(err, follow.ErrGenesis), onchain.IsConnection(err):
		return exitConnection
	case errors.Is(err, tcp.ErrRefused), errors.Is(err, release.ErrOutdated), errors.Is(err, backend.ErrWrongRun), errors.Is(err, backend.ErrDuplicateKey), onchain.IsRefusal(err):
		return exitRefused
	}
	return exitFailure
}

func report(t terminal, err error, code int) int {
	_, _ = fmt.Fprintln(t.Err, "psyche-client:", plain.Text(err.Error()))
	return code
}
