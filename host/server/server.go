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
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/host/core"
	"github.com/psyche-go/psyche/net/accept"
	"github.com/psyche-go/psyche/net/admission"
	"github.com/psyche-go/psyche/net/secure"
)

// Defaults of Options.
const (
	defaultWithdrawGrace    = core.DefaultGrace
	defaultRestartGrace     = core.DefaultGrace
	defaultBeat             = time.Second
	defaultMaxStrangers     = 512
	defaultSeatsPerNetwork  = 16
	defaultMaxRuns          = 64
	defaultActionsPerSecond = 10
	defaultJoinsPerSecond   = 2
	defaultJoinsAtOnce      = 640
	defaultSnapshotEvery    = 1000
	defaultLogBytes         = 8 << 20
)

// secondsOfBurst is for how many seconds' worth of actions a quiet key, or run, may send at
// once.
const secondsOfBurst = 10

// othersShare is the part of the rate of journals, 1/othersShare, that other clients have while members catch up.
const othersShare = 8

// Genesis returns the state a new run starts with, given the key of its host;
// config.Run.CoordinatorState is one.
type Genesis func(host coordinator.ClientID) (coordinator.State, error)

// Options of a server.
type Options struct {
	// Listen is the address to listen on, host:port. Port 0 lets the system choose.
	Listen string
	// Runs are begun, or go on if SaveStateDir has them. Others that it has go on as well.
	Runs []Genesis
	// Create says who may begin runs over the network.
	Create CreatePolicy
	// Models are the models that runs begin with, by their ids, of those runs whose clients may get
	// them from this server. Whoever may connect gets them.
	Models map[string]Model
	// MaxRuns bounds the open runs, those of Runs and SaveStateDir among them, beyond which
	// nobody can begin one over the network. Closed runs have places of their own. Zero:
	// defaultMaxRuns.
	MaxRuns int
	// SaveStateDir is where the host's key and the runs' journals are kept. Empty: nothing
	// survives the process.
	SaveStateDir string
	// SnapshotEvery is how many records of a journal lie between two snapshots at least.
	// Zero: defaultSnapshotEvery.
	SnapshotEvery int
	// WithdrawGrace is how long a participant's connection may be gone before the host
	// withdraws it. Zero: defaultWithdrawGrace. Negative: it never does.
	WithdrawGrace time.Duration
	// RestartGrace is the same after a start of the server, when clients first have to notice
	// that it is back; until it is over or all are back, no round ends. At least WithdrawGrace.
	// Zero: defaultRestartGrace.
	RestartGrace time.Duration
	// Beat is the longest that a run sleeps when nothing happens: so often it shows that it
	// is alive, for /healthz, and looks whether the clock of Now was set. Ticks come when
	// they are due, not with the beat. Zero: defaultBeat.
	Beat time.Duration
	// MaxStrangers bounds the connections of keys that have no part in a run, and besides, by
	// the same number, those of keys without an office that only watch. Members, those that
	// left during the epoch, and keys with an office always find a place. When all places are
	// taken, the oldest connection of the address that has the most gives way to an address
	// that has fewer. Zero: defaultMaxStrangers.
	MaxStrangers int
	// MaxSeatsPerNetwork bounds how many clients of one network may take part in a run: /24 of
	// IPv4, /48 of IPv6. Private networks, and keys that the run knows, are not bounded. Zero:
	// defaultSeatsPerNetwork. Negative: nothing is bounded.
	MaxSeatsPerNetwork int
	// MaxSeatsPerPrivateNetwork is the same for private networks and for this machine, from which
	// all clients come where there is a proxy before the server. Zero: they are not bounded.
	MaxSeatsPerPrivateNetwork int
	// ActionsPerSecond bounds the actions of one key in the long term; ten seconds' worth
	// may come at once. What is above has to wait. Zero: defaultActionsPerSecond.
	ActionsPerSecond float64
	// JoinsPerSecond bounds the joins to one run likewise, over all keys and in turns between
	// addresses: one that joins and leaves for ever makes the journal longer without any progress.
	// The same bound is on the naming of delegates. JoinsAtOnce is for the members of a run that
	// come together. Zero: defaultJoinsPerSecond, defaultJoinsAtOnce.
	JoinsPerSecond float64
	JoinsAtOnce    int
	// LogBytesPerSecond bounds what leaves of journals for those who audit them, and of Models,
	// over all connections, which share it by address. Zero: defaultLogBytes.
	LogBytesPerSecond float64
	// Key is the host's. Zero: the one of SaveStateDir, or a fresh one; see HostKey.
	Key identity.Key
	// Now returns the Unix time in milliseconds. Nil: the system's clock as it was at the
	// start, and from there on what really passed, so that setting the clock while the
	// server runs neither ends rounds early nor holds them up.
	Now func() uint64
	// Random is the source of keys, challenges and round seeds. Nil: the system's.
	Random io.Reader
	// Logger; nil: nothing is logged.
	Logger *slog.Logger

	// HTTPListen is the address of the HTTP server (see doc.go), host:port. Empty: none.
	HTTPListen string
	// Pages answers requests that the HTTP server itself does not know. May be nil.
	Pages http.Handler
	// Registry is where the server puts what /metrics shows. Nil: one of its own.
	Registry *prometheus.Registry
	// Collectors are shown by /metrics beside the server's own.
	Collectors []prometheus.Collector
	// Check says what keeps something that belongs to the server from working, for
	// /healthz. May be nil.
	Check func() error

	// Ready is called once, with the address, when clients can connect. May be nil.
	Ready func(net.Addr)
	// HTTPReady is called likewise with the address of the HTTP server. May be nil.
	HTTPReady func(net.Addr)
	// OnEvent is called for every event, one at a time; it must not wait. May be nil.
	OnEvent func(Event)
	// OnRun is called with the hash that names a run in everything that is signed, before the run's
	// first OnState. It must not wait. May be nil.
	OnRun func(runID string, run [32]byte)
	// OnState is called with a copy of every state that is pushed to clients, for each run
	// first the one at the start, one call at a time; it must not wait. May be nil.
	OnState func(*coordinator.State)
	// OnNames is called after OnState with what the clients of a run call themselves, when that is new. It must not
	// wait, and must not change them or keep them. May be nil.
	OnNames func(runID string, names core.Names)
}

