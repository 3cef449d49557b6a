package main

import (
	"fmt"
	"io"
	"path/filepath"
	"time"

	"github.com/psyche-go/psyche/chain/archive"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/host/core"
	"github.com/psyche-go/psyche/host/server"
	"github.com/psyche-go/psyche/host/server/status"
	"github.com/psyche-go/psyche/record/follow"
	"github.com/psyche-go/psyche/record/ledger"
)

type runReplay struct {
	File   string `arg:"" name:"file" type:"path" help:"Run log: a file from psyche run export or psyche run archive, or the journal in a server's folder."`
	States bool   `help:"Print a line for every record: its number, its kind, and the SHA-256 of the state after it."`
	JSON   bool   `name:"json" help:"Print the final state as JSON."`
	HTML   string `name:"html" type:"path" placeholder:"FILE" help:"Also write an HTML page. The page contains the log; it verifies the log and shows the run in any browser, without internet access. An existing file is never overwritten."`
}

// Help returns the text below the command's summary in --help.
func (c *runReplay) Help() string {
	return `Verifies the hash chain and every signature, and replays every record. If a record does not verify,
the command names the first such record and its offset in the file, and exits with code 6.`
}

// meter returns the output for progress, which is disabled if states are printed.
func (c *runReplay) meter(to console) io.Writer {
	if c.States {
		return io.Discard
	}
	return to.err
}

// Run verifies a log.
func (c *runReplay) Run(to console) error {
	if err := mayWrite(c.HTML); err != nil {
		return err
	}
	if archive.Is(c.File) {
		return c.replayArchive(to)
	}
	began, records, names := time.Now(), 0, core.Names{}
	var account sequences
	visit := func(r follow.Record, s *coordinator.State) error {
		records++
		account.see(s)
		if r.Kind == follow.KindAction {
			names.Note(coordinator.ClientID(r.Action.From), r.Action.Action, s)
		}
		if !c.States {
			return nil
		}
		_, err := fmt.Fprintf(to.out, "%d %s %x\n", records-1, r, s.Hash())
		return err
	}
	from, done, err := metered(c.File, filepath.Base(c.File), c.meter(to))
	if err != nil {
		return err
	}
	log, summary, err := server.ReplayFrom(c.File, from, visit)
	done()
	if err != nil {
		return err
	}
	if summary.Torn > 0 {
		if _, err := fmt.Fprintf(to.err, "psyche: ignored an unfinished write, the last %d bytes\n", summary.Torn); err != nil {
			return err
		}
	}
	if c.HTML != "" {
		if err := savePage(c.HTML, c.File, filepath.Base(c.File), c.meter(to)); err != nil {
			return err
		}
	}
	run := status.Of(&log.State, log.Run())
	run.CallAll(names)
	if c.JSON {
		return printJSON(to.out, run)
	}
	if _, err := fmt.Fprintf(to.out, "%s: %d records verified in %s, state %s\n", c.File, summary.Entries, time.Since(began).Round(time.Millisecond), run.StateHash); err != nil {
		return err
	}
	if err := run.Print(to.out, time.Now()); err != nil || !run.Config.RetryLost {
		return err
	}
	return account.print(to.out)
}

// sequences accounts for the sequences of a run.
type sequences struct {
	ledger ledger.Ledger
	err    error // first error of the ledger
}

func (q *sequences) see(s *coordinator.State) {
	if q.err == nil {
		q.err = q.ledger.See(s)
	}
}

// print prints the number of sequences of each fate.
func (q *sequences) print(to io.Writer) error {
	if q.err != nil {
		return q.err
	}
	_, err := fmt.Fprintf(to, "sequences       %v\n", q.ledger.Totals())
	return err
}
