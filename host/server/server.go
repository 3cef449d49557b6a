package server

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/time/rate"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/base/release"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/host/core"
	"github.com/psyche-go/psyche/net/accept"
	"github.com/psyche-go/psyche/net/admission"
	"github.com/psyche-go/psyche/net/secure"
)

// Defaults of Options.
const (
	DefaultWithdrawGrace    = core.DefaultGrace
	DefaultRestartGrace     = core.DefaultGrace
	DefaultBeat             = time.Second
	defaultMaxUnknown       = 512
	defaultSeatsPerNetwork  = 16
	defaultMaxRuns          = 64
	defaultActionsPerSecond = 10
	defaultJoinsPerSecond   = 2
	defaultJoinsAtOnce      = 640
	defaultSnapshotEvery    = 1000
	defaultLogBytes         = 8 << 20
)

// secondsOfBurst is the number of seconds for which a quiet key, or run, can save up actions.
const secondsOfBurst = 10

// othersShare is the divisor for other clients: they get 1/othersShare of the rate for journals
// while members catch up.
const othersShare = 8

// Genesis returns a new run's starting state for the key of its host, as
// config.Run.CoordinatorState does.
type Genesis func(host coordinator.ClientID) (coordinator.State, error)

// Options configure a server.
type Options struct {
	// Listen is the address to listen on, host:port. Port 0 picks a free port.
	Listen string
	// Runs are started, or resumed if they are in SaveStateDir. Other runs in SaveStateDir are
	// resumed too.
	Runs []Genesis
	// Create configures which clients may start runs over the network.
	Create CreatePolicy
	// Models are the starting models that this server offers, by run id. Every client that may
	// connect can download them.
	Models map[string]Model
	// Recorded returns the model with a digest that a run has recorded, or nil if this server does not
	// have it. Every client that may connect can download the model. It is called from any goroutine. May
	// be nil.
	Recorded func(ctx context.Context, runID string, digest [32]byte) Model
	// Requires is the oldest version of clients that may take part in the runs. Clients refuse to take part
	// with an older version, but the server cannot check their versions.
	Requires release.Requirement
	// SaveStateDir is the directory of the host's key and the runs' journals. If empty, nothing is
	// saved.
	SaveStateDir string
	// SnapshotEvery is the minimum number of journal records between two snapshots. Zero means
	// defaultSnapshotEvery.
	SnapshotEvery int
	// WithdrawGrace is how long a participant may be disconnected before the host withdraws it.
	// Zero means DefaultWithdrawGrace. If negative, the host never withdraws participants.
	WithdrawGrace time.Duration
	// RestartGrace replaces WithdrawGrace after a start of the server, when clients first have to
	// detect that the server is back. No round ends until RestartGrace is over, or until all clients
	// are back. It is at least WithdrawGrace. Zero means DefaultRestartGrace.
	RestartGrace time.Duration
	// Beat is the maximum sleep of an idle run. After at most this time, the run shows /healthz
	// that it is alive, and checks whether the clock of Now was set. Ticks come when they are due,
	// independently of Beat. Zero means DefaultBeat.
	Beat time.Duration
	// Key is the host's key. If zero, the key in SaveStateDir is used, or a new one; see HostKey.
	Key identity.Key
	// Now returns the Unix time in milliseconds. If nil, the server uses the system's clock at the
	// start plus the monotonic time since then. Setting the clock while the server runs then neither
	// shortens nor prolongs rounds.
	Now func() uint64
	// Random is the source of keys, challenges and round seeds. If nil, the system's source is
	// used.
	Random io.Reader
	// Logger receives log messages. If nil, nothing is logged.
	Logger *slog.Logger

	Limits
	HTTP
	Hooks
}

// Limits protect a server from too many runs, connections and actions.
type Limits struct {
	// MaxRuns limits the open runs, including the runs of Runs and SaveStateDir. At the limit,
	// clients cannot start runs over the network. Closed runs have a separate limit. Zero means
	// defaultMaxRuns.
	MaxRuns int
	// MaxUnknown limits the connections of keys that are not part of a run. A second limit of the
	// same size applies to observers whose keys have no role. Members, clients that left during the
	// epoch, and keys with a role can always connect. At the limit, the address with the most
	// connections loses its oldest one to an address with fewer. Zero means defaultMaxUnknown.
	MaxUnknown int
	// MaxSeatsPerNetwork limits how many clients of one network (/24 of IPv4, /48 of IPv6) may take
	// part in a run. Private networks, and keys that the run knows, are exempt. Zero means
	// defaultSeatsPerNetwork. If negative, there is no limit.
	MaxSeatsPerNetwork int
	// MaxSeatsPerPrivateNetwork is the limit for private networks and for this machine, from which
	// all clients seem to come if there is a proxy in front of the server. Zero means no limit.
	MaxSeatsPerPrivateNetwork int
	// ActionsPerSecond limits the long-term rate of actions per key. Up to ten seconds' worth may
	// come at once. Actions above the limit have to wait. Zero means defaultActionsPerSecond.
	ActionsPerSecond float64
	// JoinsPerSecond limits the long-term rate of joins to one run. All keys share the limit, and
	// addresses take turns: a client that repeatedly joins and leaves makes the journal longer without
	// progress. The same limit applies to SetDelegates. JoinsAtOnce is the burst, for members of a run
	// that join together. Zero means defaultJoinsPerSecond and defaultJoinsAtOnce.
	JoinsPerSecond float64
	JoinsAtOnce    int
	// LogBytesPerSecond limits the total rate at which the server sends journals (to auditors) and
	// Models. Connections share the rate by address. Zero means defaultLogBytes.
	LogBytesPerSecond float64
}

