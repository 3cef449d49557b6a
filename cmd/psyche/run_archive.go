package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/psyche-go/psyche/chain/admin"
	"github.com/psyche-go/psyche/chain/archive"
	"github.com/psyche-go/psyche/chain/event"
	"github.com/psyche-go/psyche/chain/transaction"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/host/core"
	"github.com/psyche-go/psyche/host/server/status"
)

type runArchive struct {
	RunID      string        `name:"run-id" required:"" env:"RUN_ID" placeholder:"ID" help:"Name of the run."`
	Output     string        `required:"" type:"path" placeholder:"FILE" help:"Output file. An existing archive of the same run is extended."`
	HTML       string        `name:"html" type:"path" placeholder:"FILE" help:"Also write an HTML page when the archive is complete. The page contains the archive; it verifies the archive and shows the run in any browser, without internet access. An existing file is never overwritten."`
	Once       bool          `help:"Exit when the file contains all transactions on the chain, instead of following the run until it is finished."`
	Every      time.Duration `default:"15s" help:"Polling interval (${default})."`
	Commitment string        `enum:"confirmed,finalized" default:"finalized" help:"Minimum commitment level of the archived transactions (${default})."`
	hostFlags  `embed:""`
}

// Help returns the text below the command's summary in --help.
func (c *runArchive) Help() string {
	return `Verifies and keeps every transaction of a run on a chain, so that psyche run replay can replay them.
At the end, the command compares the hash chain over all events with the run's account: the file is
complete if they match. Nodes delete old transactions, so start the archive together with the run, or
use a node that keeps the whole history.`
}

// errAccount means that an archive's head differs from the head in the run's account.
var errAccount = fmt.Errorf("%w: hash chain does not match the run's account", archive.ErrArchive)

// Run archives the run.
func (c *runArchive) Run(ctx context.Context, to console) (err error) {
	if isChain, err := c.onChain(); err != nil || !isChain {
		return firstOf(err, usagef("the server has the log of this run; use psyche run export"))
	}
	if c.Every <= 0 {
		return usagef("--every is %v: want more than 0", c.Every)
	}
	if err := mayWrite(c.HTML); err != nil {
		return err
	}
	chain, program, err := openToLook(&c.Flags, to)
	if err != nil {
		return err
	}
	defer chain.Close()
	a, err := c.begin(ctx, chain, program)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, a.Close()) }()
	for {
		added, err := chain.FetchInto(ctx, a, admin.Commitment(c.Commitment))
		if err != nil && ctx.Err() == nil && (errors.Is(err, archive.ErrArchive) || c.Once) {
			return err
		}
		if err != nil {
			_, _ = fmt.Fprintf(to.err, "psyche: %v; retrying\n", err)
		}
		if added > 0 && !c.Once {
			s := a.Summary()
			_, _ = fmt.Fprintf(to.err, "psyche: %d transactions, event %d, %s\n", s.Transactions, s.Sequence, a.State().RunState)
		}
		if err == nil && (c.Once || a.State().RunState == coordinator.Finished) {
			return c.compare(ctx, to, chain, a)
		}
		select {
		case <-time.After(c.Every):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// begin opens the archive of the run.
func (c *runArchive) begin(ctx context.Context, chain *admin.Chain, program transaction.PublicKey) (*archive.Archive, error) {
	ctx, cancel := c.bound(ctx)
	defer cancel()
	var authority transaction.PublicKey
	if c.Authority != "" {
		var err error
		if authority, err = transaction.ParsePublicKey(c.Authority); err != nil {
			return nil, usagef("--authority: %w", err)
		}
	}
	run, err := chain.Find(ctx, program, c.RunID, authority)
	if err != nil {
		return nil, err
	}
	genesis, err := chain.Genesis(ctx)
	if err != nil {
		return nil, err
	}
	return archive.Open(c.Output, archive.Header{Program: program, Run: run, Genesis: genesis})
}

// compare compares the heads of the account and the archive.
func (c *runArchive) compare(ctx context.Context, to console, chain *admin.Chain, a *archive.Archive) error {
	s := a.Summary()
	account, err := chain.Summary(ctx, s.Run, admin.Commitment(c.Commitment))
	if err != nil {
		return err
	}
	if account.Sequence == s.Sequence && account.Head != s.Head || account.Sequence < s.Sequence {
		return fmt.Errorf("%s: event %d: %w: %x, but the account is at event %d with %x", c.Output, s.Sequence, errAccount, s.Head, account.Sequence, account.Head)
	}
	verdict := "its hash chain matches the account"
	if account.Sequence > s.Sequence {
		verdict = fmt.Sprintf("the account is already at event %d", account.Sequence)
	}
	if _, err = fmt.Fprintf(to.out, "%s: %s of run %s, %s, verified; %s, %x\n", c.Output, count(uint64(s.Transactions), "transaction"), c.RunID, count(s.Sequence, "event"), verdict, s.Head); err != nil || c.HTML == "" {
		return err
	}
	return savePage(c.HTML, c.Output, "archived from a chain, account "+s.Run.String(), to.err)
}

// replayArchive verifies the archive of a run on a chain.
func (c *runReplay) replayArchive(to console) error {
	began := time.Now()
	from, done, err := metered(c.File, filepath.Base(c.File), c.meter(to))
	if err != nil {
		return err
	}
	defer done()
	names := core.Names{}
	state, summary, err := archive.ReplayFrom(c.File, from, func(s archive.Step, state *coordinator.State) error {
		names.Note(coordinator.ClientID(s.Actor), s.Action(), state)
		if !c.States {
			return nil
		}
		_, err := fmt.Fprintf(to.out, "%d %s in slot %d by %s %x\n", s.Event.Sequence, eventName(s.Event.Instruction), s.Event.Slot, s.Signer, state.Hash())
		return err
	})
	if err != nil {
		return err
	}
	if summary.Torn > 0 {
		_, _ = fmt.Fprintf(to.err, "psyche: ignored an unfinished write, the last %d bytes\n", summary.Torn)
	}
	if c.HTML != "" {
		if err := savePage(c.HTML, c.File, filepath.Base(c.File), c.meter(to)); err != nil {
			return err
		}
	}
	run := status.Of(&state, [32]byte{})
	run.CallAll(names)
	if c.JSON {
		return printJSON(to.out, run)
	}
	if _, err := fmt.Fprintf(to.out, "%s: %d transactions and %d events verified in %s, state %s\naccount         %s\nprogram         %s\nchain           %s\nhead            %x\n",
		c.File, summary.Transactions, summary.Sequence, time.Since(began).Round(time.Millisecond), run.StateHash, summary.Run, summary.Program, summary.Genesis, summary.Head); err != nil {
		return err
	}
	return run.Print(to.out, time.Now())
}

func eventName(instruction uint64) string {
	switch instruction {
	case event.Genesis:
		return "genesis"
	case event.Act:
		return "action"
	default:
		return "tick"
	}
}
