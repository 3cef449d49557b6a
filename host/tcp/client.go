package tcp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cenkalti/backoff/v5"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/base/release"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/net/frame"
	"github.com/psyche-go/psyche/net/secure"
	"github.com/psyche-go/psyche/record/backend"
	"github.com/psyche-go/psyche/record/follow"
	"github.com/psyche-go/psyche/record/wire"
)

// Defaults of Options.
const (
	DefaultMaxElapsed      = 30 * time.Second
	defaultInitialInterval = 200 * time.Millisecond
	// defaultMaxInterval plus its random jitter of up to one half is at most frame.LongestPause.
	defaultMaxInterval = frame.LongestPause * 2 / 3
)

// Options configure a Client.
type Options struct {
	Addr  string       // server address, host:port
	RunID string       // run id
	Run   [32]byte     // hash of the run; zero accepts the first run with RunID that the server presents
	Key   identity.Key // key of the participant
	Addrs []string     // peer-to-peer addresses of the participant, as in Announce

	// Observe is set by clients that watch or administer a run and do not train. Such a client can
	// connect while a participant with the same key is connected.
	Observe bool

	// Version is the program's version. Dial returns release.ErrOutdated if the host requires a newer one. If
	// empty, Dial does not check the version.
	Version string

	// ServerKey is the expected key of the server. If zero, KnownServers decides.
	ServerKey identity.ID
	// KnownServers stores the keys of known servers. If it is nil and ServerKey is zero, the client
	// trusts the first key that it sees, for the lifetime of the Client.
	KnownServers *secure.KnownServers

	// MaxAttempts limits the attempts of Dial. Zero means no limit.
	MaxAttempts uint
	// MaxElapsed limits the total time of Dial's attempts. Zero means DefaultMaxElapsed.
	MaxElapsed time.Duration
	// ReconnectTimeout limits the time for a later reconnection. Zero means no limit.
	ReconnectTimeout time.Duration
	// InitialInterval and MaxInterval bound the pauses between attempts. A pause is half longer
	// than the previous one, with random jitter of up to half its length. Zero means the default.
	InitialInterval, MaxInterval time.Duration
	// Logger receives log messages. If nil, nothing is logged.
	Logger *slog.Logger
}

// ErrRefused means that the server refused the client permanently. The error text contains the
// reason.
var ErrRefused = errors.New("the server refused the client")

// ErrUntrusted means that the server did not prove the expected key.
var ErrUntrusted = errors.New("the server is not trusted")

// ErrUnreachable means that all attempts to connect failed.
var ErrUnreachable = errors.New("the server cannot be reached")

// Client implements the contract of package backend over TCP.
type Client struct {
	options Options
	logger  *slog.Logger
	ctx     context.Context
	cancel  context.CancelFunc
	updates chan backend.Update
	running sync.WaitGroup

	sent, received atomic.Uint64 // over all connections

	// sending keeps nonces in the order of the frames. It is locked before mu.
	sending sync.Mutex

	mu      sync.Mutex
	addrs   []string
	nonce   uint64
	host    identity.ID // key of the server; zero before the first connection
	run     [32]byte    // hash of the run; zero before the first connection unless Options.Run is set
	session *session    // nil while disconnected
	closed  bool
	err     error
}

// Dial connects to the server and waits until the server accepts the client. It retries temporary
// failures with growing pauses. The error of a failed Dial lists its attempts. ctx limits the life
// of the Client, not only Dial. Close ends the Client earlier.
func Dial(ctx context.Context, o Options) (*Client, error) {
	if err := o.checkRun(); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	c := &Client{
		options: o,
		logger:  o.Logger.With("server", o.Addr, "run", o.RunID),
		ctx:     ctx, cancel: cancel,
		updates: make(chan backend.Update, 1),
		addrs:   slices.Clone(o.Addrs),
		nonce:   uint64(max(0, time.Now().UnixNano())),
		run:     o.Run,
	}
	first, err := c.connect(o.MaxAttempts, o.MaxElapsed)
	if err != nil {
		cancel()
		return nil, err
	}
	c.begin(first)
	c.running.Go(func() { c.live(first) })
	return c, nil
}

// check sets defaults and validates the options.
func (o *Options) check() error {
	o.MaxElapsed = cmp.Or(o.MaxElapsed, DefaultMaxElapsed)
	o.InitialInterval = cmp.Or(o.InitialInterval, defaultInitialInterval)
	o.MaxInterval = cmp.Or(o.MaxInterval, defaultMaxInterval)
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	if _, _, err := net.SplitHostPort(o.Addr); err != nil {
		return fmt.Errorf("server address %q: want host:port: %w", o.Addr, err)
	}
	return backend.CheckAddrs(o.Addrs)
}

// checkRun validates the options of a client that needs a specific run.
func (o *Options) checkRun() error {
	if len(o.RunID) == 0 || len(o.RunID) > coordinator.MaxRunIDLength {
		return fmt.Errorf("run id %q: want 1 to %d bytes", o.RunID, coordinator.MaxRunIDLength)
	}
	return o.check()
}

