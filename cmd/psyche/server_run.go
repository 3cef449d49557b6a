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
	"github.com/psyche-go/psyche/base/release"
	"github.com/psyche-go/psyche/base/signals"
	"github.com/psyche-go/psyche/cmd/internal/telemetry"
	"github.com/psyche-go/psyche/host/server"
	"github.com/psyche-go/psyche/host/server/eventlog"
	"github.com/psyche-go/psyche/record/config"
)

type serverRun struct {
	State                     []string `sep:"none" placeholder:"FILE" help:"The state.toml of a run to host. May be repeated. Optional: runs in --save-state-dir always continue." group:"The runs:"`
	RunID                     string   `name:"run-id" placeholder:"ID" help:"Name of the run, instead of run_id in the file. Only with a single --state." group:"The runs:"`
	ServerAddr                string   `default:"0.0.0.0" placeholder:"HOST" help:"Address to listen on (${default})." group:"Connections:"`
	ServerPort                uint16   `short:"s" default:"0" placeholder:"PORT" help:"Port to listen on. 0 reuses the server's last port from --save-state-dir, or else picks a free port and logs it (${default})." group:"Connections:"`
	PublicAddr                string   `placeholder:"HOST[:PORT]" help:"Address at which clients reach this server, used in the invite links that it logs. Default: --server-addr, or an address of this machine if --server-addr means all addresses." group:"Connections:"`
	HTTPAddr                  string   `name:"http-addr" placeholder:"HOST:PORT" help:"Address of an HTTP server, which serves a page about the runs, and /healthz, /metrics and /state. All clients that can reach the address can read them. By default, there is no HTTP server." group:"Display:"`
	MinClientVersion          string   `placeholder:"VERSION" help:"Oldest version of psyche-client that may take part in the runs, such as 0.2.0. Older clients end, and name the version that they need. A version between releases counts as the next release. By default, all versions may take part." group:"Connections:"`
	InstallURL                string   `name:"install-url" env:"PSYCHE_RELEASES" placeholder:"URL" help:"Folder with the install.sh of a release. The page, and clients that are older than --min-client-version, show the line that installs it. Default: none." group:"Connections:"`
	MemberEvents              []string `sep:"none" placeholder:"PATTERN" help:"Event logs of members on this machine (events.jsonl). The page of --http-addr shows the loss and speed that the members report. * matches any part of a name. May be repeated." group:"Display:"`
	ChatAddr                  string   `placeholder:"HOST:PORT" help:"Address of psyche-client serve-model, which serves the model of a finished run under the run's name. The page of --http-addr then offers a chat with the model to all its readers. PSYCHE_API_KEY is the API key. Default: no chat." group:"Display:"`
	Samples                   string   `placeholder:"FILE" help:"File with texts of the run's models, as psyche host writes it. The page of the finished run shows them." group:"Display:"`
	DataConfig                string   `placeholder:"FILE" help:"A data.toml that defines the data to serve to the members of the run in --state, or of the only run in --save-state-dir. The run needs a data_location of the kind Server." group:"Model and data:"`
	DataAddr                  string   `placeholder:"HOST:PORT" help:"Address to serve data on. Default: --server-addr with the port of the run's data_location." group:"Model and data:"`
	ModelPath                 string   `placeholder:"DIR" help:"Folder with the initial model, for the run in --state or the only run in --save-state-dir, if that run names a folder. Every client that connects may download the model from this server, so it needs no copy." group:"Model and data:"`
	MemberCheckpoints         []string `sep:"none" placeholder:"PATTERN" help:"Checkpoint folders of members on this machine (their --checkpoint-dir). Every client that connects may download models that the runs recorded, for psyche-client generate LINK and serve-model LINK. * matches any part of a name. May be repeated." group:"Model and data:"`
	sourceFlags               `embed:"" group:"Model and data:"`
	SaveStateDir              string `placeholder:"DIR" help:"Folder for the host's key and the journals of the runs. With this folder, runs survive a restart of the server." group:"The runs:"`
	MainAuthority             string `placeholder:"KEY" help:"Key, in base58, that configures, pauses and closes the runs in --state. Default: the host's own key." group:"Authority:"`
	resumeFlags               `embed:"" group:"The runs:"`
	authorityFlags            `embed:"" group:"Authority:"`
	AllowCreate               string          `default:"host" placeholder:"none|host|KEY,…|anyone" help:"Keys that may create runs with psyche run create: none; host (the host's own key and --main-authority); a list of keys; or anyone (${default})." group:"Authority:"`
	MaxRuns                   int             `default:"64" help:"Maximum number of runs that are not closed (${default})." group:"Authority:"`
	MaxStrangers              int             `default:"512" help:"Maximum number of connections by keys that are not part of a run, and, as a separate limit, by observers (${default}). Members and keys with a role are always admitted." group:"Connections:"`
	MaxSeatsPerNetwork        int             `default:"16" help:"Maximum number of clients in a run from one network (IPv4 /24 or IPv6 /48), except private networks. 0 means no limit (${default})." group:"Connections:"`
	MaxSeatsPerPrivateNetwork int             `default:"0" help:"Maximum number of clients in a run from one private network or from this machine. Clients that connect through a proxy, a NAT or a tunnel in that network count as well. 0 means no limit (${default})." group:"Connections:"`
	MaxLogRate                float64         `default:"8" placeholder:"RATE" help:"Upload limit for all readers of run logs and of models together, in MiB/s (${default})." group:"Connections:"`
	WithdrawOnDisconnect      bool            `default:"true" negatable:"" help:"Withdraw clients that lose their connection." group:"Connections:"`
	WithdrawGrace             time.Duration   `default:"15s" help:"Time that a connection may be lost before its client is withdrawn. Values below 15s, twice the longest pause between a client's reconnection attempts, withdraw live clients (${default})." group:"Connections:"`
	RestartGrace              time.Duration   `default:"15s" help:"Time for clients to reconnect after a start of the server, before they are withdrawn. During this time, no round ends until all clients have reconnected. A value below --withdraw-grace is raised to it (${default})." group:"Connections:"`
	InitWarmupTime            float64         `placeholder:"SECONDS" help:"Maximum Warmup time of the run in --state, instead of warmup_time in the file; 0 uses the value in the file." group:"The runs:"`
	EventsDir                 string          `placeholder:"DIR" help:"Folder for the event logs: events.jsonl for the run of a single --state, RUN.jsonl for all other runs. Default: --save-state-dir." group:"Logs:"`
	Telemetry                 telemetry.Flags `embed:"" group:"Trackers:"`
	Tui                       bool            `negatable:"" help:"Show the runs and the log in a terminal display, if there is a terminal. A key pauses a run." group:"Display:"`
	logFlags                  `embed:"" group:"Logs:"`
}

