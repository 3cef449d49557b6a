package server

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"sync"
	"syscall"
	"time"

	"github.com/psyche-go/psyche/backend/tcp/frame"
	"github.com/psyche-go/psyche/coordinator"
)

// Defaults of Options.
const (
	DefaultWithdrawGrace  = 5 * time.Second
	DefaultTickInterval   = 100 * time.Millisecond
	DefaultMaxConnections = 512
)

// maxHandshakes bounds the connections that have not said yet who they are.
const maxHandshakes = 128

// Options of a server.
type Options struct {
	// Listen is the address to listen on, host:port. Port 0 lets the system choose.
	Listen string
	// Genesis returns the state a new run starts with, given the key of its host;
	// config.Run.CoordinatorState is one.
	Genesis func(host coordinator.ClientID) (coordinator.State, error)
	// SaveStateDir is where the host's key and the run's journal are kept. Empty: nothing
	// survives the process.
	SaveStateDir string
	// WithdrawGrace is how long a participant's connection may be gone before the host
	// withdraws it. Zero: DefaultWithdrawGrace. Negative: it never does.
	WithdrawGrace time.Duration
	// TickInterval is the time between two ticks. Zero: DefaultTickInterval.
	TickInterval time.Duration
	// MaxConnections bounds the connections at a time. Zero: DefaultMaxConnections.
	MaxConnections int
	// Now returns the Unix time in seconds. Nil: the system's clock.
	Now func() uint64
	// Random is the source of keys, challenges and round seeds. Nil: the system's.
	Random io.Reader
	// Logger; nil: nothing is logged.
	Logger *slog.Logger

	// Ready is called once, with the address, when clients can connect. May be nil.
	Ready func(net.Addr)
	// OnEvent is called for every event, one at a time; it must not wait. May be nil.
	OnEvent func(Event)
	// OnState is called with a copy of every state that is pushed to clients, first the one
	// at the start, from one goroutine; it must not wait. May be nil.
	OnState func(*coordinator.State)
}

// setDefaults fills in what is zero.
func (o *Options) setDefaults() {
	if o.WithdrawGrace == 0 {
		o.WithdrawGrace = DefaultWithdrawGrace
	}
	if o.TickInterval == 0 {
		o.TickInterval = DefaultTickInterval
	}
	if o.MaxConnections == 0 {
		o.MaxConnections = DefaultMaxConnections
	}
	if o.Now == nil {
		o.Now = func() uint64 { return uint64(max(0, time.Now().Unix())) }
	}
	if o.Random == nil {
		o.Random = rand.Reader
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
}

// Run hosts a run until ctx ends (then it returns nil) or the journal cannot be written.
// Every goroutine that it started has ended when it returns.
func Run(ctx context.Context, o Options) error {
	o.setDefaults()
	if o.Genesis == nil {
		return errors.New("server: Options.Genesis is not set")
	}
	// Listen first: a second server on the same port and directory should hear of the port.
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", o.Listen)
	if err != nil {
		return listenError(o.Listen, err)
	}
	defer func() { _ = listener.Close() }()
	stored, err := openStore(o.SaveStateDir, o.Genesis, o.Random, o.Logger)
	if err != nil {
		return err
	}
	h := newHost(o, stored)
	err = h.serve(ctx, listener)
	if stored.journal != nil {
		err = errors.Join(err, stored.journal.Close())
	}
	return err
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

// serve runs the host's loop and accepts connections until ctx ends or the loop fails.
func (h *host) serve(ctx context.Context, listener net.Listener) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var loopErr error
	var working sync.WaitGroup
	working.Go(func() {
		loopErr = h.loop(ctx)
		cancel()
	})
	stop := context.AfterFunc(ctx, func() { _ = listener.Close() })
	defer stop()
	h.logger.Info("server is listening", "address", listener.Addr().String(), "run", h.runID, "host", h.key.ID())
	if h.options.Ready != nil {
		h.options.Ready(listener.Addr())
	}
	connections := make(chan struct{}, h.options.MaxConnections)
	handshakes := make(chan struct{}, maxHandshakes)
	for ctx.Err() == nil {
		socket, err := listener.Accept()
		if err != nil {
			h.pauseAccepting(ctx, err)
			continue
		}
		if !acquire(connections) {
			h.turnAway(socket)
			continue
		}
		if !acquire(handshakes) {
			<-connections
			h.turnAway(socket)
			continue
		}
		working.Go(func() {
			defer func() { <-connections }()
			h.serveConnection(ctx, socket, func() { <-handshakes })
		})
	}
	working.Wait()
	return loopErr
}

// acquire takes a place if one is free.
func acquire(places chan struct{}) bool {
	select {
	case places <- struct{}{}:
		return true
	default:
		return false
	}
}

// pauseAccepting waits a moment after a failed Accept, for instance when the process has
// no file descriptor left.
func (h *host) pauseAccepting(ctx context.Context, err error) {
	if ctx.Err() != nil {
		return
	}
	h.logger.Error("accepting a connection failed", "error", err)
	timer := time.NewTimer(100 * time.Millisecond)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// turnAway hangs up on a connection that there is no place for. The few bytes fit into the
// socket's empty buffer, so this does not wait for the other side.
func (h *host) turnAway(socket net.Conn) {
	h.logger.Warn("turned a connection away: too many connections", "remote", socket.RemoteAddr().String())
	refusal := frame.Refusal{Code: frame.RefusedBusy, Reason: "the server has too many connections, try again later"}
	_ = socket.SetWriteDeadline(time.Now().Add(100 * time.Millisecond))
	_, _ = socket.Write(frame.Append(nil, frame.TypeRefusal, refusal.AppendTo(nil)))
	_ = socket.Close()
}
