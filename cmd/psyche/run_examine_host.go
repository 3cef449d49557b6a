package main

import (
	"fmt"
	"io"
	"os"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/base/plain"
	"github.com/psyche-go/psyche/record/follow"
)

// examineHost verifies a client's evidence against the host of its run. Only two heads that
// contradict each other prove the host's fault to readers without the log.
func (c *runExamine) examineHost(w io.Writer) error {
	if c.Entry != nil || c.Exhibit != "" {
		return usagef("--entry and --exhibit need a log; %s is evidence against a server", c.File)
	}
	content, err := os.ReadFile(c.File)
	if err != nil {
		return fmt.Errorf("read an evidence file: %w", err)
	}
	fault, err := follow.ReadHostFault(content)
	if err != nil {
		return fmt.Errorf("%s: %w", c.File, err)
	}
	genesis, err := follow.OpenGenesis(fault.Evidence.Genesis)
	if err != nil {
		return fmt.Errorf("%s: %w: %w", c.File, follow.ErrEvidence, err)
	}
	first, err := genesis.First()
	if err != nil {
		return fmt.Errorf("%s: %w: %w", c.File, follow.ErrEvidence, err)
	}
	if _, err := fmt.Fprintf(w, "run             %q (%x)\nserver          %s\nclient's reason %s\n",
		first.RunID, genesis.Run(), identity.ID(first.Host), plain.Text(fault.Reason)); err != nil {
		return err
	}
	a, b, found := fault.Evidence.Contradiction()
	if !found {
		return fmt.Errorf("%s: %w that its file alone proves: no two signed heads contradict each other; compare its %d records after record %d with the run's log",
			c.File, follow.ErrEvidence, len(fault.Evidence.Records), fault.Evidence.Index)
	}
	_, err = fmt.Fprintf(w, "proven          the server signed two logs:\n  %d records, hash %x\n  %d records, hash %x\n", a.Index, a.Hash, b.Index, b.Hash)
	return err
}
