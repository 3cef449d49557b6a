package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/base/signals"
	"github.com/psyche-go/psyche/cmd/internal/telemetry"
	"github.com/psyche-go/psyche/host/server"
	"github.com/psyche-go/psyche/record/config"
)

type serverRun struct {
	State                     []string `sep:"none" placeholder:"FILE" help:"The state.toml of a run to host. May be repeated, or left out: runs that --save-state-dir has go on anyway." group:"The runs:"`
	RunID                     string   `name:"run-id" placeholder:"ID" help:"Name of the run, in place of run_id in the file. With one --state only." group:"The runs:"`
	ServerAddr                string   `default:"0.0.0.0" placeholder:"HOST" help:"Address to listen on (${default})." group:"Connections:"`
	ServerPort                uint16   `short:"s" default:"0" placeholder:"PORT" help:"Port to listen on. 0: the one that the server had last, which --save-state-dir knows, else a free one, which is logged (${default})." group:"Connections:"`
	PublicAddr                string   `placeholder:"HOST[:PORT]" help:"Address by which others reach this server, for the links that it logs, with which they join. Default: --server-addr; where that is all addresses, one of this machine." group:"Connections:"`
	HTTPAddr                  string   `name:"http-addr" placeholder:"HOST:PORT" help:"Address of the HTTP server with a page that shows the runs, /healthz, /metrics and /state, which anybody may read. Without it there is none." group:"Display:"`
	MemberEvents              []string `sep:"none" placeholder:"PATTERN" help:"Event logs of members on this machine (events.jsonl), whose loss and speed the page of --http-addr shows as reported by them; * stands for any part of a name. May be repeated." group:"Display:"`
	DataConfig                string   `placeholder:"FILE" help:"A data.toml, whose data is served to the members of the run of --state, or of the one run in --save-state-dir, which needs a data_location of the kind Server." group:"Model and data:"`
	DataAddr                  string   `placeholder:"HOST:PORT" help:"Address to serve data on. Default: --server-addr with the port of the run's data_location." group:"Model and data:"`
	ModelPath                 string   `placeholder:"DIR" help:"Folder of the model that the run of --state, or the one run in --save-state-dir, begins with, where that names a folder: whoever connects may get it from this server, so that who joins need not have it." group:"Model and data:"`
	sourceFlags               `embed:"" group:"Model and data:"`
	SaveStateDir              string `placeholder:"DIR" help:"Folder for the host's key and the journals of the runs. With it runs survive the end of the server." group:"The runs:"`
	MainAuthority             string `placeholder:"KEY" help:"Key in base58 that configures, pauses and closes the runs of --state. Default: the host's own key." group:"Authority:"`
	resumeFlags               `embed:"" group:"The runs:"`
	authorityFlags            `embed:"" group:"Authority:"`
	AllowCreate               string          `default:"host" placeholder:"none|host|KEY,…|anyone" help:"Who may begin runs with psyche run create: nobody; the host's own key and --main-authority; these keys; anyone (${default})." group:"Authority:"`
	MaxRuns                   int             `default:"64" help:"Runs that are not closed, at most (${default})." group:"Authority:"`
	MaxStrangers              int             `default:"512" help:"Connections of keys that have no part in a run, at most, and as many that only watch; members and keys with an office always find a place (${default})." group:"Connections:"`
	MaxSeatsPerNetwork        int             `default:"16" help:"Clients of one network, /24 of IPv4 or /48 of IPv6, that may take part in a run, at most; private networks are not bounded. 0: no network is (${default})." group:"Connections:"`
	MaxSeatsPerPrivateNetwork int             `default:"0" help:"The same for private networks and this machine, from which all clients come through a proxy, a NAT or a tunnel. 0: they are not bounded (${default})." group:"Connections:"`
	MaxLogRate                float64         `default:"8" placeholder:"RATE" help:"MiB per second of the line that readers of the logs of runs, and of the model of --model-path, may take, together (${default})." group:"Connections:"`
	WithdrawOnDisconnect      bool            `default:"true" negatable:"" help:"Withdraw clients whose connection ended." group:"Connections:"`
	WithdrawGrace             time.Duration   `default:"15s" help:"How long a connection may be gone before its client is withdrawn; less than 15s, which is twice the longest pause between a client's attempts to come back, withdraws clients that live (${default})." group:"Connections:"`
	RestartGrace              time.Duration   `default:"15s" help:"The same after a start of the server, in which no round ends until all are back; at least --withdraw-grace (${default})." group:"Connections:"`
	InitWarmupTime            float64         `placeholder:"SECONDS" help:"Longest Warmup of the run of --state, in place of warmup_time in the file; 0: as the file says." group:"The runs:"`
	EventsDir                 string          `placeholder:"DIR" help:"Folder for the typed event logs: events.jsonl of the one run of --state, RUN.jsonl of every other. Default: --save-state-dir." group:"Logs:"`
	Telemetry                 telemetry.Flags `embed:"" group:"Trackers:"`
	Tui                       bool            `negatable:"" help:"Draw the runs, with the log, if there is a terminal for that; a key pauses a run." group:"Display:"`
	logFlags                  `embed:"" group:"Logs:"`
}

