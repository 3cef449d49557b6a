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
	RunID      string        `name:"run-id" required:"" env:"RUN_ID" placeholder:"ID" help:"The run."`
	Output     string        `required:"" type:"path" placeholder:"FILE" help:"File to write. One of the same run is gone on with."`
	HTML       string        `name:"html" type:"path" placeholder:"FILE" help:"Write a page, too, when the file has everything: one that any browser opens, without internet, that verifies the archive which is in it and shows the run. A file that is there is never overwritten."`
	Once       bool          `help:"End when the file has all that the chain has, in place of following the run until it is finished."`
	Every      time.Duration `default:"15s" help:"How often to look for what is new (${default})."`
	Commitment string        `enum:"confirmed,finalized" default:"finalized" help:"How sure the chain has to be of what is kept (${default})."`
	hostFlags  `embed:""`
}

// Help is shown by --help below the command's summary.
func (c *runArchive) Help() string {
	return `Keeps every transaction of a run on a chain, verified: psyche run replay does all of them
again. At the end the chain of hashes over all events is compared with the one that the run's
account has: the file is complete when both are the same. Nodes forget what is old; begin with
the run, or name a node that keeps everything.`
}

// errAccount says that an archive does not lead to what the account has.
var errAccount = fmt.Errorf("%w: its chain of hashes is not the one that the run's account has", archive.ErrArchive)

// Run archives the run.
func (c *runArchive) Run(ctx context.Context, to console) (err error) {
	if isChain, err := c.onChain(); err != nil || !isChain {
		return firstOf(err, usagef("a run on a server has a log there: psyche run export"))
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
			_, _ = fmt.Fprintf(to.err, "psyche: %v; trying again\n", err)
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

// compare looks whether the account has the same head as the archive.
func (c *runArchive) compare(ctx context.Context, to console, chain *admin.Chain, a *archive.Archive) error {
	s := a.Summary()
	account, err := chain.Summary(ctx, s.Run, admin.Commitment(c.Commitment))
	if err != nil {
		return err
	}
	if account.Sequence == s.Sequence && account.Head != s.Head || account.Sequence < s.Sequence {
		return fmt.Errorf("%s: event %d: %w: %x, the account is at event %d with %x", c.Output, s.Sequence, errAccount, s.Head, account.Sequence, account.Head)
	}
	verdict := "its chain of hashes is the account's"
	if account.Sequence > s.Sequence {
		verdict = fmt.Sprintf("the account is at event %d already", account.Sequence)
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
		_, _ = fmt.Fprintf(to.err, "psyche: the last %d bytes are an unfinished write and were left out\n", summary.Torn)
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
