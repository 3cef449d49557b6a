package serve

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
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/core/assign"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/files/data"
	"github.com/psyche-go/psyche/files/data/remote/message"
	"github.com/psyche-go/psyche/files/data/tokens"
	"github.com/psyche-go/psyche/net/accept"
	"github.com/psyche-go/psyche/net/admission"
	"github.com/psyche-go/psyche/net/secure"
)

// Defaults of Options.
const (
	defaultRequestsPerSecond = 20
	defaultStateWait         = 2 * time.Second
	defaultIdleTimeout       = 10 * time.Minute
	defaultReadTimeout       = 30 * time.Second
	defaultHandshakeTimeout  = 5 * time.Second
	defaultWriteTimeout      = 10 * time.Second
)

// Maximum concurrent reads of the source: all reads, and reads for audits and fingerprints.
const (
	maxReads  = 16
	maxAudits = maxReads / 4
)

// Limits of the calls of Options.Answered about served requests of one key. Otherwise members could fill the disk
// with events.
const (
	reportedPerSecond = 1
	reportedAtOnce    = 1000
)

// Options are the settings of a Server. Zero values mean the defaults.
type Options struct {
	Key    identity.Key  // of the server, expected by clients
	RunID  string        // of the run whose members are served
	Source data.Provider // closed by the caller
	SeqLen int           // tokens of the source's sequences

	RequestsPerSecond float64       // of one key in the long term; bursts of ten seconds' worth are allowed
	StateWait         time.Duration // time to wait for a newer state that may allow a refused request
	IdleTimeout       time.Duration // for a connection without a request
	ReadTimeout       time.Duration // for one read of the source
	HandshakeTimeout  time.Duration // for a client to identify itself
	WriteTimeout      time.Duration // for 16 KiB of an answer

	Random io.Reader    // source of challenges; nil: the system's
	Logger *slog.Logger // nil: silent

	// Answered is called for served requests, at most once a second for each key in the long term, and for denied
	// requests if they are logged. It is called concurrently and must not block. May be nil.
	Answered func(Answer)
}

// Answer is the outcome of a request.
type Answer struct {
	To     identity.ID
	Kind   string         // "samples" or "fingerprint"
	Batch  assign.BatchID // the first interval of its sequences
	Bytes  int            // of the sent sequences
	Took   time.Duration
	Denied string // reason of a denial; empty: served
}

// Server serves one run's data. Its methods may be called concurrently.
type Server struct {
	options  Options
	tls      *tls.Config
	logger   *slog.Logger
	metrics  *metrics
	unproven *admission.Limiter
	limits   *admission.KeyLimits[identity.ID]
	noise    *rate.Limiter                     // limits log lines that clients can cause
	reported *admission.KeyLimits[identity.ID] // limits calls of Options.Answered
	reads    chan struct{}                     // contains a value for each read of the source
	audits   chan struct{}                     // contains a value for each read for an audit or a fingerprint
	turns    precedence                        // members that train a batch have precedence over members that audit one
	run      *run

	mu     sync.Mutex
	newest *coordinator.State // not yet followed; nil: none
	hash   [32]byte           // hash of the run
	wake   chan struct{}      // contains a value when newest is set
	live   map[identity.ID]*connection
	broken bool // the newest read of the source failed
}