// Run hosts the runs until a signal arrives.
func (c serverRun) Run(ctx context.Context, to console) error {
	runs, err := c.load(ctx, to)
	if err != nil {
		return err
	}
	main, err := c.mainAuthority()
	if err != nil {
		return err
	}
	create, err := c.createPolicy(main)
	if err != nil {
		return err
	}
	if err := errors.Join(c.checkLimits(), c.checkRequirement()); err != nil {
		return err
	}
	signals.Hold(ctx) // the display restores the terminal, and the server closes its journal
	shown := c.newDisplay(to)
	defer shown.close()
	logger := c.loggerFor(shown, to)
	c.warn(runs, logger)
	sent, err := c.Telemetry.Start(ctx, "psyche-server", map[string]string{"server.address": c.ServerAddr}, logger, c.LogLevel)
	if err != nil {
		return usageError{err}
	}
	defer sent.Close()
	logger = sent.Logger()
	events, err := c.openEvents(runs, sent, shown, logger)
	if err != nil {
		return err
	}
	last, err := c.lastPort()
	if err != nil {
		return errors.Join(err, events.Close())
	}
	o := c.options(max(c.ServerPort, last), logger, events)
	o.Create = create
	o.Registry = prometheus.NewRegistry()
	if err := sent.Gathered(ctx, o.Registry); err != nil {
		return errors.Join(usageError{err}, events.Close())
	}
	for _, run := range runs {
		genesis, err := c.genesis(run, main)
		if err != nil {
			return err
		}
		o.Runs = append(o.Runs, genesis)
	}
	if err := c.serve(ctx, runs, &o, events, shown, last); err != nil {
		return err
	}
	logger.Info("stopped")
	return nil
}

