package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/psyche-go/psyche/base/plain"
	"github.com/psyche-go/psyche/base/signals"
	"github.com/psyche-go/psyche/chain/archive"
	"github.com/psyche-go/psyche/cmd/internal/buildinfo"
	"github.com/psyche-go/psyche/cmd/internal/manual"
	"github.com/psyche-go/psyche/cmd/internal/numbers"
	"github.com/psyche-go/psyche/cmd/internal/onchain"
	"github.com/psyche-go/psyche/cmd/internal/paths"
	"github.com/psyche-go/psyche/cmd/internal/published"
	"github.com/psyche-go/psyche/face/testnet"
	"github.com/psyche-go/psyche/host/server"
	"github.com/psyche-go/psyche/record/exhibit"
	"github.com/psyche-go/psyche/record/journal"
	"github.com/psyche-go/psyche/record/receipt"
)

// commands are what the program can do. The text of a group or command is its help.
type commands struct {
	ShowVersion kong.VersionFlag `name:"version" short:"v" help:"Print the version of the program."`

	Testnet struct {
		Start        testnetStart `cmd:"" help:"Run a server and several clients as processes on this machine."`
		PrintAllHelp allHelp      `cmd:"" hidden:"" help:"Print the help of these commands."`
	} `cmd:"" help:"Try a run on one machine." group:"Try a run:"`
	Server struct {
		Run            serverRun            `cmd:"" help:"Host runs: coordinate their clients over TCP."`
		ValidateConfig serverValidateConfig `cmd:"" help:"Check configuration files without starting anything."`
		Repair         serverRepair         `cmd:"" help:"Cut off what is damaged at the end of a run's journal."`
		PrintAllHelp   allHelp              `cmd:"" hidden:"" help:"Print the help of these commands."`
	} `cmd:"" help:"Host runs." group:"Host runs:"`
	Run struct {
		Create       runCreate       `cmd:"" help:"Begin a run on a server." group:"Begin runs, and see how far they are:"`
		Invite       runInvite       `cmd:"" help:"Print the link by which others join a run." group:"Begin runs, and see how far they are:"`
		Status       runStatus       `cmd:"" help:"Show how far a run is." group:"Begin runs, and see how far they are:"`
		List         runList         `cmd:"" help:"Show the runs of a server, or of a program on a chain." group:"Begin runs, and see how far they are:"`
		SetPaused    runSetPaused    `cmd:"" help:"Pause a run, or let it go on." group:"Govern a run:"`
		UpdateConfig runUpdateConfig `cmd:"" help:"Give a paused run new rules." group:"Govern a run:"`
		Authorize    runAuthorize    `cmd:"" help:"Admit a key to a permissioned run." group:"Govern a run:"`
		SetDelegates runSetDelegates `cmd:"" help:"Name the keys that may join in the name of an authorized one." group:"Govern a run:"`
		Eject        runEject        `cmd:"" help:"Remove a client from a run." group:"Govern a run:"`
		Close        runClose        `cmd:"" help:"End a run for good." group:"Govern a run:"`
		Tick         runTick         `cmd:"" help:"Move a run on a chain on, if that is due." group:"Govern a run:"`
		Free         runFree         `cmd:"" help:"Get back what the account of a closed run on a chain holds." group:"Govern a run:"`
		Archive      runArchive      `cmd:"" help:"Keep the log of a run on a chain." group:"Verify a run:"`
		Export       runExport       `cmd:"" help:"Copy the log of a run from its server." group:"Verify a run:"`
		Replay       runReplay       `cmd:"" help:"Verify the log of a run, and show the state it leads to." group:"Verify a run:"`
		Receipt      runReceipt      `cmd:"" help:"Say what a member gave to a run, in a file that anybody can verify." group:"Verify a run:"`
		Examine      runExamine      `cmd:"" help:"Look again at an entry of a log: an accusation, its jury, its exhibit." group:"Verify a run:"`
	} `cmd:"" help:"Administer runs on a server or a chain, and audit them."`
	Data struct {
		Tokenize dataTokenize `cmd:"" help:"Make a folder of token files from text, JSON, CSV, Parquet, Arrow, or a data set of the Hub."`
		Samples  dataSamples  `cmd:"" help:"Make ready-made samples of conversations, of which the assistant's part is learned."`
		Inspect  dataInspect  `cmd:"" aliases:"info" help:"Show and check a folder of token files."`
		Serve    dataServe    `cmd:"" help:"Give the members of a run the sequences that it assigns to them."`
	} `cmd:"" help:"Prepare and serve training data." group:"Prepare data:"`
	Chain struct {
		Start   chainStart   `cmd:"" help:"Run a chain of one node on this machine."`
		Deploy  chainDeploy  `cmd:"" help:"Put the program that hosts runs on a chain."`
		Airdrop chainAirdrop `cmd:"" help:"Ask the faucet of a chain for tests for SOL."`
		Balance chainBalance `cmd:"" help:"Show how much a key has on a chain."`
	} `cmd:"" help:"Prepare chains for runs." group:"Chains:"`
	Solana solanaCommands `cmd:"" help:"Runs on a chain, by the names that the original's documentation has." group:"The same by the names of the original's documentation:"`
	Keys   struct {
		New  keysNew  `cmd:"" help:"Make a key file."`
		Show keysShow `cmd:"" help:"Print the id that belongs to a key."`
	} `cmd:"" help:"Make and show the keys that name participants." group:"Keys:"`
	Dash    dashboard `cmd:"" help:"Show runs in a browser." group:"Look and check:"`
	Sim     simulate  `cmd:"" help:"Simulate whole runs under faults, and check them." group:"Look and check:"`
	Doctor  doctor    `cmd:"" help:"Say what is installed, and what is missing." group:"Look and check:"`
	Version version   `cmd:"" help:"Print the version of the program." group:"Look and check:"`

	Completion completion `cmd:"" help:"Print completions of the command line for a shell." group:"Look and check:"`
	PrintMan   manPage    `cmd:"" hidden:"" help:"Print the man page."`

	PrintAllHelp allHelp `cmd:"" hidden:"" help:"Print the help of every command."`
}