// pauses returns the schedule of pauses between attempts.
func (o *Options) pauses() *backoff.ExponentialBackOff {
	policy := backoff.NewExponentialBackOff()
	policy.InitialInterval, policy.MaxInterval = o.InitialInterval, o.MaxInterval
	return policy
}

// connect makes a session. It retries until it reaches one of the limits.
func (c *Client) connect(maxAttempts uint, maxElapsed time.Duration) (*session, error) {
	policy := c.options.pauses()
	start, attempts := time.Now(), 0
	established, err := backoff.Retry(c.ctx, func() (*session, error) {
		attempts++
		return c.attempt()
	},
		backoff.WithBackOff(policy), backoff.WithMaxTries(maxAttempts), backoff.WithMaxElapsedTime(maxElapsed),
		backoff.WithNotify(func(err error, pause time.Duration) {
			c.logger.Warn("cannot connect to the server, trying again", "error", err, "pause", pause.Round(time.Millisecond))
		}))
	switch {
	case err == nil:
		return established, nil
	case c.ctx.Err() != nil:
		return nil, fmt.Errorf("connect to server %s: %w", c.options.Addr, context.Cause(c.ctx))
	case isPermanent(err):
		return nil, fmt.Errorf("connect to server %s: %w", c.options.Addr, err)
	default:
		return nil, fmt.Errorf("connect to server %s: %w: gave up after %d attempts in %s; check that the server runs and that the address and port are right: %w",
			c.options.Addr, ErrUnreachable, attempts, time.Since(start).Round(100*time.Millisecond), err)
	}
}

// attempt makes one connection and does the handshake.
func (c *Client) attempt() (*session, error) {
	c.mu.Lock()
	addrs, run := c.addrs, c.run
	c.mu.Unlock()
	dialer := net.Dialer{Timeout: frame.HandshakeTimeout}
	socket, err := dialer.DialContext(c.ctx, "tcp", c.options.Addr)
	if err != nil {
		return nil, err
	}
	role := frame.RoleParticipant
	if c.options.Observe {
		role = frame.RoleObserver
	}
	s, err := handshake(c.ctx, counted{socket, &c.sent, &c.received}, c.accept, c.options.Key, frame.Hello{Role: role, RunID: c.options.RunID, Run: run, Addrs: addrs})
	if err == nil {
		err = s.requires.Admit(c.options.Version)
	}
	if err != nil {
		_ = socket.Close()
		if isPermanent(err) {
			err = backoff.Permanent(err)
		}
		return nil, err
	}
	c.mu.Lock()
	c.run = s.run
	c.mu.Unlock()
	return s, nil
}