// load loads the runs of --state, with the changes that flags make to them.
func (c serverRun) load(ctx context.Context, to console) ([]config.Run, error) {
	runs, err := c.runs()
	switch {
	case err != nil:
		return nil, err
	case c.ResumeFrom != "" && len(runs) != 1:
		return nil, usagef("--resume-from needs exactly one --state, there are %d", len(runs))
	case c.InitWarmupTime != 0 && len(runs) != 1:
		return nil, usagef("--init-warmup-time needs exactly one --state, there are %d", len(runs))
	}
	for i := range runs {
		if err := c.apply(ctx, &runs[i], to.err); err != nil {
			return nil, err
		}
		if err := c.setWarmup(&runs[i]); err != nil {
			return nil, err
		}
	}
	return runs, nil
}

// checkLimits validates the limits of the server.
func (c serverRun) checkLimits() error {
	switch {
	case c.WithdrawGrace <= 0:
		return usagef("--withdraw-grace is %v, want more than 0; --no-withdraw-on-disconnect never withdraws", c.WithdrawGrace)
	case c.RestartGrace <= 0:
		return usagef("--restart-grace is %v, want more than 0", c.RestartGrace)
	case c.MaxRuns <= 0 || c.MaxStrangers <= 0:
		return usagef("--max-runs and --max-strangers must be at least 1")
	case c.MaxSeatsPerNetwork < 0:
		return usagef("--max-seats-per-network is %d, want at least 1, or 0 for no limit", c.MaxSeatsPerNetwork)
	case c.MaxSeatsPerPrivateNetwork < 0:
		return usagef("--max-seats-per-private-network is %d, want at least 1, or 0 for no limit", c.MaxSeatsPerPrivateNetwork)
	case !(c.MaxLogRate > 0) || c.MaxLogRate > 1<<20:
		return usagef("--max-log-rate is %v: want MiB per second, more than 0", c.MaxLogRate)
	}
	return nil
}

// checkPurpose rejects a server that has no run and no key that may create a run. Without --save-state-dir, the host's own
// key ends with the process, so its owner cannot create a run either.
func (c serverRun) checkPurpose(runs []config.Run, create server.CreatePolicy) error {
	if len(runs) == 0 && c.SaveStateDir == "" && !create.Anyone && len(create.Keys) == 0 {
		return usagef("no run to host: pass --state FILE, --save-state-dir DIR with earlier runs, or --allow-create with the keys that may create runs")
	}
	return nil
}

// requirement returns the version that the server requires of clients.
func (c serverRun) requirement() release.Requirement {
	return release.Requirement{Version: c.MinClientVersion, Address: c.InstallURL}
}

// checkRequirement validates the required version.
func (c serverRun) checkRequirement() error {
	err := c.requirement().Check()
	switch {
	case errors.Is(err, release.ErrVersion):
		return usagef("--min-client-version: %w", err)
	case err != nil:
		return usagef("--install-url or PSYCHE_RELEASES: %w", err)
	}
	return nil
}

// warn logs the warnings about the files of --state.
func (c serverRun) warn(runs []config.Run, logger *slog.Logger) {
	for i, run := range runs {
		warnings := run.Warnings
		if !c.permissioned() {
			warnings = append(warnings, openWarnings(run)...)
		}
		for _, warning := range warnings {
			logger.Warn(warning, "file", c.State[i])
		}
	}
}

