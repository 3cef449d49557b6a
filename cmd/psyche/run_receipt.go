package main

import (
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"time"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/record/receipt"
	"github.com/psyche-go/psyche/record/wire"
)

type runReceipt struct {
	File   string `arg:"" name:"file" type:"path" help:"Run log: a file from psyche run export or psyche run archive, or the journal in a server's folder."`
	Member string `placeholder:"MEMBER" help:"The member: its key in base58, which psyche-client prints as its id; the beginning of the key; or its display name."`
	Output string `placeholder:"FILE" type:"path" help:"Output file for the receipt. An existing file is never overwritten."`
	Badge  string `placeholder:"FILE.svg" type:"path" help:"Output file for a picture of the receipt in SVG, which you can share: display name, counted rounds, share, run, and hash of the log. An existing file is never overwritten."`
	Verify string `placeholder:"FILE" type:"path" help:"Verify this receipt against the log instead of writing a receipt."`
}

// Help returns the text below the command's summary in --help.
func (c *runReceipt) Help() string {
	return `Reports a member's contribution to a run: its counted rounds and tokens, its share of the total, and
the part that is in the run's newest recorded model. The numbers come from the log, which the command
verifies. The receipt contains the hash of the last entry that it covers. With the log, or a longer copy
of the log, every reader can verify the receipt without trust in the member or the server. If a receipt
does not verify, the exit code is 6. The log of a run on a chain is its archive, which can be created from
the chain's nodes.`
}

// Run writes or verifies a receipt.
func (c *runReceipt) Run(to console) error {
	switch {
	case (c.Member == "") == (c.Verify == ""):
		return usagef("give either --member=MEMBER, to write a receipt, or --verify=FILE")
	case c.Verify != "" && c.Output != "":
		return usagef("--output and --verify cannot be combined: omit one of them")
	case c.Verify != "":
		return c.verify(to)
	}
	member, err := c.member(to.err)
	if err != nil {
		return err
	}
	r, _, name, log, err := c.count(member, 0, to.err)
	if err != nil {
		return err
	}
	if r.Rounds == 0 && r.Witnessed == 0 {
		return fmt.Errorf("the log of run %[2]s has no counted result and no witness proof of %[1]s: check the member's key", member, r.RunID)
	}
	if c.Output != "" {
		if err := writeNew(c.Output, r.Encode()); err != nil {
			return err
		}
		_, _ = fmt.Fprintf(to.out, "%s: written; to verify it: psyche run receipt LOG --verify %s\n", c.Output, c.Output)
	}
	if err := c.draw(r, name, &log, to); err != nil {
		return err
	}
	return printReceipt(to.out, r, name, &log, c.File)
}

// draw writes the badge of a receipt that the log confirms, if --badge is set.
func (c *runReceipt) draw(r receipt.Receipt, name string, log *logEnd, to console) error {
	if c.Badge == "" {
		return nil
	}
	if err := writeNew(c.Badge, r.Badge(name, log.first()+r.Entries-1)); err != nil {
		return err
	}
	_, err := fmt.Fprintf(to.out, "%s: written; its numbers are from the log, which was verified\n", c.Badge)
	return err
}

// count reads the log. It returns the member's receipt at the end of the log, and the receipt at the
// entry with number until. If until is 0, the second receipt is zero. name is the member's newest display name.
func (c *runReceipt) count(member identity.ID, until uint64, to io.Writer) (end, at receipt.Receipt, name string, log logEnd, err error) {
	book := receipt.NewBook(member)
	log, err = readLog(c.File, to, func(e logEntry, s *coordinator.State) {
		if join, is := e.Action.(coordinator.Join); is && e.Actor == coordinator.ClientID(member) {
			name = wire.NameOf(join)
		}
		if book.See(e.Entry, s); book.Receipt().Entries == until {
			at = book.Receipt()
		}
	})
	return book.Receipt(), at, name, log, err
}

func (c *runReceipt) verify(to console) error {
	r, err := readReceipt(c.Verify)
	if err != nil {
		return err
	}
	member, err := identity.ParseID(r.Member)
	if err != nil {
		return fmt.Errorf("%s: %w: member: %w", c.Verify, receipt.ErrReceipt, err)
	}
	_, at, name, log, err := c.count(member, r.Entries, to.err)
	if err != nil {
		return err
	}
	if at.Entries == 0 {
		at.Run, at.Entries = hex.EncodeToString(log.run[:]), log.entries
	}
	if err := r.Verify(at); err != nil {
		return fmt.Errorf("%s: %w", c.Verify, err)
	}
	if _, err := fmt.Fprintf(to.out, "%s: valid, up to entry %d of %d in %s; every signature in the log was verified\n", c.Verify, log.first()+r.Entries-1, log.entries, c.File); err != nil {
		return err
	}
	if err := c.draw(r, name, &log, to); err != nil {
		return err
	}
	return printReceipt(to.out, r, name, &log, c.File)
}

func readReceipt(path string) (r receipt.Receipt, err error) {
	file, err := os.Open(path)
	if err != nil {
		return r, fmt.Errorf("read a receipt: %w", err)
	}
	defer func() { _ = file.Close() }()
	b, err := io.ReadAll(io.LimitReader(file, receipt.MaxSize+1))
	if err != nil {
		return r, fmt.Errorf("read a receipt: %w", err)
	}
	if r, err = receipt.Decode(b); err != nil {
		return r, fmt.Errorf("%s: %w", path, err)
	}
	return r, nil
}

// writeNew writes a file that must not exist.
func writeNew(path string, content []byte) error {
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("%s already exists and is not overwritten: choose another file", path)
	}
	if err != nil {
		return fmt.Errorf("write a receipt: %w", err)
	}
	_, err = file.Write(content)
	return errors.Join(err, file.Close())
}

// printReceipt writes a receipt for people, with the display name next to the key.
func printReceipt(w io.Writer, r receipt.Receipt, name string, log *logEnd, path string) error {
	member := r.Member
	if name != "" {
		member += fmt.Sprintf(", display name %q", name)
	}
	model := "the run has recorded no model yet"
	if r.ModelStep > 0 {
		model = fmt.Sprintf("%d rounds, %d tokens in the model of step %d, %s", r.InModel, r.TokensInModel, r.ModelStep, r.Model)
	}
	_, err := fmt.Fprintf(w, `run             %q (%s)
member          %s
until           entry %d, %s
counted         %d rounds, steps %d to %d
tokens          %d of %d, %.1f %%
witness proofs  %d
votes           %d
in the model    %s
%s`, r.RunID, r.Run, member, log.first()+r.Entries-1, time.UnixMilli(int64(min(r.Time, 1<<53))).UTC().Format(time.RFC3339), r.Rounds, r.First, r.Last,
		r.Tokens, r.AllTokens, 100*r.Share(), r.Witnessed, r.Voted, model, log.proof(path))
	return err
}