// Run hosts the runs until a signal comes.
func (c serverRun) Run(ctx context.Context, to console) error {
	runs, err := c.runs()
	if err != nil {
		return err
	}
	if c.ResumeFrom != "" && len(runs) != 1 {
		return usagef("--resume-from is for the run of one --state, there are %d", len(runs))
	}
	if c.InitWarmupTime != 0 && len(runs) != 1 {
		return usagef("--init-warmup-time is for the run of one --state, there are %d", len(runs))
	}
	for i := range runs {
		if err := c.apply(ctx, &runs[i], to.err); err != nil {
			return err
		}
		if err := c.setWarmup(&runs[i]); err != nil {
			return err
		}
	}
	main, err := c.mainAuthority()
	if err != nil {
		return err
	}
	create, err := c.createPolicy(main)
	switch {
	case err != nil:
		return err
	case c.WithdrawGrace <= 0:
		return usagef("--withdraw-grace is %v, want more than 0; --no-withdraw-on-disconnect never withdraws", c.WithdrawGrace)
	case c.RestartGrace <= 0:
		return usagef("--restart-grace is %v, want more than 0", c.RestartGrace)
	case c.MaxRuns <= 0 || c.MaxStrangers <= 0:
		return usagef("--max-runs and --max-strangers have to be 1 at least")
	case c.MaxSeatsPerNetwork < 0:
		return usagef("--max-seats-per-network is %d, want 0 for no bound or 1 at least", c.MaxSeatsPerNetwork)
	case c.MaxSeatsPerPrivateNetwork < 0:
		return usagef("--max-seats-per-private-network is %d, want 0 for no bound or 1 at least", c.MaxSeatsPerPrivateNetwork)
	case !(c.MaxLogRate > 0) || c.MaxLogRate > 1<<20:
		return usagef("--max-log-rate is %v: want MiB per second, more than 0", c.MaxLogRate)
	}
	signals.Hold(ctx) // the display restores the terminal, and the server closes its journal
	shown := c.newDisplay(to)
	defer shown.close()
	logger := c.loggerFor(shown, to)
	for i, run := range runs {
		warnings := run.Warnings
		if !c.permissioned() {
			warnings = append(warnings, openWarnings(run)...)
		}
		for _, warning := range warnings {
			logger.Warn(warning, "file", c.State[i])
		}
	}
	sent, err := c.Telemetry.Start(ctx, "psyche-server", map[string]string{"server.address": c.ServerAddr}, logger, c.LogLevel)
	if err != nil {
		return usageError{err}
	}
	defer sent.Close()
	logger = sent.Logger()
	events := &stateEvents{dir: cmp.Or(c.EventsDir, c.SaveStateDir), logger: logger, logs: make(map[string]*runEvents)}
	if c.Telemetry.OltpTracingURL != "" {
		events.watch = sent.Watch
	}
	events.watch = shown.watch(events.watch)
	if len(runs) == 1 {
		events.main = runs[0].RunID
	}
	if err := events.prepare(); err != nil {
		return err
	}
	last, err := c.lastPort()
	if err != nil {
		return errors.Join(err, events.close())
	}
	o := c.options(max(c.ServerPort, last), logger, events)
	o.Create = create
	o.Registry = prometheus.NewRegistry()
	if err := sent.Gathered(ctx, o.Registry); err != nil {
		return errors.Join(usageError{err}, events.close())
	}
	for _, run := range runs {
		genesis, err := c.genesis(run, main)
		if err != nil {
			return err
		}
		o.Runs = append(o.Runs, genesis)
	}
	page, err := c.newPage(ctx, &o, logger)
	defer page.close()
	if err != nil {
		return errors.Join(err, events.close())
	}
	stopData, err := c.serveData(ctx, runs, &o, events)
	if err != nil {
		return errors.Join(err, events.close())
	}
	if err := errors.Join(c.invite(&o, logger), c.handOut(ctx, runs, &o, page, logger)); err != nil {
		return errors.Join(err, stopData(), events.close())
	}
	shown.start(ctx, c, &o, page)
	err = c.explainTakenPort(last, server.Run(ctx, o))
	if closeErr := errors.Join(stopData(), events.close()); err == nil {
		err = closeErr
	}
	if err != nil {
		return fmt.Errorf("host runs: %w", err)
	}
	logger.Info("stopped")
	return nil
}

