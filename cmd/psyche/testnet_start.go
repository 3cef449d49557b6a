package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/psyche-go/psyche/base/signals"
	"github.com/psyche-go/psyche/cmd/internal/buildinfo"
	"github.com/psyche-go/psyche/face/testnet"
	"github.com/psyche-go/psyche/face/tui"
)

// testnetStart runs a complete network on this machine.
type testnetStart struct {
	NumClients int    `help:"Number of client processes." default:"3" group:"The run:"`
	ConfigPath string `help:"Folder with the run's state.toml and, if the run's data location is a Server, a data.toml for the testnet's data server." type:"path" group:"The run:"`
	Resume     string `help:"Folder of an interrupted run to resume, with its configuration, keys, journal and checkpoints. Replaces --config-path, --num-clients, --run-id and --run-dir." placeholder:"DIR" type:"path" group:"The run:"`
	AcceptLoss bool   `help:"With --resume: continue from an older model if no client's folder has the run's newest recorded model." group:"The run:"`
	RunID      string `help:"Name of the run. Default: the name in the configuration." group:"The run:"`
	RunDir     string `help:"Parent folder for the run's folder." default:"runs" type:"path" group:"The run:"`
	HeldOut    string `help:"Token file or folder for the held-out loss. Default: heldout next to the data, if it exists." type:"path" group:"Evaluation:"`
	ServerPort uint16 `help:"TCP port of the server; a chain also uses the next port. 0 means 20000, or a free port if 20000 is in use." default:"0" group:"Processes:"`
	Backend    string `help:"Host of the run: tcp (a server) or solana (a local chain)." enum:"tcp,solana" default:"tcp" group:"A run on a chain:"`
	SlotMs     int    `help:"Duration of the chain's slots, in milliseconds." default:"400" group:"A run on a chain:"`
	Validator  string `help:"A solana-test-validator program to run as the chain, instead of psyche chain start." placeholder:"FILE" group:"A run on a chain:"`
	Client     string `help:"The psyche-client program. Default: psyche-client in the folder of this program." type:"path" group:"Processes:"`

	Threads        int `help:"Threads of each client; 0 means an equal share of the cores." default:"0" group:"Computing:"`
	MicroBatchSize int `help:"Sequences in one pass through a client's model." default:"8" group:"Computing:"`

	KillAtStep         uint32  `help:"Round in which one client is killed and restarted; 0 means never." default:"0" group:"Faults:"`
	KillServerAtStep   uint32  `help:"Round in which the server is killed and restarted; 0 means never." default:"0" group:"Faults:"`
	RandomKillNum      int     `help:"Number of clients to kill at every interval; 0 means none." default:"0" group:"Faults:"`
	RandomKillInterval float64 `help:"Seconds between random kills." default:"120" group:"Faults:"`
	AllowedToKill      []int   `help:"Numbers of the clients that may be killed, starting at 1. Default: all." placeholder:"1,2,…" group:"Faults:"`
	RestartDelay       float64 `help:"Seconds between a kill and the restart." default:"5" group:"Faults:"`
	Seed               uint64  `help:"Seed for choosing the clients to kill." default:"1" group:"Faults:"`

	Cheat []string `help:"Make a client cheat, as in 3=negated or 4=copy: the client sends false results (negated, copy, negated-copy, noise, half-batch, another-batch, old-batch), which the run must detect. The run needs audits, as in configs/cheats, and the program psyche-cheat must be in the folder of this program (make cheat). May be repeated." placeholder:"N=ATTACK" group:"Faults:"`

	Timeout time.Duration `help:"Time limit." default:"2h" group:"The run:"`
	Tui     bool          `help:"Show a progress display if standard output is a terminal." default:"true" negatable:"" group:"Display and files:"`

	extraFlags `embed:""`
}

// Help returns the text below the command's summary in --help.
func (c *testnetStart) Help() string {
	return `Starts a server and several clients as separate processes over loopback, shows their progress and
prints a summary. The run's folder contains the summary as summary.json, and the logs, event logs,
checkpoints and the loss curve.

After Ctrl-C, --timeout or a failure, the command closes the epoch with a checkpoint and writes the
available files; a second Ctrl-C ends the command immediately. --resume continues from the newest
model that the run recorded, with new optimizers, and reports which model that is.

With --backend solana, a chain replaces the server: the command deploys the program there, and each
client pays from its own key. The chain is kept in the run's folder for --resume. A chain of
--validator must be restarted manually, as described in by-hand.txt in the run's folder.`
}

