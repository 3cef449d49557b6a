package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/base/meter"
	"github.com/psyche-go/psyche/host/tcp"
)

type runExport struct {
	RunID        string `name:"run-id" required:"" env:"RUN_ID" placeholder:"ID" help:"Name of the run."`
	Output       string `required:"" type:"path" placeholder:"FILE" help:"Output file. An existing file is never overwritten."`
	HTML         bool   `name:"html" help:"Write an HTML page instead of the log. The page contains the log; it verifies the log and shows the run in any browser, without internet access."`
	connectFlags `embed:""`
}

// Help returns the text below the command's summary in --help.
func (c *runExport) Help() string {
	return `The log contains every change of the run, with the signature of the key that made it. The log is
public; psyche run replay verifies it. --timeout bounds the whole transfer.`
}

// Run copies the log of a run from its server and verifies it.
func (c *runExport) Run(ctx context.Context, to console) error {
	if _, err := os.Lstat(c.Output); err == nil {
		return fmt.Errorf("%s already exists and is not overwritten: choose another --output", c.Output)
	}
	key, err := identity.Generate(rand.Reader)
	if err != nil {
		return err
	}
	o, err := c.options(c.RunID, key, to.err)
	if err != nil {
		return err
	}
	ctx, cancel := c.within(ctx, serverTimeout)
	defer cancel()
	partial, err := os.CreateTemp(filepath.Dir(c.Output), ".export-*")
	if err != nil {
		return fmt.Errorf("export: %w", err)
	}
	defer func() { _ = os.Remove(partial.Name()) }() // fails after the rename
	m := meter.New(to.err, "psyche: downloading the log of "+c.RunID)
	err = tcp.ReadLog(ctx, o, partial, func(done, all uint64) { m.At(int64(done), int64(all)) })
	m.Done()
	if err = errors.Join(err, partial.Sync(), partial.Chmod(0o644), partial.Close()); err != nil {
		return err
	}
	log, summary, err := replayMetered(partial.Name(), c.RunID, to.err)
	if err != nil {
		return fmt.Errorf("the server sent a log that does not verify: %w", err)
	}
	// A link, unlike a rename, fails if the file was created in the meantime.
	write := func() error { return os.Link(partial.Name(), c.Output) }
	if c.HTML {
		write = func() error { return savePage(c.Output, partial.Name(), "exported from "+c.ServerAddr, to.err) }
	}
	if err := write(); err != nil {
		return fmt.Errorf("export: %w", err)
	}
	_, err = fmt.Fprintf(to.out, "%s: %d records of run %s (%x), %d bytes, verified; state %x\n", c.Output, summary.Entries, log.State.RunID, log.Run(), summary.Size, log.State.Hash())
	return err
}