// runs loads the files of --state.
func (c serverRun) runs() ([]config.Run, error) {
	if c.RunID != "" && len(c.State) != 1 {
		return nil, usagef("--run-id names the run of one --state, there are %d", len(c.State))
	}
	var runs []config.Run
	for _, file := range c.State {
		run, err := loadNamedRun(file, c.RunID)
		if err != nil {
			return nil, err
		}
		if i := slices.IndexFunc(runs, func(r config.Run) bool { return r.RunID == run.RunID }); i >= 0 {
			return nil, configError{fmt.Errorf("%s and %s are both of run %s", c.State[i], file, run.RunID)}
		}
		runs = append(runs, run)
	}
	return runs, nil
}

// mainAuthority reads --main-authority; zero when it is not given.
func (c serverRun) mainAuthority() (identity.ID, error) {
	if c.MainAuthority == "" {
		return identity.ID{}, nil
	}
	id, err := identity.ParseID(c.MainAuthority)
	if err != nil {
		return id, usagef("--main-authority: %w", err)
	}
	return id, nil
}

// createPolicy reads --allow-create. The host's own key is in --save-state-dir, where the
// server finds it or puts it.
func (c serverRun) createPolicy(main identity.ID) (server.CreatePolicy, error) {
	switch c.AllowCreate {
	case "none":
		return server.CreatePolicy{}, nil
	case "host":
		policy := server.CreatePolicy{Host: true}
		if main != (identity.ID{}) {
			policy.Keys = append(policy.Keys, main)
		}
		return policy, nil
	case "anyone":
		return server.CreatePolicy{Anyone: true}, nil
	}
	var policy server.CreatePolicy
	for text := range strings.SplitSeq(c.AllowCreate, ",") {
		id, err := identity.ParseID(text)
		if err != nil {
			return policy, usagef("--allow-create: want none, host, anyone, or keys with commas between them: %w", err)
		}
		policy.Keys = append(policy.Keys, id)
	}
	return policy, nil
}

func (c serverRun) options(port uint16, logger *slog.Logger, events *stateEvents) server.Options {
	grace := c.WithdrawGrace
	if !c.WithdrawOnDisconnect {
		grace = -1
	}
	return server.Options{
		Listen:             net.JoinHostPort(c.ServerAddr, strconv.Itoa(int(port))),
		HTTPListen:         c.HTTPAddr,
		SaveStateDir:       c.SaveStateDir,
		MaxRuns:            c.MaxRuns,
		MaxStrangers:       c.MaxStrangers,
		MaxSeatsPerNetwork: cmp.Or(c.MaxSeatsPerNetwork, -1), MaxSeatsPerPrivateNetwork: c.MaxSeatsPerPrivateNetwork,
		WithdrawGrace: grace,
		RestartGrace:  c.RestartGrace,

		LogBytesPerSecond: c.MaxLogRate * (1 << 20),
		Logger:            logger,
		OnState:           events.add,
		OnNames:           events.addNames,
		OnEvent:           events.addCommit,
		Ready: func(address net.Addr) {
			if err := c.keepPort(address); err != nil {
				logger.Warn("the next start may choose another port", "err", err)
			}
		},
	}
}