// HTTP configures the HTTP server; see the package comment.
type HTTP struct {
	// HTTPListen is the address of the HTTP server, host:port. If empty, there is none.
	HTTPListen string
	// Pages handles all other requests to the HTTP server. May be nil.
	Pages http.Handler
	// Registry is the registry for the metrics of /metrics. If nil, the server creates one.
	Registry *prometheus.Registry
	// Collectors are additional collectors for /metrics.
	Collectors []prometheus.Collector
	// Check returns an error for /healthz if a component outside the server does not work. May be
	// nil.
	Check func() error
}

// Hooks are functions that the server calls.
type Hooks struct {
	// Ready is called once with the address when clients can connect. May be nil.
	Ready func(net.Addr)
	// HTTPReady is called once with the address of the HTTP server. May be nil.
	HTTPReady func(net.Addr)
	// OnEvent is called for every event, one call at a time. It must not block. May be nil.
	OnEvent func(Event)
	// OnRun is called before a run's first OnState with the hash that identifies the run in all
	// signed messages. It must not block. May be nil.
	OnRun func(runID string, run [32]byte)
	// OnState is called with a copy of every state that is pushed to clients, starting with the
	// first state of each run, one call at a time. It must not block. May be nil.
	OnState func(*coordinator.State)
	// OnNames is called after OnState if the display names of the run's clients changed. It must
	// not block, and must not modify or keep names. May be nil.
	OnNames func(runID string, names core.Names)
}

// CreatePolicy selects the keys that may start runs over the network. The zero value permits none.
type CreatePolicy struct {
	Anyone bool
	Host   bool // permits the host's own key
	Keys   []identity.ID
}

// allows reports whether the key id may start runs on the server with the key host.
func (p CreatePolicy) allows(id, host identity.ID) bool {
	return p.Anyone || p.Host && id == host || slices.Contains(p.Keys, id)
}

// setDefaults replaces zero values with defaults.
func (o *Options) setDefaults() {
	o.WithdrawGrace = cmp.Or(o.WithdrawGrace, DefaultWithdrawGrace)
	o.RestartGrace = max(cmp.Or(o.RestartGrace, DefaultRestartGrace), o.WithdrawGrace)
	o.Beat = cmp.Or(o.Beat, DefaultBeat)
	o.MaxUnknown = cmp.Or(o.MaxUnknown, defaultMaxUnknown)
	o.MaxSeatsPerNetwork = cmp.Or(o.MaxSeatsPerNetwork, defaultSeatsPerNetwork)
	o.MaxRuns = cmp.Or(o.MaxRuns, defaultMaxRuns)
	o.ActionsPerSecond = cmp.Or(o.ActionsPerSecond, defaultActionsPerSecond)
	o.JoinsPerSecond = cmp.Or(o.JoinsPerSecond, defaultJoinsPerSecond)
	o.JoinsAtOnce = cmp.Or(o.JoinsAtOnce, defaultJoinsAtOnce)
	o.SnapshotEvery = cmp.Or(o.SnapshotEvery, defaultSnapshotEvery)
	o.LogBytesPerSecond = cmp.Or(o.LogBytesPerSecond, defaultLogBytes)
	if o.Now == nil {
		o.Now = steadyClock(time.Now())
	}
	o.Random = cmp.Or(o.Random, rand.Reader)
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	if o.Registry == nil {
		o.Registry = prometheus.NewRegistry()
	}
}

// Run hosts runs until ctx ends or all runs have stopped. A run stops if it cannot write its journal.
// If only disk space is missing, the run waits instead. Other runs continue. The error lists the runs
// that stopped. When Run returns, all its goroutines have ended.
func Run(ctx context.Context, o Options) error {
	o.setDefaults()
	// Listen first: a second server with the same port and directory should fail because of the
	// port.
	listener, err := Listen(ctx, o.Listen)
	if err != nil {
		return err
	}
	defer func() { _ = listener.Close() }()
	var web net.Listener
	if o.HTTPListen != "" {
		if web, err = Listen(ctx, o.HTTPListen); err != nil {
			return err
		}
		defer func() { _ = web.Close() }()
	}
	s, err := newServer(o)
	if err == nil {
		err = s.serve(ctx, listener, web)
	}
	if s != nil {
		err = errors.Join(err, s.close())
	}
	return err
}

