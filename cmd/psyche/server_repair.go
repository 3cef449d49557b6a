package main

import (
	"errors"
	"fmt"

	"github.com/psyche-go/psyche/host/server"
	"github.com/psyche-go/psyche/record/journal"
)

type serverRepair struct {
	SaveStateDir string `required:"" placeholder:"DIR" help:"The server's folder."`
	RunID        string `name:"run-id" required:"" placeholder:"ID" help:"The run whose journal is to be repaired."`
	Yes          bool   `help:"Cut off what is damaged. Without it the command only says what it would do."`
	LoseRecords  bool   `help:"Cut also when records are recognised behind the damage, which may have been acknowledged: they are lost."`
}

// Help is shown by --help below the command's summary.
func (c *serverRepair) Help() string {
	return `A server cuts off by itself what a kill or a loss of power leaves at the end of a journal:
a record that is not complete, or zeros. Other damage it refuses. This command says what is
damaged, and with --yes cuts the journal behind its last whole record. What it cuts off is kept
beside the journal. The server must not be running.`
}

// Run inspects a journal, and repairs it if it may.
func (c *serverRepair) Run(to console) error {
	path := server.JournalPath(c.SaveStateDir, c.RunID)
	found, err := server.InspectJournal(c.SaveStateDir, c.RunID)
	if errors.Is(err, journal.ErrSound) {
		_, err = fmt.Fprintf(to.out, "%s needs no repair\n", path)
		return err
	}
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintf(to.out, "%s: %v\n%d records up to offset %d are whole, the %d bytes behind them are not\n",
		path, found.Reason, found.Entries, found.Offset, found.Size); err != nil {
		return err
	}
	if found.Following > 0 && !c.LoseRecords {
		return fmt.Errorf("behind the damage a record begins at offset %d, so this is no unfinished write: restore the journal from a copy, or lose what follows with --lose-records: %w",
			found.Following, journal.ErrDamaged)
	}
	if !c.Yes {
		_, err = fmt.Fprintln(to.out, "with --yes they are cut off")
		return err
	}
	kept, err := server.RepairJournal(c.SaveStateDir, c.RunID, found)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(to.out, "cut them off; they are kept in %s\n", kept)
	return err
}