// check rejects numbers that would be misinterpreted.
func (c *testnetStart) check() error {
	switch {
	case c.ConfigPath == "" && c.Resume == "":
		return usagef("missing flags: --config-path, or --resume to continue a run")
	case c.Resume != "" && (c.ConfigPath != "" || c.RunID != ""):
		return usagef("--resume continues the run unchanged: omit --config-path and --run-id")
	case c.AcceptLoss && c.Resume == "":
		return usagef("--accept-loss needs --resume: a new run has nothing to lose")
	case c.Threads < 0:
		return usagef("--threads is %d: want at least 1, or 0 for an equal share of the cores", c.Threads)
	case c.MicroBatchSize < 1:
		return usagef("--micro-batch-size is %d: want at least 1", c.MicroBatchSize)
	case c.RandomKillNum < 0:
		return usagef("--random-kill-num is %d: want at least 1, or 0 for none", c.RandomKillNum)
	}
	for name, s := range map[string]float64{"random-kill-interval": c.RandomKillInterval, "restart-delay": c.RestartDelay} {
		if !(s >= 0 && s <= maxSeconds) {
			return usagef("--%s is %v: want 0 to %v seconds", name, s, float64(maxSeconds))
		}
	}
	return nil
}

// cheats parses the cheating clients and their attacks.
func (c *testnetStart) cheats() (cheats []testnet.Cheat, err error) {
	for _, given := range c.Cheat {
		number, attack, found := strings.Cut(given, "=")
		client, err := strconv.Atoi(number)
		if !found || err != nil || attack == "" {
			return nil, usagef("--cheat %s: want a client number and an attack, as in 3=negated", given)
		}
		cheats = append(cheats, testnet.Cheat{Client: client, Attack: attack})
	}
	return cheats, nil
}

// errInterrupted means that the user pressed Ctrl-C in the display. While the display runs, the terminal
// sends no signal.
var errInterrupted = errors.New("interrupted")

// maxSeconds limits times that are given in seconds: a year.
const maxSeconds = 365 * 24 * 3600

// Run executes the command.
func (c *testnetStart) Run(ctx context.Context, to console) error {
	if err := c.check(); err != nil {
		return err
	}
	o, err := c.options(to)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	hurry, rush := context.WithCancel(context.Background())
	defer rush()
	again, stop := signals.Second(ctx)
	defer stop()
	go func() {
		select {
		case <-again:
			rush()
		case <-hurry.Done():
		}
	}()
	o.Hurry = hurry
	o.Display = c.display(to, func() {
		if ctx.Err() != nil {
			rush()
		}
		cancel(errInterrupted)
	})
	o.Begin = func() { signals.Hold(ctx) }
	signals.Last(ctx, o.Display.Close)
	summary, err := testnet.Run(ctx, o)
	if summary.Rounds > 0 || summary.Checkpoint != "" {
		summary.Print(to.out)
	}
	if _, ok := errors.AsType[testnet.FlagError](err); ok {
		return usageError{err}
	}
	if _, ok := errors.AsType[testnet.ConfigError](err); ok {
		return configError{err}
	}
	return err
}

// options returns the options that flags set.
func (c *testnetStart) options(to console) (testnet.Options, error) {
	extras, err := c.extras(to)
	if err != nil {
		return testnet.Options{}, err
	}
	self, err := os.Executable()
	if err != nil {
		return testnet.Options{}, fmt.Errorf("find this program: %w", err)
	}
	cheats, err := c.cheats()
	if err != nil {
		return testnet.Options{}, err
	}
	return testnet.Options{
		ConfigPath:   c.ConfigPath,
		Resume:       c.Resume,
		NumClients:   c.NumClients,
		RunDir:       c.RunDir,
		RunID:        c.RunID,
		ServerBinary: self,
		ClientBinary: cmp.Or(c.Client, filepath.Join(filepath.Dir(self), "psyche-client")),
		Version:      buildinfo.Line("psyche"),
		ServerPort:   int(c.ServerPort),
		Threads:      c.Threads,
		MicroBatch:   c.MicroBatchSize,
		HeldOut:      c.HeldOut,
		Timeout:      c.Timeout,
		AcceptLoss:   c.AcceptLoss,
		Chain:        testnet.Chain{Used: c.Backend == "solana", SlotMs: c.SlotMs, Validator: c.Validator},
		Faults: testnet.Faults{
			KillAtStep:       c.KillAtStep,
			KillServerAtStep: c.KillServerAtStep,
			RandomKillNum:    c.RandomKillNum,
			RandomInterval:   seconds(c.RandomKillInterval),
			AllowedToKill:    c.AllowedToKill,
			Seed:             c.Seed,
			RestartDelay:     seconds(c.RestartDelay),
		},
		Cheats:      cheats,
		CheatBinary: filepath.Join(filepath.Dir(self), "psyche-cheat"),
		Extras:      extras,
	}, nil
}

// display returns a display that draws if the command runs on a terminal, and writes lines otherwise.
func (c *testnetStart) display(to console, interrupt func()) testnet.Display {
	if c.Tui && isTerminal(to.out) && isTerminal(os.Stdin) {
		return tui.New(os.Stdin, to.out, interrupt)
	}
	return testnet.NewLines(to.out)
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
