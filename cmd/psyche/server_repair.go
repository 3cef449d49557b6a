package main

import (
	"errors"
	"fmt"

	"github.com/psyche-go/psyche/host/server"
	"github.com/psyche-go/psyche/record/journal"
)

type serverRepair struct {
	SaveStateDir string `required:"" placeholder:"DIR" help:"State folder of the server."`
	RunID        string `name:"run-id" required:"" placeholder:"ID" help:"Name of the run that has the journal to repair."`
	Yes          bool   `help:"Truncate the damaged end. By default, the command only reports the damage."`
	LoseRecords  bool   `help:"Truncate even if records follow the damage. These records may have been acknowledged, and are lost."`
}

// Help returns the text below the command's summary in --help.
func (c *serverRepair) Help() string {
	return `After a kill or a power failure, a server automatically truncates an incomplete record or zeros at the
end of a journal. It refuses a journal with other damage. This command reports the damage and, with
--yes, truncates the journal after its last complete record. It saves the removed bytes next to the
journal. The server must not be running.`
}

// Run inspects a journal, and repairs it if permitted.
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
	if _, err := fmt.Fprintf(to.out, "%s: %v\n%d records up to offset %d are complete, the %d bytes after them are damaged\n",
		path, found.Reason, found.Entries, found.Offset, found.Size); err != nil {
		return err
	}
	if found.Following > 0 && !c.LoseRecords {
		return fmt.Errorf("a record after the damage begins at offset %d, so this is not an unfinished write: restore the journal from a backup, or discard the records after the damage with --lose-records: %w",
			found.Following, journal.ErrDamaged)
	}
	if !c.Yes {
		_, err = fmt.Fprintln(to.out, "with --yes, these bytes are removed")
		return err
	}
	kept, err := server.RepairJournal(c.SaveStateDir, c.RunID, found)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(to.out, "removed these bytes and saved them in %s\n", kept)
	return err
}
