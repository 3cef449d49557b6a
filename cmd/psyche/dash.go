package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/psyche-go/psyche/base/signals"
	"github.com/psyche-go/psyche/cmd/internal/onchain"
	"github.com/psyche-go/psyche/face/dash"
	"github.com/psyche-go/psyche/face/dash/gather"
	"github.com/psyche-go/psyche/host/server"
)

type dashboard struct {
	Paths         []string      `arg:"" optional:"" name:"path" type:"path" help:"Logs of runs, or folders that have some: --save-state-dir of a server, --run-dir of a testnet, what psyche run export or archive wrote."`
	Follow        []string      `name:"follow" sep:"none" placeholder:"RUN@HOST:PORT" help:"A run on a server. #KEY behind it is the key that the server must have. May be repeated."`
	RunIDs        []string      `name:"run-id" sep:"none" placeholder:"ID" help:"With --rpc: a run on the chain; may be repeated. Default: all of the program."`
	HTTPAddr      string        `name:"http-addr" default:"127.0.0.1:8090" placeholder:"HOST:PORT" help:"Where the page is served (${default}). Anybody who reaches it may read it."`
	Dir           string        `type:"path" placeholder:"DIR" help:"Folder for copies of the logs of --follow and --rpc. Default: psyche/dash in the user's cache folder."`
	MemberEvents  []string      `aliases:"events" sep:"none" placeholder:"PATTERN" help:"Event logs of members (events.jsonl), whose loss and speed are shown as reported by them; * stands for any part of a name. May be repeated. Those in folders that are given are found."`
	Every         time.Duration `default:"5s" help:"How often servers and chains are asked for what is new (${default})."`
	KnownServers  string        `env:"PSYCHE_KNOWN_SERVERS" type:"path" placeholder:"FILE" help:"File that remembers the keys of servers. Default: psyche/known_servers in the user's folder for configuration."`
	onchain.Flags `embed:""`
	logFlags      `embed:""`
}

// Help is shown by --help below the command's summary.
func (c *dashboard) Help() string {
	return `Shows runs, live and past: their rounds, phases, members and why they left, checkpoints, and
what members report of loss and speed. Everything but the last is worked out from the logs
of the runs, every signature of which is verified here. Nothing can be changed by it.`
}

// Run shows the page until a signal comes.
func (c *dashboard) Run(ctx context.Context, to console) error {
	if len(c.Paths)+len(c.Follow) == 0 && !c.Given() {
		return usagef("nothing to show: give files or folders, --follow=RUN@HOST:PORT, or --rpc=URL")
	}
	if len(c.RunIDs) > 0 && !c.Given() {
		return usagef("--run-id is for runs on a chain: give --rpc, or for a run on a server --follow=RUN@HOST:PORT")
	}
	if c.Every < time.Second {
		return usagef("--every is %v: want 1s at least", c.Every)
	}
	logger := c.logger(to.err)
	listener, err := server.Listen(ctx, c.HTTPAddr)
	if err != nil {
		return err
	}
	g := gather.New(ctx, gather.Options{Events: c.MemberEvents, Logger: logger})
	defer g.Close()
	if err := c.gather(g, to, logger); err != nil {
		return errors.Join(err, listener.Close())
	}
	if _, err := fmt.Fprintf(to.err, "psyche: the page is at http://%s/\n", listener.Addr()); err != nil {
		return errors.Join(err, listener.Close())
	}
	mux := http.NewServeMux()
	mux.Handle("GET /", dash.New(g.Runs, pageVerifier(logger)))
	signals.Hold(ctx) // for the seconds that answers may take to end
	server.ServeHTTP(ctx, listener, mux, logger)
	return nil
}

// gather begins to follow everything that the command line names.
func (c *dashboard) gather(g *gather.Gatherer, to console, logger *slog.Logger) error {
	if err := g.Watch(c.Paths, nil); err != nil {
		return usageError{err}
	}
	if len(c.Follow) == 0 && !c.Given() {
		return nil
	}
	if c.Dir == "" {
		cache, err := os.UserCacheDir()
		if err != nil {
			return usagef("--dir: there is no cache folder: %w", err)
		}
		c.Dir = filepath.Join(cache, "psyche", "dash")
	}
	if err := os.MkdirAll(c.Dir, 0o755); err != nil {
		return fmt.Errorf("--dir: %w", err)
	}
	for _, text := range c.Follow {
		if err := c.followServer(g, text, to, logger); err != nil {
			return err
		}
	}
	if c.Given() {
		return c.followChain(g, to, logger)
	}
	return nil
}

// repeat does something now and every --every, and logs when it begins to fail and when it works
// again.
func (c *dashboard) repeat(ctx context.Context, logger *slog.Logger, task func(context.Context) error) {
	failing := false
	for {
		within, cancel := context.WithTimeout(ctx, 10*time.Minute)
		err := task(within)
		cancel()
		if ctx.Err() != nil {
			return
		}
		if err != nil && !failing {
			logger.Warn("asking for what is new failed; it is tried again", "error", err)
		}
		if err == nil && failing {
			logger.Info("what is new comes again")
		}
		failing = err != nil
		select {
		case <-ctx.Done():
			return
		case <-time.After(c.Every):
		}
	}
}