// CreatePolicy says who may begin runs over the network. The zero value: nobody.
type CreatePolicy struct {
	Anyone bool
	Host   bool // the host's own key
	Keys   []identity.ID
}

// allows reports whether a key may begin runs on the server of a host.
func (p CreatePolicy) allows(id, host identity.ID) bool {
	return p.Anyone || p.Host && id == host || slices.Contains(p.Keys, id)
}

// setDefaults fills in what is zero.
func (o *Options) setDefaults() {
	o.WithdrawGrace = cmp.Or(o.WithdrawGrace, defaultWithdrawGrace)
	o.RestartGrace = max(cmp.Or(o.RestartGrace, defaultRestartGrace), o.WithdrawGrace)
	o.Beat = cmp.Or(o.Beat, defaultBeat)
	o.MaxStrangers = cmp.Or(o.MaxStrangers, defaultMaxStrangers)
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
	if o.Random == nil {
		o.Random = rand.Reader
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Registry == nil {
		o.Registry = prometheus.NewRegistry()
	}
}

// Run hosts runs until ctx ends or no run can go on. A run stops when its journal cannot be written,
// and waits when only the room for it is missing; other runs go on. The error says which runs
// stopped. Every goroutine that Run started has ended when it returns.
func Run(ctx context.Context, o Options) error {
	o.setDefaults()
	// Listen first: a second server on the same port and directory should hear of the port.
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

// Listen listens on a TCP address, and says what to do when that fails.
func Listen(ctx context.Context, address string) (net.Listener, error) {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, listenError(address, err)
	}
	return listener, nil
}

// listenError says what to do about an address that cannot be listened on.
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

// server is everything that runs have in common.
type server struct {
	options Options
	key     identity.Key
	tls     *tls.Config
	logger  *slog.Logger
	metrics *metrics

	unproven  *admission.Limiter // connections before their hello
	strangers *admission.Limiter // keys that may want to take part
	onlookers *admission.Limiter
	actions   *admission.KeyLimits
	egress    *admission.Budget // bytes of journals and models
	observers places
	catching  catching
	noise     *rate.Limiter // of log lines that strangers can cause

	watchers sync.Mutex // one OnEvent or OnState at a time

	mu      sync.Mutex
	runs    map[string]*host
	working *sync.WaitGroup // of serve; nil before and after
	ctx     context.Context // of serve
	fail    context.CancelCauseFunc
	failed  []error // of each run that cannot go on, why
}

// newServer loads the host's key and all runs. The caller closes what is returned, also
// after an error.
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
		unproven: admission.NewLimiter(), strangers: admission.NewLastingLimiter(o.MaxStrangers),
		onlookers: admission.NewLastingLimiter(o.MaxStrangers),
		actions:   admission.NewKeyLimits(o.ActionsPerSecond, burst(o.ActionsPerSecond)),
		egress:    admission.NewReservedBudget(o.LogBytesPerSecond, max(maxLogFrame, int(o.LogBytesPerSecond)), othersShare),
		catching:  newCatching(),
		noise:     rate.NewLimiter(10, 100), runs: make(map[string]*host),
	}
	s.metrics = newMetrics(s)
	return s, errors.Join(s.metrics.register(o.Collectors), s.openRuns())
}

func burst(perSecond float64) int { return max(1, int(perSecond*secondsOfBurst)) }

// serve lets the runs work and accepts connections until ctx ends or a run fails.
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

// close closes the journals. Nothing works on them any more.
func (s *server) close() error {
	var err error
	for _, h := range s.runs {
		err = errors.Join(err, h.store.close())
	}
	return err
}

// emit passes an event to OnEvent. Any goroutine may call it.
func (s *server) emit(e Event) {
	s.metrics.count(e)
	if s.options.OnEvent == nil {
		return
	}
	s.watchers.Lock()
	defer s.watchers.Unlock()
	s.options.OnEvent(e)
}

// show passes a state to OnState.
func (s *server) show(state *coordinator.State) {
	if s.options.OnState == nil {
		return
	}
	clone := state.Clone()
	s.watchers.Lock()
	defer s.watchers.Unlock()
	s.options.OnState(&clone)
}

// call passes names to OnNames.
func (s *server) call(runID string, names core.Names) {
	if s.options.OnNames == nil {
		return
	}
	s.watchers.Lock()
	defer s.watchers.Unlock()
	s.options.OnNames(runID, names)
}
