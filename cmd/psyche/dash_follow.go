package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"github.com/psyche-go/psyche/base/filelock"
	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/chain/admin"
	"github.com/psyche-go/psyche/chain/archive"
	"github.com/psyche-go/psyche/chain/transaction"
	"github.com/psyche-go/psyche/face/dash"
	"github.com/psyche-go/psyche/face/dash/gather"
	"github.com/psyche-go/psyche/host/tcp"
	"github.com/psyche-go/psyche/record/invite"
)

// followServer copies the log of a run as it grows, and follows the copy.
func (c *dashboard) followServer(g *gather.Gatherer, text string, to console, logger *slog.Logger) error {
	at := strings.LastIndexByte(text, '@')
	if at <= 0 {
		return usagef("--follow %s: want RUN@HOST:PORT", text)
	}
	runID := text[:at]
	address, serverKey, _ := strings.Cut(text[at+1:], "#")
	if _, _, err := net.SplitHostPort(address); err != nil {
		return usagef("--follow %s: want RUN@HOST:PORT: %w", text, err)
	}
	key, err := identity.Generate(rand.Reader)
	if err != nil {
		return err
	}
	connect := connectFlags{serverFlags: serverFlags{ServerAddr: address, ServerKey: serverKey, KnownServers: c.KnownServers}}
	o, err := connect.options(runID, key, to.err)
	if err != nil {
		return err
	}
	path := filepath.Join(c.Dir, url.PathEscape(address+" "+runID)+".journal")
	file, err := filelock.Open(path, 0o644)
	if errors.Is(err, filelock.ErrHeld) {
		return fmt.Errorf("%s: another program is copying this log; choose a different --dir: %w", path, err)
	}
	if err != nil {
		return fmt.Errorf("copy of a log: %w", err)
	}
	g.Add(runID, gather.Found{
		Path: path, Keep: strings.TrimSuffix(path, ".journal") + ".history",
		Source: "on the server " + address, Join: dash.Join{Server: address},
	})
	g.Do(func(ctx context.Context) {
		defer func() { _ = file.Close() }()
		c.repeat(ctx, logger.With("run", runID, "server", address), func(ctx context.Context) error { return copyLog(ctx, o, file) })
	})
	return nil
}

// copyLog appends the missing part of a server's log to the file.
func copyLog(ctx context.Context, o tcp.Options, file *os.File) error {
	info, err := file.Stat()
	if err != nil {
		return err
	}
	if _, err := file.Seek(info.Size(), 0); err != nil {
		return err
	}
	return tcp.ReadLogFrom(ctx, o, uint64(info.Size()), file)
}

// followChain archives runs of a program, and follows the archives.
func (c *dashboard) followChain(g *gather.Gatherer, to console, logger *slog.Logger) error {
	chain, program, err := openToLook(&c.Flags, to)
	if err != nil {
		return err
	}
	known := map[transaction.PublicKey]bool{}
	g.Do(func(ctx context.Context) {
		defer chain.Close()
		c.repeat(ctx, logger.With("program", program), func(ctx context.Context) error {
			return c.findOnChain(ctx, g, chain, program, known, logger)
		})
	})
	return nil
}

// findOnChain starts to follow new runs.
func (c *dashboard) findOnChain(ctx context.Context, g *gather.Gatherer, chain *admin.Chain, program transaction.PublicKey, known map[transaction.PublicKey]bool, logger *slog.Logger) error {
	wanted := c.RunIDs
	if len(wanted) == 0 {
		wanted = []string{""}
	}
	genesis, err := chain.Genesis(ctx)
	if err != nil {
		return err
	}
	for _, runID := range wanted {
		runs, err := chain.Runs(ctx, program, runID)
		if err != nil {
			return err
		}
		for _, run := range runs {
			if known[run.Run] {
				continue
			}
			path := filepath.Join(c.Dir, run.Run.String()+".archive")
			a, err := archive.Open(path, archive.Header{Program: program, Run: run.Run, Genesis: genesis})
			if err != nil {
				return err
			}
			known[run.Run] = true
			join := dash.Join{Flags: []string{"--rpc URL", "--program-id " + program.String()}} // the command's own node URL may contain a secret
			link := invite.ChainLink{Program: identity.ID(program), RunID: run.Summary.RunID, Authority: identity.ID(run.Summary.Main), RPC: invite.Public(c.RPC)}
			if link.Check() == nil {
				join.Chain = &link
			}
			g.Add(run.Summary.RunID, gather.Found{
				Path: path, Chain: true, Source: "on a chain, account " + run.Run.String(), Join: join,
			})
			g.Do(func(ctx context.Context) {
				defer func() { _ = a.Close() }()
				c.repeat(ctx, logger.With("run", run.Summary.RunID, "account", run.Run), func(ctx context.Context) error {
					_, err := chain.FetchInto(ctx, a, "confirmed")
					return err
				})
			})
		}
	}
	return nil
}