const description = `Host and prepare runs that train a language model together.

Exit codes: 0 done, also when a server was stopped by a signal; 1 failed; 2 wrong command line; 3 wrong configuration file; 4 the run or its server refused; 5 the server cannot be reached, or is not the right one; 6 a log does not verify; 8 a testnet's run is over, but not every client has its final model, or the run recorded none; 9 a testnet's clients ended with different models; 10 a testnet's clients that cheat were not ejected, or somebody honest was accused; 130 interrupted.`

// Exit codes. Help and documentation list them.
const (
	exitOK          = 0
	exitFailed      = 1
	exitUsage       = 2
	exitConfig      = 3
	exitRefused     = 4
	exitConnection  = 5
	exitUnverified  = 6
	exitIncomplete  = 8
	exitDiffer      = 9
	exitCheats      = 10
	exitInterrupted = signals.Interrupted
)

// configError marks errors of configuration files.
type configError struct{ error }

func (e configError) Unwrap() error { return e.error }

// usageError marks errors of what stands on the command line.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

// usagef returns a usageError.
func usagef(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// console is where commands write.
type console struct {
	out io.Writer // results
	err io.Writer // progress, logs, errors
}

func main() {
	os.Exit(start())
}

// start runs the program under signals and returns its exit code.
func start() int {
	return signals.Run("psyche", func(ctx context.Context) int {
		return run(ctx, published.Arguments(os.Args), console{out: os.Stdout, err: os.Stderr})
	})
}

// exit carries the code of a parser that wants the program to end, as --help does.
type exit int

// run parses the command line, runs the command and returns the exit code.
func run(ctx context.Context, args []string, to console) (code int) {
	var all commands
	defer func() {
		switch stopped := recover().(type) {
		case nil:
		case exit:
			code = int(stopped)
		default:
			panic(stopped)
		}
	}()
	parser, err := newParser(ctx, &all, to)
	if err != nil {
		panic("psyche: command definitions: " + err.Error())
	}
	command, err := parser.Parse(buildinfo.Help(args))
	if err != nil {
		_, _ = fmt.Fprintf(to.err, "psyche: %s\nTry: %s\n", plain.Text(err.Error()), manual.Hint("psyche", err))
		return exitUsage
	}
	if err := command.Run(); err != nil {
		code, text := exitCode(ctx, err), err.Error()
		if code == exitInterrupted {
			text = strings.ReplaceAll(text, context.Canceled.Error(), "interrupted")
		}
		_, _ = fmt.Fprintf(to.err, "psyche: %s\n", plain.Text(text))
		return code
	}
	return exitOK
}

// newParser reads command lines into all.
func newParser(ctx context.Context, all *commands, to console) (*kong.Kong, error) {
	return kong.New(all,
		kong.Name("psyche"),
		kong.Vars{"version": buildinfo.Line("psyche")},
		kong.Description(description),
		kong.Writers(to.out, to.err),
		kong.Exit(func(code int) { panic(exit(code)) }),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true}),
		kong.BindTo(ctx, (*context.Context)(nil)),
		kong.Bind(to),
		numbers.Option(),
		paths.Option(),
		published.Switches(),
		examples.Option(),
	)
}

func exitCode(ctx context.Context, err error) int {
	if _, ok := errors.AsType[usageError](err); ok || errors.Is(err, onchain.ErrFlags) {
		return exitUsage
	}
	if _, ok := errors.AsType[configError](err); ok {
		return exitConfig
	}
	if ctx.Err() != nil && errors.Is(err, ctx.Err()) || errors.Is(err, errInterrupted) {
		return exitInterrupted
	}
	switch {
	case isConnection(err):
		return exitConnection
	case isRefusal(err):
		return exitRefused
	case errors.Is(err, server.ErrReplay), errors.Is(err, journal.ErrDamaged), errors.Is(err, archive.ErrArchive), errors.Is(err, exhibit.ErrExhibit), errors.Is(err, receipt.ErrReceipt):
		return exitUnverified
	case errors.Is(err, testnet.ErrReplicasDiffer):
		return exitDiffer
	case errors.Is(err, testnet.ErrCheats):
		return exitCheats
	case errors.Is(err, testnet.ErrIncomplete):
		return exitIncomplete
	}
	return exitFailed
}
