package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/psyche-go/psyche/base/signals"
	"github.com/psyche-go/psyche/cmd/internal/onchain"
	"github.com/psyche-go/psyche/face/dash"
	"github.com/psyche-go/psyche/face/dash/gather"
	"github.com/psyche-go/psyche/host/server"
)

type dashboard struct {
	Paths         []string      `arg:"" optional:"" name:"path" type:"path" help:"Run logs, or folders that contain them: --save-state-dir of a server, --run-dir of a testnet, or files from psyche run export or archive."`
	Follow        []string      `name:"follow" sep:"none" placeholder:"RUN@HOST:PORT" help:"Run on a server. A trailing #KEY is the required server key. May be repeated."`
	RunIDs        []string      `name:"run-id" sep:"none" placeholder:"ID" help:"With --rpc: run on the chain. May be repeated. Default: all runs of the program."`
	HTTPAddr      string        `name:"http-addr" default:"127.0.0.1:8090" placeholder:"HOST:PORT" help:"Address to serve the page on (${default}). Every client that can reach it may read it."`
	Dir           string        `type:"path" placeholder:"DIR" help:"Folder for copies of the logs of --follow and --rpc. Default: psyche/dash in the user's cache folder."`
	MemberEvents  []string      `aliases:"events" sep:"none" placeholder:"PATTERN" help:"Event logs of members (events.jsonl). The page shows the loss and speed that the members report. * matches any part of a name. May be repeated. Event logs in the given folders are found automatically."`
	Every         time.Duration `default:"5s" help:"Polling interval for servers and chains (${default})."`
	KnownServers  string        `env:"PSYCHE_KNOWN_SERVERS" type:"path" placeholder:"FILE" help:"File with the keys of known servers. Default: psyche/known_servers in the user's configuration folder."`
	onchain.Flags `embed:""`
	logFlags      `embed:""`
}

// Help returns the text below the command's summary in --help.
func (c *dashboard) Help() string {
	return `Shows live and past runs: their rounds, phases, members and reasons for leaving, checkpoints, and the
loss and speed that members report. All other values come from the run logs, and this program
verifies every signature in them. The page is read-only.`
}

// Run serves the page until a signal arrives.
func (c *dashboard) Run(ctx context.Context, to console) error {
	if len(c.Paths)+len(c.Follow) == 0 && !c.Given() {
		return usagef("nothing to show: give files or folders, --follow=RUN@HOST:PORT, or --rpc=URL")
	}
	if len(c.RunIDs) > 0 && !c.Given() {
		return usagef("--run-id selects runs on a chain: give --rpc, or --follow=RUN@HOST:PORT for a run on a server")
	}
	if c.Every < time.Second {
		return usagef("--every is %v: want at least 1s", c.Every)
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
	if len(g.Runs()) == 0 && len(c.Follow) == 0 && !c.Given() {
		_, _ = fmt.Fprintf(to.err, "psyche: no run log in %s yet: want RUN.journal of a server's --save-state-dir, or a file from psyche run export; the page shows runs as soon as their logs appear\n",
			strings.Join(c.Paths, ", "))
	}
	if _, err := fmt.Fprintf(to.err, "psyche: the page is at http://%s/\n", listener.Addr()); err != nil {
		return errors.Join(err, listener.Close())
	}
	mux := http.NewServeMux()
	mux.Handle("GET /", dash.New(g.Runs, pageVerifier(logger)))
	signals.Hold(ctx) // running answers get some seconds to end
	server.ServeHTTP(ctx, listener, mux, logger)
	return nil
}

// gather starts to follow all sources on the command line.
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
			return usagef("--dir: this user has no cache folder: %w", err)
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

// repeat runs a task now and every --every. It logs when the task starts to fail and when it works
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
			logger.Warn("polling failed; retrying", "error", err)
		}
		if err == nil && failing {
			logger.Info("polling works again")
		}
		failing = err != nil
		select {
		case <-ctx.Done():
			return
		case <-time.After(c.Every):
		}
	}
}