// New returns a server, which Run starts.
func New(o Options) (*Server, error) {
	switch {
	case len(o.RunID) == 0 || len(o.RunID) > coordinator.MaxRunIDLength:
		return nil, fmt.Errorf("data server: run id %q: want 1 to %d bytes", o.RunID, coordinator.MaxRunIDLength)
	case o.SeqLen < 1 || o.SeqLen > tokens.MaxSeqLen:
		return nil, fmt.Errorf("data server: sequence length %d, want 1 to %d", o.SeqLen, tokens.MaxSeqLen)
	case o.Source.Len() == 0:
		return nil, errors.New("data server: no sequences to serve")
	}
	o.RequestsPerSecond = cmp.Or(o.RequestsPerSecond, defaultRequestsPerSecond)
	o.StateWait = cmp.Or(o.StateWait, defaultStateWait)
	o.IdleTimeout = cmp.Or(o.IdleTimeout, defaultIdleTimeout)
	o.ReadTimeout = cmp.Or(o.ReadTimeout, defaultReadTimeout)
	o.HandshakeTimeout = cmp.Or(o.HandshakeTimeout, defaultHandshakeTimeout)
	o.WriteTimeout = cmp.Or(o.WriteTimeout, defaultWriteTimeout)
	o.Random = cmp.Or(o.Random, rand.Reader)
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	config, err := secure.ServerConfig(o.Key)
	if err != nil {
		return nil, err
	}
	s := &Server{
		options: o, tls: config, logger: o.Logger.With("run", o.RunID),
		unproven: admission.NewLimiter(),
		limits:   admission.NewKeyLimits[identity.ID](o.RequestsPerSecond, max(1, int(10*o.RequestsPerSecond))),
		reported: admission.NewKeyLimits[identity.ID](reportedPerSecond, reportedAtOnce),
		noise:    rate.NewLimiter(10, 100), reads: make(chan struct{}, maxReads), audits: make(chan struct{}, maxAudits),
		run: newRun(), wake: make(chan struct{}, 1), live: make(map[identity.ID]*connection),
	}
	s.metrics = newMetrics(s.connected)
	return s, nil
}

// Update gives the server a newer state of the run, with the run's hash. It does not block. It
// keeps the state, which the caller must not change. It ignores states of other runs.
func (s *Server) Update(state *coordinator.State, run [32]byte) {
	if state.RunID != s.options.RunID {
		return
	}
	s.mu.Lock()
	s.newest, s.hash = state, run
	s.mu.Unlock()
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// errUnreadable contains no details, because health checks are public.
var errUnreadable = errors.New("the data cannot be read; see the server's log")

// Check returns an error if the server cannot serve. It is for health checks.
func (s *Server) Check() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.broken {
		return errUnreadable
	}
	return nil
}

func (s *Server) connected() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.live)
}

// Run serves until ctx ends, and closes the listener. All goroutines that it started have ended
// when it returns.
func (s *Server) Run(ctx context.Context, listener net.Listener) {
	var working sync.WaitGroup
	defer working.Wait()
	working.Go(func() { s.follow(ctx) })
	s.logger.Info("serving data", "data", listener.Addr().String(), "key", s.options.Key.ID(),
		"sequences", s.options.Source.Len(), "seq_len", s.options.SeqLen)
	acceptor := accept.Acceptor{
		Limiter: s.unproven, Logger: s.logger, Noise: s.noise, Serve: s.serve,
		TurnedAway: func() { s.metrics.connections.WithLabelValues("turned away").Inc() },
	}
	acceptor.Accept(ctx, listener, &working)
}

// follow processes the states passed to Update.
func (s *Server) follow(ctx context.Context) {
	for {
		select {
		case <-s.wake:
		case <-ctx.Done():
			return
		}
		s.mu.Lock()
		state, hash := s.newest, s.hash
		s.mu.Unlock()
		s.run.follow(state, hash)
		s.dismiss()
	}
}

// dismiss closes connections of keys that no longer belong to the run.
func (s *Server) dismiss() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, c := range s.live {
		if !s.run.isPart(coordinator.ClientID(id)) {
			c.hangUp(refuse(message.NotMember, "the key is no longer part of the run"))
		}
	}
}

// enter makes c the connection of its key.
func (s *Server) enter(c *connection) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if old := s.live[c.id]; old != nil {
		old.hangUp(refuse(message.Replaced, "the key connected again; use a separate key for each client"))
	}
	s.live[c.id] = c
}

// leave forgets a connection.
func (s *Server) leave(c *connection) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.live[c.id] == c {
		delete(s.live, c.id)
	}
}