// Listen listens on a TCP address. Its error contains advice.
func Listen(ctx context.Context, address string) (net.Listener, error) {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, listenError(address, err)
	}
	return listener, nil
}

// listenError adds advice to the error for an address.
func listenError(address string, err error) error {
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return fmt.Errorf("listen on %s: another program uses the port; stop it or choose another port: %w", address, err)
	case errors.Is(err, syscall.EACCES):
		return fmt.Errorf("listen on %s: not permitted; choose a port of 1024 or more: %w", address, err)
	default:
		return fmt.Errorf("listen on %s: want host:port of this machine: %w", address, err)
	}
}

// server is the state that all runs share.
type server struct {
	options Options
	key     identity.Key
	tls     *tls.Config
	logger  *slog.Logger
	metrics *metrics

	unproven  *admission.Limiter // connections before their hello
	unknown   *admission.Limiter // unknown keys that may want to take part
	onlookers *admission.Limiter
	actions   *admission.KeyLimits[identity.ID]
	egress    *admission.Budget // bytes of journals and models
	observers keySlots
	catching  catching
	noise     *rate.Limiter // limits log lines that unknown clients can cause

	watchers sync.Mutex // one OnEvent or OnState at a time

	mu      sync.Mutex
	runs    map[string]*host
	working *sync.WaitGroup // of serve; nil before and after
	ctx     context.Context // of serve
	fail    context.CancelCauseFunc
	failed  []error // one error for each run that stopped
}

// newServer loads the host's key and all runs. The caller must close the server, even after an
// error.
func newServer(o Options) (*server, error) {
	if err := MakeStateDir(o.SaveStateDir); err != nil {
		return nil, err
	}
	key := o.Key
	if key.Private() == nil {
		var err error
		if key, err = HostKey(o.SaveStateDir, o.Random); err != nil {
			return nil, err
		}
	}
	config, err := secure.ServerConfig(key)
	if err != nil {
		return nil, err
	}
	s := &server{
		options: o, key: key, tls: config, logger: o.Logger,
		unproven: admission.NewLimiter(), unknown: admission.NewLastingLimiter(o.MaxUnknown),
		onlookers: admission.NewLastingLimiter(o.MaxUnknown),
		actions:   admission.NewKeyLimits[identity.ID](o.ActionsPerSecond, burst(o.ActionsPerSecond)),
		egress:    admission.NewReservedBudget(o.LogBytesPerSecond, max(maxLogFrame, int(o.LogBytesPerSecond)), othersShare),
		catching:  newCatching(),
		noise:     rate.NewLimiter(10, 100), runs: make(map[string]*host),
	}
	s.metrics = newMetrics(s)
	return s, errors.Join(s.metrics.register(o.Collectors), s.openRuns())
}

func burst(perSecond float64) int { return max(1, int(perSecond*secondsOfBurst)) }

// serve runs the runs and accepts connections until ctx ends or all runs have stopped.
func (s *server) serve(ctx context.Context, listener, web net.Listener) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var working sync.WaitGroup
	s.mu.Lock()
	s.ctx, s.working, s.fail = ctx, &working, cancel
	for _, h := range s.runs {
		s.start(h)
	}
	s.mu.Unlock()
	s.logger.Info("server is listening", "address", listener.Addr().String(), "key", s.key.ID(), "runs", s.runIDs())
	if web != nil {
		working.Go(func() { s.serveHTTP(ctx, web) })
	}
	if s.options.Ready != nil {
		s.options.Ready(listener.Addr())
	}
	acceptor := accept.Acceptor{
		Limiter: s.unproven, Logger: s.logger, Noise: s.noise, Serve: s.serveConnection,
		TurnedAway: func() { s.metrics.connections.WithLabelValues("turned away").Inc() },
	}
	acceptor.Accept(ctx, listener, &working)
	s.mu.Lock()
	s.working = nil
	s.mu.Unlock()
	working.Wait()
	return errors.Join(s.failed...)
}

// close closes the journals. Their runs must have stopped.
func (s *server) close() error {
	var err error
	for _, h := range s.runs {
		err = errors.Join(err, h.store.close())
	}
	return err
}

// emit calls OnEvent. It is safe for concurrent use.
func (s *server) emit(e Event) {
	s.metrics.count(e)
	if s.options.OnEvent == nil {
		return
	}
	s.watchers.Lock()
	defer s.watchers.Unlock()
	s.options.OnEvent(e)
}

// show calls OnState.
func (s *server) show(state *coordinator.State) {
	if s.options.OnState == nil {
		return
	}
	clone := state.Clone()
	s.watchers.Lock()
	defer s.watchers.Unlock()
	s.options.OnState(&clone)
}

// call calls OnNames.
func (s *server) call(runID string, names core.Names) {
	if s.options.OnNames == nil {
		return
	}
	s.watchers.Lock()
	defer s.watchers.Unlock()
	s.options.OnNames(runID, names)
}