// openEvents opens the event logs of the runs. The display and telemetry follow them.
func (c serverRun) openEvents(runs []config.Run, sent *telemetry.Telemetry, shown *serverDisplay, logger *slog.Logger) (*eventlog.Logs, error) {
	o := eventlog.Options{Dir: cmp.Or(c.EventsDir, c.SaveStateDir), Logger: logger}
	if c.Telemetry.OltpTracingURL != "" {
		o.Watch = sent.Watch
	}
	o.Watch = shown.watch(o.Watch)
	if len(runs) == 1 {
		o.Main = runs[0].RunID
	}
	return eventlog.Open(o)
}

// serve hosts the runs, with the page, the data, the invite links and the model that flags request. It
// closes events. last is the port of the previous start, or 0.
func (c serverRun) serve(ctx context.Context, runs []config.Run, o *server.Options, events *eventlog.Logs, shown *serverDisplay, last uint16) error {
	page, err := c.newPage(ctx, o, o.Logger)
	if err != nil {
		return errors.Join(err, events.Close())
	}
	defer page.Close()
	stopData, err := c.serveData(ctx, runs, o, events)
	if err != nil {
		return errors.Join(err, events.Close())
	}
	if err := errors.Join(c.invite(o, o.Logger, shown), c.handOut(ctx, runs, o, page, o.Logger), c.checkPurpose(runs, o.Create)); err != nil {
		return errors.Join(err, stopData(), events.Close())
	}
	shown.start(ctx, c, o, page)
	err = c.explainTakenPort(last, server.Run(ctx, *o))
	if closeErr := errors.Join(stopData(), events.Close()); err == nil {
		err = closeErr
	}
	if err != nil {
		return fmt.Errorf("host runs: %w", err)
	}
	return nil
}

// runs loads the files of --state.
func (c serverRun) runs() ([]config.Run, error) {
	if c.RunID != "" && len(c.State) != 1 {
		return nil, usagef("--run-id needs exactly one --state, there are %d", len(c.State))
	}
	var runs []config.Run
	for _, file := range c.State {
		run, err := loadNamedRun(file, c.RunID)
		if err != nil {
			return nil, err
		}
		if i := slices.IndexFunc(runs, func(r config.Run) bool { return r.RunID == run.RunID }); i >= 0 {
			return nil, configError{fmt.Errorf("%s and %s both define run %s; set a different run_id in one of them", c.State[i], file, run.RunID)}
		}
		runs = append(runs, run)
	}
	return runs, nil
}

// mainAuthority parses --main-authority; zero if it is not set.
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

// createPolicy parses --allow-create. The host's own key is in --save-state-dir, where the server
// finds or creates it.
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
			return policy, usagef("--allow-create: want host, anyone, none, or a comma-separated list of keys: %w", err)
		}
		policy.Keys = append(policy.Keys, id)
	}
	return policy, nil
}

func (c serverRun) options(port uint16, logger *slog.Logger, events *eventlog.Logs) server.Options {
	grace := c.WithdrawGrace
	if !c.WithdrawOnDisconnect {
		grace = -1
	}
	return server.Options{
		Listen:        net.JoinHostPort(c.ServerAddr, strconv.Itoa(int(port))),
		SaveStateDir:  c.SaveStateDir,
		Requires:      c.requirement(),
		WithdrawGrace: grace,
		RestartGrace:  c.RestartGrace,
		Logger:        logger,
		HTTP:          server.HTTP{HTTPListen: c.HTTPAddr},
		Limits: server.Limits{
			MaxRuns: c.MaxRuns, MaxUnknown: c.MaxStrangers, LogBytesPerSecond: c.MaxLogRate * (1 << 20),
			MaxSeatsPerNetwork: cmp.Or(c.MaxSeatsPerNetwork, -1), MaxSeatsPerPrivateNetwork: c.MaxSeatsPerPrivateNetwork,
		},
		Hooks: server.Hooks{
			OnState: events.Add,
			OnNames: events.AddNames,
			OnEvent: events.AddCommit,
			Ready: func(address net.Addr) {
				if err := c.keepPort(address); err != nil {
					logger.Warn("the next start may choose another port", "err", err)
				}
			},
		},
	}
}
