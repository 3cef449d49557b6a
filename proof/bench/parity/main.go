package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/psyche-go/psyche/base/signals"
	"github.com/psyche-go/psyche/proof/bench/rawlog"
)

type commands struct {
	Run   runCommand   `cmd:"" help:"Run one training and write its log."`
	Plan  planCommand  `cmd:"" help:"Run every training of a list that has no log."`
	Table tableCommand `cmd:"" help:"Print the comparison as Markdown tables."`
}

func main() {
	ctx, stop := signals.Context()
	defer stop()
	parsed := kong.Parse(&commands{}, kong.Name("parity"), kong.Description("DisTrO against AdamW at equal tokens."),
		kong.BindTo(ctx, (*context.Context)(nil)))
	parsed.FatalIfErrorf(parsed.Run())
}

type planCommand struct {
	File string `arg:"" type:"existingfile" help:"File with one run per line: its name and flags. # starts a comment."`
	Logs string `default:"proof/bench/parity/logs" type:"path" help:"Folder of the logs."`
}

// Run trains all missing runs, in the order of the list. It reads the list again after each run, so
// lines may be added meanwhile. Several processes may share a list.
func (c *planCommand) Run(ctx context.Context) error {
	busy := map[string]bool{}
	for {
		next, err := c.next(busy)
		if err != nil || next == nil {
			return err
		}
		err = next.Run(ctx)
		if errors.Is(err, errBusy) {
			busy[next.Name] = true
		} else if err != nil {
			return fmt.Errorf("%s: %w", next.Name, err)
		}
	}
}

// next returns the first run of the list without a log that no process is training, or nil.
func (c *planCommand) next(busy map[string]bool) (*runCommand, error) {
	file, err := os.Open(c.File)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	lines := bufio.NewScanner(file)
	for number := 1; lines.Scan(); number++ {
		text, _, _ := strings.Cut(lines.Text(), "#")
		fields := strings.Fields(text)
		if len(fields) == 0 {
			continue
		}
		run := &runCommand{}
		parser, err := kong.New(run, kong.Name(c.File))
		if err != nil {
			return nil, err
		}
		if _, err := parser.Parse(append(fields, "--logs", c.Logs)); err != nil {
			return nil, fmt.Errorf("%s:%d: %w", c.File, number, err)
		}
		if _, err := os.Stat(filepath.Join(c.Logs, run.Name+rawlog.Suffix)); errors.Is(err, os.ErrNotExist) && !busy[run.Name] {
			return run, nil
		}
	}
	return nil, lines.Err()
}