// accept returns an error unless the client trusts the key that a server has proved.
func (c *Client) accept(found identity.ID) error {
	check := c.trust()
	if err := check(found); err != nil {
		return fmt.Errorf("%w: %w", ErrUntrusted, err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.host = found
	return nil
}

func (c *Client) trust() func(identity.ID) error {
	if c.options.ServerKey != (identity.ID{}) {
		return secure.Pin(c.options.ServerKey)
	}
	if c.options.KnownServers != nil {
		return c.options.KnownServers.Check(c.options.Addr)
	}
	if host := c.Host(); host != (identity.ID{}) {
		return secure.Pin(host)
	}
	return func(identity.ID) error { return nil }
}

// isPermanent reports whether every further attempt would fail the same way.
func isPermanent(err error) bool {
	return errors.Is(err, ErrRefused) || errors.Is(err, release.ErrOutdated) || errors.Is(err, follow.ErrGenesis) || errors.Is(err, ErrUntrusted) || errors.Is(err, backend.ErrWrongRun) || errors.Is(err, backend.ErrDuplicateKey)
}

// live keeps the client connected, starting with session s, until the client ends.
func (c *Client) live(s *session) {
	defer close(c.updates)
	var book addressBook
	t, err := c.begins(s)
	if err != nil {
		c.dropSession(s)
		c.end(err)
		return
	}
	for {
		book.restart()
		err := s.read(c.ctx, t, func(state *coordinator.State, peers []backend.Peer) {
			c.raiseNonce(state)
			u := backend.Update{State: state, Peers: book.merge(state, peers), Run: s.run, Genesis: s.genesis.Raw}
			if t != nil {
				u.Starts = slices.Clone(t.starts)
			}
			c.publish(u)
		})
		c.dropSession(s)
		if c.ctx.Err() != nil {
			c.end(context.Cause(c.ctx))
			return
		}
		if fault := t.faultBehind(err); fault != nil {
			c.end(fault)
			return
		}
		c.logger.Warn("lost the connection to the server", "error", err)
		if s, err = c.connect(0, c.options.ReconnectTimeout); err != nil {
			if fault := t.faultBehind(err); fault != nil {
				err = fault
			}
			c.end(err)
			return
		}
		c.begin(s)
		c.logger.Info("connected to the server again")
	}
}

// begins returns the client's position in the log; nil for a spectator.
func (c *Client) begins(s *session) (*logCursor, error) {
	if c.options.Observe {
		return nil, nil
	}
	return beginLog(s.genesis)
}

// begin makes s the session that Submit uses. It sends addresses that were announced during the
// connection setup.
func (c *Client) begin(s *session) {
	c.sending.Lock()
	defer c.sending.Unlock()
	c.mu.Lock()
	c.session = s
	addrs := c.addrs
	c.mu.Unlock()
	if !slices.Equal(addrs, s.announced) {
		// The next read reports a failure.
		_ = s.announce(c.options, addrs)
	}
}

// dropSession ends a session and fails all submissions that wait for its answers.
func (c *Client) dropSession(s *session) {
	c.mu.Lock()
	c.session = nil
	c.mu.Unlock()
	s.end()
}

// end records why the client ended.
func (c *Client) end(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.closed {
		c.err = err
	}
	c.closed = true
	c.cancel()
}

// publish replaces the update that the reader has not taken yet. Only the goroutine of live calls
// it.
func (c *Client) publish(u backend.Update) {
	select {
	case <-c.updates:
	default:
	}
	c.updates <- u
}

// raiseNonce sets the next nonce above the newest accepted nonce.
func (c *Client) raiseNonce(state *coordinator.State) {
	id := coordinator.ClientID(c.options.Key.ID())
	c.mu.Lock()
	defer c.mu.Unlock()
	if id == state.Authority.Main {
		c.nonce = max(c.nonce, state.Authority.MainNonce)
	}
	if id == state.Authority.Join {
		c.nonce = max(c.nonce, state.Authority.JoinNonce)
	}
	if own, ok := state.Authority.Authorization(id); ok {
		c.nonce = max(c.nonce, own.Nonce)
	}
	for _, clients := range [][]coordinator.Client{state.Epoch.Clients, state.Epoch.Exited, state.Pending, state.Departed} {
		for i := range clients {
			if clients[i].ID == id {
				c.nonce = max(c.nonce, clients[i].Nonce)
			}
		}
	}
}

// Host returns the key of the server.
func (c *Client) Host() identity.ID {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.host
}

// Run returns the hash that identifies the run in all signed messages.
func (c *Client) Run() [32]byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.run
}

// Bytes returns the bytes sent and received over all connections of the client.
func (c *Client) Bytes() (sent, received uint64) { return c.sent.Load(), c.received.Load() }

// Updates returns the channel of states; see package backend.
func (c *Client) Updates() <-chan backend.Update { return c.updates }

// Submit sends an action and waits for the server's answer; see package backend.
func (c *Client) Submit(ctx context.Context, a coordinator.Action) error {
	s, request, answer, err := c.send(a)
	if err == nil {
		select {
		case refused, ok := <-answer:
			if err = refused; !ok {
				err = backend.ErrDisconnected
			}
		case <-ctx.Done():
			s.forget(request)
			err = context.Cause(ctx)
		}
	}
	if err != nil {
		return fmt.Errorf("submit %s: %w", follow.ActionName(a), err)
	}
	return nil
}

// send signs an action and sends it over the current session.
func (c *Client) send(a coordinator.Action) (*session, uint64, <-chan error, error) {
	c.sending.Lock()
	defer c.sending.Unlock()
	c.mu.Lock()
	s, closed := c.session, c.closed
	c.nonce++
	nonce := c.nonce
	c.mu.Unlock()
	switch {
	case closed:
		return nil, 0, nil, backend.ErrClosed
	case s == nil:
		return nil, 0, nil, backend.ErrDisconnected
	}
	request, answer, err := s.submit(wire.SignAction(c.options.Key, s.run, nonce, a))
	return s, request, answer, err
}

// Announce sets the participant's peer-to-peer addresses; see package backend. The client sends
// them now if it is connected, and again on every new connection.
func (c *Client) Announce(_ context.Context, addrs []string) error {
	if err := backend.CheckAddrs(addrs); err != nil {
		return fmt.Errorf("announce: %w", err)
	}
	c.sending.Lock()
	defer c.sending.Unlock()
	c.mu.Lock()
	s, closed := c.session, c.closed
	c.addrs = slices.Clone(addrs)
	c.mu.Unlock()
	switch {
	case closed:
		return fmt.Errorf("announce: %w", backend.ErrClosed)
	case s == nil:
		return nil
	}
	// If this fails, the client reconnects and sends the addresses again.
	_ = s.announce(c.options, addrs)
	return nil
}

// Err returns why Updates was closed: nil after Close.
func (c *Client) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// Close ends the client and waits for its goroutines.
func (c *Client) Close() error {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.cancel()
	c.running.Wait()
	return nil
}
