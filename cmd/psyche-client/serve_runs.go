package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/pelletier/go-toml/v2"

	"github.com/psyche-go/psyche/base/filestart"
	"github.com/psyche-go/psyche/base/identity"
)

const (
	maxServed     = 64       // runs of one list
	maxServedFile = 64 << 10 // bytes of a list
)

// servedRun is a run that this machine may join.
type servedRun struct {
	link  string
	flags []string     // of psyche-client join
	joins trainCommand // settings from link and flags
	key   *identity.ID // of this machine in the run; nil: a new key at each start
	given string       // source of the run, for errors

	installed *installed // program that takes part; nil: of this process
}

// servedFile is a file with runs.
type servedFile struct {
	Flags []string `toml:"flags"`
	Run   []struct {
		Link  string   `toml:"link"`
		Flags []string `toml:"flags"`
	} `toml:"run"`
}

// read returns the runs from the command line, or else from the file.
func (c *serveCommand) read(ctx context.Context, t terminal) ([]*servedRun, error) {
	if c.Patience <= 0 {
		return nil, fmt.Errorf("--patience is %v: want more than 0", c.Patience)
	}
	links, flags := slices.Concat(c.Links.list, c.Flags.list), []string(nil)
	for i, word := range links {
		if strings.HasPrefix(word, "-") { // it was after --
			links, flags = links[:i], links[i:]
			break
		}
	}
	var runs []*servedRun
	for i, link := range links {
		runs = append(runs, &servedRun{link: link, flags: flags, given: fmt.Sprintf("link %d", i+1)})
	}
	switch {
	case len(runs) > 0 && c.Runs != "":
		return nil, errors.New("--runs and links cannot be combined: give one of them")
	case len(runs) == 0:
		var err error
		if runs, err = c.readFile(flags); err != nil {
			return nil, err
		}
	}
	if len(runs) > maxServed {
		return nil, fmt.Errorf("%d runs are given, want at most %d", len(runs), maxServed)
	}
	first := make(map[string]string)
	for _, r := range runs {
		if err := r.prepare(ctx, t); err != nil {
			return nil, fmt.Errorf("%s: %w", r.given, err)
		}
		if before, twice := first[r.link]; twice {
			return nil, fmt.Errorf("%s names the same run as %s", r.given, before)
		}
		first[r.link] = r.given
	}
	return runs, nil
}

// readFile reads the list of runs. Flags of the command line are appended to the flags in the file.
func (c *serveCommand) readFile(flags []string) ([]*servedRun, error) {
	path := c.Runs
	if path == "" {
		dir, err := os.UserConfigDir()
		if err != nil {
			return nil, fmt.Errorf("find the list of runs: %w; name it with --runs, or give links", err)
		}
		path = filepath.Join(dir, "psyche", "runs.toml")
	}
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read the list of runs: %w; name it with --runs, or give links (psyche-client serve --help shows such a file)", err)
	}
	defer func() { _ = file.Close() }()
	text, err := io.ReadAll(io.LimitReader(file, maxServedFile+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("read the list of runs: %w", err)
	case len(text) > maxServedFile:
		return nil, fmt.Errorf("%s: file exceeds %d bytes; want a list of runs", path, maxServedFile)
	}
	list, err := parseServed(path, text)
	if err != nil {
		return nil, err
	}
	var runs []*servedRun
	for i, run := range list.Run {
		all := append(append(append([]string(nil), list.Flags...), run.Flags...), flags...)
		runs = append(runs, &servedRun{link: run.Link, flags: all, given: fmt.Sprintf("%s: run %d", path, i+1)})
	}
	return runs, nil
}

// parseServed parses the text of a list.
func parseServed(path string, text []byte) (list servedFile, err error) {
	if err := filestart.Check(text); err != nil && !errors.Is(err, filestart.ErrMark) {
		return list, fmt.Errorf("%s: %w", path, err)
	}
	text = bytes.TrimPrefix(text, []byte("\ufeff")) // some editors add a byte order mark
	err = toml.NewDecoder(bytes.NewReader(text)).DisallowUnknownFields().Decode(&list)
	if unknown, ok := errors.AsType[*toml.StrictMissingError](err); ok {
		line, column := unknown.Errors[0].Position()
		return list, fmt.Errorf("%s:%d:%d: unknown key %q: want flags, and link and flags of each [[run]]", path, line, column, strings.Join(unknown.Errors[0].Key(), "."))
	}
	if wrong, ok := errors.AsType[*toml.DecodeError](err); ok {
		line, column := wrong.Position()
		if key := strings.Join(wrong.Key(), "."); key != "" {
			return list, fmt.Errorf("%s:%d:%d: %s has the wrong type: want link = \"LINK\" and flags = [\"--FLAG\"]", path, line, column, key)
		}
		return list, fmt.Errorf("%s:%d:%d: %s", path, line, column, strings.TrimPrefix(wrong.Error(), "toml: "))
	}
	if err != nil {
		return list, fmt.Errorf("%s: %w", path, err)
	}
	if len(list.Run) == 0 {
		return list, fmt.Errorf("%s: no run is listed: want at least one [[run]] with a link", path)
	}
	for i, run := range list.Run {
		if run.Link == "" {
			return list, fmt.Errorf("%s: run %d has no link", path, i+1)
		}
	}
	return list, nil
}

// prepare verifies that a client would accept its command line, and determines its run and key.
func (r *servedRun) prepare(ctx context.Context, t terminal) error {
	all := &commands{}
	parser, err := newParser(ctx, all, t) // for --help
	if err != nil {
		return err
	}
	if _, err := parser.Parse(append([]string{"join", r.link}, r.flags...)); err != nil {
		return fmt.Errorf("%w (see psyche-client join --help)", err)
	}
	if r.joins, _, err = all.Join.train(); err != nil {
		return err
	}
	if r.joins.Logs.drawn() {
		return fmt.Errorf("--logs %s needs a terminal, which clients of psyche-client serve do not have: give console or json", r.joins.Logs)
	}
	return r.joins.checkFlags(ctx)
}

// identify finds this machine's key in the run, and creates it if necessary.
func (r *servedRun) identify() error {
	if r.joins.IdentitySecretKeyPath == "" && !r.joins.KeepIdentity {
		if _, found, err := r.joins.keyFromEnvironment(); err != nil || !found {
			return err
		}
	}
	key, err := r.joins.key(slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	id := key.ID()
	r.key = &id
	return nil
}
