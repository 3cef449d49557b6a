package main

import (
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

// testnetStart runs a whole network on this machine.
type testnetStart struct {
	NumClients int    `help:"Client processes to start." default:"3" group:"The run:"`
	ConfigPath string `help:"Folder that holds the run's state.toml and, if the run's data location is a Server, a data.toml that says what the testnet's server serves." type:"path" group:"The run:"`
	Resume     string `help:"Folder of a run that was interrupted, to go on with it: its configuration, keys, journal and checkpoints are there. In place of --config-path, --num-clients, --run-id and --run-dir." placeholder:"DIR" type:"path" group:"The run:"`
	AcceptLoss bool   `help:"With --resume: go on also when no client's folder has the newest model that the run recorded, from an older one." group:"The run:"`
	RunID      string `help:"Name of the run. Default: the configuration's." group:"The run:"`
	RunDir     string `help:"Folder to make the run's own folder in." default:"runs" type:"path" group:"The run:"`
	HeldOut    string `help:"Token file or folder to measure the held-out loss on. Default: heldout beside the data, if it is there." type:"path" group:"Evaluation:"`
	ServerPort uint16 `help:"TCP port of the server; 0: 20000, or a free one if somebody has that. Of a chain: also the next one." default:"0" group:"Processes:"`
	Backend    string `help:"Where the run is: on a tcp server, or on a chain of this machine, solana." enum:"tcp,solana" default:"tcp" group:"A run on a chain:"`
	SlotMs     int    `help:"Milliseconds of the chain's slots." default:"400" group:"A run on a chain:"`
	Validator  string `help:"A solana-test-validator to run as the chain, in place of psyche chain start." placeholder:"FILE" group:"A run on a chain:"`
	Client     string `help:"The psyche-client program. Default: the one beside this program." type:"path" group:"Processes:"`

	Threads        int `help:"Threads of each client; 0: an equal share of the cores." default:"0" group:"Computing:"`
	MicroBatchSize int `help:"Sequences that go through a client's model at once." default:"8" group:"Computing:"`

	KillAtStep         uint32  `help:"Kill one client in this round and start it again; 0: never." default:"0" group:"Faults:"`
	KillServerAtStep   uint32  `help:"Kill the server in this round and start it again; 0: never." default:"0" group:"Faults:"`
	RandomKillNum      int     `help:"Clients to kill at every interval; 0: none." default:"0" group:"Faults:"`
	RandomKillInterval float64 `help:"Seconds between random kills." default:"120" group:"Faults:"`
	AllowedToKill      []int   `help:"Numbers of the clients that may be killed, from 1. Default: all." placeholder:"1,2,…" group:"Faults:"`
	RestartDelay       float64 `help:"Seconds between a kill and the next start." default:"5" group:"Faults:"`
	Seed               uint64  `help:"Of the choice whom to kill." default:"1" group:"Faults:"`

	Cheat []string `help:"Let a client cheat, as 3=negated or 4=copy: its results are false (negated, copy, negated-copy, noise, half-batch, another-batch, old-batch), and the run has to find that out. The run has to audit, as that of configs/cheats does, and the program psyche-cheat has to be beside this one (make cheat). May be given more than once." placeholder:"N=ATTACK" group:"Faults:"`

	Timeout time.Duration `help:"Give up after this time." default:"2h" group:"The run:"`
	Tui     bool          `help:"Draw the progress when standard output is a terminal." default:"true" negatable:"" group:"Display and files:"`

	extraFlags `embed:""`
}

// Help is shown by --help below the command's summary.
func (c *testnetStart) Help() string {
	return `Starts a server and several clients as processes of their own, over loopback, shows
their progress and prints a summary, which is also kept as summary.json in the run's
folder, with logs, event logs, checkpoints and the loss curve. Ctrl-C, --timeout and
failures leave the same, of what there is, after the epoch was closed with its checkpoint;
Ctrl-C once more does not wait for that. --resume goes on from there: from the newest model
that the run recorded, with fresh optimizers, and says which that is. With --backend solana
there is a chain in place of the server: the program is deployed there, and the clients pay
from keys of their own. It is kept in the run's folder, where --resume finds it; one of
--validator is started again by hand, as by-hand.txt in the folder says.`
}

// check refuses numbers that would stand for something else.
func (c *testnetStart) check() error {
	switch {
	case c.ConfigPath == "" && c.Resume == "":
		return usagef("missing flags: --config-path, or --resume to go on with a run")
	case c.Resume != "" && (c.ConfigPath != "" || c.RunID != ""):
		return usagef("--resume goes on with the run as it is: leave --config-path and --run-id out")
	case c.AcceptLoss && c.Resume == "":
		return usagef("--accept-loss is for --resume: a run that begins has nothing to lose")
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

// cheats reads who is to cheat, and how.
func (c *testnetStart) cheats() (cheats []testnet.Cheat, err error) {
	for _, given := range c.Cheat {
		number, attack, found := strings.Cut(given, "=")
		client, err := strconv.Atoi(number)
		if !found || err != nil || attack == "" {
			return nil, usagef("--cheat %s: want the number of a client and what it does, as 3=negated", given)
		}
		cheats = append(cheats, testnet.Cheat{Client: client, Attack: attack})
	}
	return cheats, nil
}

// errInterrupted says that the user ended the command at the display, in which a terminal
// sends no signal.
var errInterrupted = errors.New("interrupted")

// maxSeconds bounds the times that are given in seconds: a year.
const maxSeconds = 365 * 24 * 3600

// Run executes the command.
func (c *testnetStart) Run(ctx context.Context, to console) error {
	if err := c.check(); err != nil {
		return err
	}
	extras, err := c.extras(to)
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
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program: %w", err)
	}
	client := c.Client
	if client == "" {
		client = filepath.Join(filepath.Dir(self), "psyche-client")
	}
	cheats, err := c.cheats()
	if err != nil {
		return err
	}
	options := testnet.Options{
		ConfigPath:   c.ConfigPath,
		Resume:       c.Resume,
		NumClients:   c.NumClients,
		RunDir:       c.RunDir,
		RunID:        c.RunID,
		ServerBinary: self,
		ClientBinary: client,
		Version:      buildinfo.Line("psyche"),
		ServerPort:   int(c.ServerPort),
		Threads:      c.Threads,
		MicroBatch:   c.MicroBatchSize,
		HeldOut:      c.HeldOut,
		Timeout:      c.Timeout,
		AcceptLoss:   c.AcceptLoss,
		Hurry:        hurry,
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

		Extras: extras,
		Display: c.display(to, func() {
			if ctx.Err() != nil {
				rush()
			}
			cancel(errInterrupted)
		}),
	}
	options.Begin = func() { signals.Hold(ctx) }
	signals.Last(ctx, options.Display.Close)
	summary, err := testnet.Run(ctx, options)
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

// display draws on a terminal and writes lines everywhere else.
func (c *testnetStart) display(to console, interrupt func()) testnet.Display {
	if c.Tui && isTerminal(to.out) && isTerminal(os.Stdin) {
		return tui.New(os.Stdin, to.out, interrupt)
	}
	return testnet.NewLines(to.out)
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
