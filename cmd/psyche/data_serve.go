package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/base/signals"
	"github.com/psyche-go/psyche/files/data/serve"
	"github.com/psyche-go/psyche/host/server"
	"github.com/psyche-go/psyche/record/backend"
	"github.com/psyche-go/psyche/record/event"
)

type dataServe struct {
	DataConfig  string `required:"" placeholder:"FILE" help:"The data.toml with the data to serve."`
	RunID       string `name:"run-id" required:"" env:"RUN_ID" placeholder:"ID" help:"Name of the run to serve."`
	hostFlags   `embed:""`
	ListenAddr  string `required:"" placeholder:"HOST:PORT" help:"Address to serve on. Clients connect to the address in the run's data_location."`
	Keypair     string `type:"path" placeholder:"FILE" help:"Key file of this server: solana-keygen JSON or 32 raw bytes. Default: RAW_IDENTITY_SECRET_KEY. Without either, each start uses a new key, which clients do not recognize."`
	HTTPAddr    string `name:"http-addr" placeholder:"HOST:PORT" help:"Address of an HTTP server with /healthz and /metrics, which every client that can reach it may read. By default, there is no HTTP server."`
	EventsDir   string `type:"path" placeholder:"DIR" help:"Folder for the event log, events.jsonl: states of the run, and every answered request. By default, no event log is written."`
	sourceFlags `embed:""`
	logFlags    `embed:""`
}

// Help returns the text below the command's summary in --help.
func (dataServe) Help() string {
	return `Follows the run at its server and gives each healthy member the batches that the run assigns to it in
the newest rounds. In an audited run, every member may also get the batches of past rounds, to audit
the results of other members. The server refuses all other requests. Each batch comes with a signed
receipt. The server keeps running while the run's server is unreachable, and exits on a signal.`
}

// Run serves until a signal arrives, or the run's server refuses permanently.
func (c dataServe) Run(ctx context.Context, to console) (err error) {
	logger := c.logger(to.err)
	from, err := loadDataServer(c.DataConfig)
	if err != nil {
		return err
	}
	key, err := c.key(logger)
	if err != nil {
		return err
	}
	signals.Hold(ctx)
	events, err := c.openEvents(key)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.endEvents(events, err)) }()
	if _, _, err := net.SplitHostPort(c.ListenAddr); err != nil {
		return fmt.Errorf("--listen-addr %q: want host:port: %w", c.ListenAddr, err)
	}
	host, err := c.dialLogged(ctx, c.RunID, key, logger, to.err)
	if err != nil {
		return err
	}
	defer func() { _ = host.Close() }()
	stop := context.AfterFunc(ctx, func() { _ = host.Close() })
	defer stop()
	first, err := c.first(ctx, host)
	if err != nil {
		return err
	}
	if err := checkSeqLen(c.DataConfig, from, first.State.Model.MaxSeqLen); err != nil {
		return err
	}
	service, err := c.begin(ctx, from, c.ListenAddr, events, serve.Options{Key: key, RunID: c.RunID, Logger: logger})
	if err != nil {
		return fmt.Errorf("serve data: %w", err)
	}
	stopHTTP, err := c.serveHTTP(ctx, service, logger)
	if err == nil {
		service.follow(first, host.Updates(), events, logger)
		stopHTTP()
		err = host.Err()
	}
	if stopErr := service.stop(); err == nil {
		err = stopErr
	}
	if ctx.Err() != nil {
		logger.Info("stopped")
		return nil
	}
	return err
}

// openEvents opens the event log; nil if there is no folder for it.
func (c dataServe) openEvents(key identity.Key) (*event.Log, error) {
	if c.EventsDir == "" {
		return nil, nil
	}
	if err := os.MkdirAll(c.EventsDir, 0o755); err != nil {
		return nil, fmt.Errorf("--events-dir: %w", err)
	}
	events, err := event.Open(filepath.Join(c.EventsDir, "events.jsonl"))
	if err != nil {
		return nil, fmt.Errorf("--events-dir: %w", err)
	}
	return events, events.Append(event.Started{Role: "data server", ID: key.ID().String(), RunID: c.RunID, PID: os.Getpid()})
}

// endEvents ends the event log. If why is not nil, it first records why as the error that ended the
// server.
func (c dataServe) endEvents(events *event.Log, why error) error {
	var err error
	if why != nil {
		err = events.Append(event.Failed{Error: why.Error()})
	}
	return errors.Join(err, events.Close())
}

// first waits for the first state of the run.
func (c dataServe) first(ctx context.Context, host runHost) (backend.Update, error) {
	ctx, cancel := c.bound(ctx)
	defer cancel()
	return firstUpdate(ctx, host)
}

// key loads the server's key, or creates a temporary key.
func (c dataServe) key(logger *slog.Logger) (identity.Key, error) {
	if c.Keypair != "" {
		return identity.LoadKeyFile(c.Keypair)
	}
	find := identity.KeyFromEnvironment
	if c.Given() {
		find = identity.WalletFromEnvironment
	}
	key, found, err := find(os.LookupEnv)
	if err != nil || found {
		return key, err
	}
	if key, err = identity.Generate(rand.Reader); err == nil {
		logger.Warn("no key given: this process uses a new key, and clients that know it will refuse the key of the next start; create a key file with: psyche keys new", "key", key.ID())
	}
	return key, err
}

// serveHTTP serves health and metrics if --http-addr is set. stop stops it.
func (c dataServe) serveHTTP(ctx context.Context, service *dataService, logger *slog.Logger) (stop func(), err error) {
	if c.HTTPAddr == "" {
		return func() {}, nil
	}
	listener, err := server.Listen(ctx, c.HTTPAddr)
	if err != nil {
		return nil, err
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(service, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{MaxRequestsInFlight: 4}))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		if err := service.Check(); err != nil {
			w.WriteHeader(http.StatusServiceUnavailable)
			_, _ = fmt.Fprintln(w, err)
			return
		}
		_, _ = fmt.Fprintln(w, "ok")
	})
	logger.Info("HTTP server is listening", "http", listener.Addr().String())
	ctx, cancel := context.WithCancel(ctx)
	var serving sync.WaitGroup
	serving.Go(func() { server.ServeHTTP(ctx, listener, mux, logger) })
	return func() { cancel(); serving.Wait() }, nil
}
