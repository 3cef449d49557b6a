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
	"github.com/psyche-go/psyche/record/evidence"
	"github.com/psyche-go/psyche/record/follow"
	"github.com/psyche-go/psyche/record/journal"
	"github.com/psyche-go/psyche/record/receipt"
)

// commands are the program's commands. The text of a group or command is its help.
type commands struct {
	ShowVersion kong.VersionFlag `name:"version" short:"v" help:"Print the version of the program."`

	Host    hostText `cmd:"" help:"Host a run on your own text: prepare everything, train, and invite others." group:"Try a run:"`
	Testnet struct {
		Start        testnetStart `cmd:"" help:"Run a server and several clients as processes on this machine."`
		PrintAllHelp allHelp      `cmd:"" hidden:"" help:"Print the help of these commands."`
	} `cmd:"" help:"Try a run on one machine." group:"Try a run:"`
	Server struct {
		Run            serverRun            `cmd:"" help:"Host runs: coordinate their clients over TCP."`
		ValidateConfig serverValidateConfig `cmd:"" help:"Check configuration files without starting anything."`
		Repair         serverRepair         `cmd:"" help:"Truncate the damaged end of a run's journal."`
		PrintAllHelp   allHelp              `cmd:"" hidden:"" help:"Print the help of these commands."`
	} `cmd:"" help:"Host runs." group:"Host runs:"`
	Run struct {
		Create       runCreate       `cmd:"" help:"Create a run on a server or a chain." group:"Create and show runs:"`
		Invite       runInvite       `cmd:"" help:"Print the invite link of a run." group:"Create and show runs:"`
		Status       runStatus       `cmd:"" help:"Show the progress of a run." group:"Create and show runs:"`
		List         runList         `cmd:"" help:"Show the runs of a server, or of a program on a chain." group:"Create and show runs:"`
		SetPaused    runSetPaused    `cmd:"" help:"Pause or resume a run." group:"Govern a run:"`
		UpdateConfig runUpdateConfig `cmd:"" help:"Change the configuration of a paused run." group:"Govern a run:"`
		Authorize    runAuthorize    `cmd:"" help:"Admit a key to a permissioned run." group:"Govern a run:"`
		SetDelegates runSetDelegates `cmd:"" help:"Set the keys that may join on behalf of an authorized key." group:"Govern a run:"`
		Eject        runEject        `cmd:"" help:"Remove a client from a run." group:"Govern a run:"`
		Close        runClose        `cmd:"" help:"Close a run permanently." group:"Govern a run:"`
		Tick         runTick         `cmd:"" help:"Advance a run on a chain if a tick is due." group:"Govern a run:"`
		Free         runFree         `cmd:"" help:"Recover the SOL in the account of a closed run on a chain." group:"Govern a run:"`
		Archive      runArchive      `cmd:"" help:"Archive the log of a run on a chain." group:"Verify a run:"`
		Export       runExport       `cmd:"" help:"Copy the log of a run from its server." group:"Verify a run:"`
		Replay       runReplay       `cmd:"" help:"Verify the log of a run and show its final state." group:"Verify a run:"`
		Receipt      runReceipt      `cmd:"" help:"Write a verifiable receipt of a member's contribution to a run." group:"Verify a run:"`
		Examine      runExamine      `cmd:"" help:"Examine a log entry: an accusation, its jury, its evidence file." group:"Verify a run:"`
	} `cmd:"" help:"Administer runs on a server or a chain, and audit them."`
	Data struct {
		Tokenize dataTokenize `cmd:"" help:"Create a folder of token files from text, JSON, CSV, Parquet, Arrow, or a Hub data set."`
		Samples  dataSamples  `cmd:"" help:"Create fine-tuning samples from conversations, with loss on the assistant's part only."`
		Inspect  dataInspect  `cmd:"" aliases:"info" help:"Show and check a folder of token files."`
		Serve    dataServe    `cmd:"" help:"Serve each member of a run its assigned sequences."`
	} `cmd:"" help:"Prepare and serve training data." group:"Prepare data:"`
	Chain struct {
		Start   chainStart   `cmd:"" help:"Run a local chain of one node."`
		Deploy  chainDeploy  `cmd:"" help:"Deploy the program that hosts runs on a chain."`
		Airdrop chainAirdrop `cmd:"" help:"Request SOL from the faucet of a test chain."`
		Balance chainBalance `cmd:"" help:"Show the balance of a key on a chain."`
	} `cmd:"" help:"Prepare chains for runs." group:"Chains:"`
	Solana solanaCommands `cmd:"" help:"Administer runs on a chain, with the command names from the documentation of the original Psyche." group:"Commands from the documentation of the original Psyche:"`
	Keys   struct {
		New  keysNew  `cmd:"" help:"Create a key file."`
		Show keysShow `cmd:"" help:"Print the id of a key."`
	} `cmd:"" help:"Create and show the keys of participants." group:"Keys:"`
	Dash    dashboard `cmd:"" help:"Show runs in a browser." group:"Display and checks:"`
	Sim     simulate  `cmd:"" help:"Simulate complete runs with faults and check them." group:"Display and checks:"`
	Doctor  doctor    `cmd:"" help:"Check the installation and report missing parts." group:"Display and checks:"`
	Version version   `cmd:"" help:"Print the version of the program." group:"Display and checks:"`

	Completion completion `cmd:"" help:"Print a shell completion script." group:"Display and checks:"`
	PrintMan   manPage    `cmd:"" hidden:"" help:"Print the man page."`

	PrintAllHelp allHelp `cmd:"" hidden:"" help:"Print the help of every command."`
}

const description = `Host and prepare runs that train a language model together.

Exit codes: 0 done, also when a server was stopped by a signal; 1 failed; 2 wrong command line; 3 wrong configuration file; 4 the run or its server refused; 5 the server is unreachable, has the wrong key, or serves the wrong run; 6 a log does not verify; 8 a testnet's run is over, but not every client has its final model, or the run recorded none; 9 a testnet's clients ended with different models; 10 a testnet's cheating clients were not ejected, or an honest client was accused; 130 interrupted.`

// Exit codes, also listed in the help and the documentation.
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

// usageError marks errors of the command line.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

// usagef returns a usageError.
func usagef(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// otherProgram has the commands of psyche-client, which users may look for here.
var otherProgram = manual.Other{Program: "psyche-client", Commands: []string{
	"join", "train", "serve", "init-model", "solo", "evaluate", "generate", "serve-model", "download", "upload", "show-identity",
}}

// console is the output of commands.
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

// exit is the code of a parser that ends the program, for example for --help.
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
		message, try := manual.Explain("psyche", otherProgram, err)
		_, _ = fmt.Fprintf(to.err, "psyche: %s\nTry: %s\n", plain.Text(message), try)
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

// newParser returns a parser that fills all from a command line.
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
	case errors.Is(err, follow.ErrEvidence): // which may have a genesis that a connection would refuse
		return exitUnverified
	case isConnection(err):
		return exitConnection
	case isRefusal(err):
		return exitRefused
	case errors.Is(err, server.ErrReplay), errors.Is(err, journal.ErrDamaged), errors.Is(err, archive.ErrArchive), errors.Is(err, evidence.ErrInvalid), errors.Is(err, receipt.ErrReceipt):
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
