package server

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/host/tcp"
	"github.com/psyche-go/psyche/net/frame"
	"github.com/psyche-go/psyche/net/secure"
)

// Flags of TestLoadOfLog. `make load` sets them for a full-size run.
var (
	loadObservers  = flag.Int("load.observers", 48, "slow observers of TestLoadOfLog")
	loadMembers    = flag.Int("load.members", 8, "members of TestLoadOfLog")
	loadLogRounds  = flag.Int("load.logrounds", 250, "rounds of the log in TestLoadOfLog")
	loadObserverIO = 70 << 10 // bytes per second that a slow observer reads
)

// logLoad is a server over TCP with slow observers and the members of a run.
type logLoad struct {
	t       *testing.T
	dir     string
	h       *history
	address string
	stop    func()

	withdrawn atomic.Int64
	asked     atomic.Int64 // connections of observers that requested the log
	cut       atomic.Int64
}

// serve starts the server. If bare is true, it has no certificates, so clients read the whole log.
func (l *logLoad) serve(bare bool, withdrawGrace time.Duration) {
	l.t.Helper()
	path, kept := certificatesPath(l.dir, joinRun), l.dir+".certs"
	from, to := kept, path
	if bare {
		from, to = path, kept
	}
	if err := os.Rename(from, to); err != nil && !errors.Is(err, os.ErrNotExist) {
		l.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended, ready := make(chan error, 1), make(chan net.Addr, 1)
	o := Options{
		Listen: l.address, SaveStateDir: l.dir, WithdrawGrace: withdrawGrace,
		Now: func() uint64 { return l.h.now },
	}
	o.MaxUnknown = *loadObservers + 100
	o.Ready = func(a net.Addr) { ready <- a }
	o.OnEvent = func(e Event) {
		if e.Kind == EventAccepted && e.Action == "Withdraw" {
			l.withdrawn.Add(1)
		}
	}
	go func() { ended <- Run(ctx, o) }()
	select {
	case a := <-ready:
		l.address = a.String()
	case err := <-ended:
		cancel()
		l.t.Fatal(err)
	}
	l.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			l.t.Error(err)
		}
	})
}

// catchUp returns the time in which a member without a log receives it.
func (l *logLoad) catchUp(ctx context.Context, key identity.Key) time.Duration {
	l.t.Helper()
	began := time.Now()
	c, err := tcp.Dial(ctx, tcp.Options{Addr: l.address, RunID: joinRun, Key: key})
	if err != nil {
		l.t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	select {
	case u := <-c.Updates():
		if u.State == nil {
			l.t.Fatal(c.Err())
		}
	case <-ctx.Done():
		l.t.Fatal(context.Cause(ctx))
	}
	return time.Since(began)
}

// observer follows the log slowly, and reconnects after a disconnection.
func (l *logLoad) observer(ctx context.Context, n int) {
	for life := 0; ctx.Err() == nil; life++ {
		if l.observe(ctx, identity.FromSeed([identity.SeedSize]byte{byte(n), byte(n >> 8), byte(life), byte(life >> 8), 98})) {
			l.cut.Add(1)
		}
		select {
		case <-time.After(200 * time.Millisecond):
		case <-ctx.Done():
		}
	}
}

func (l *logLoad) observe(ctx context.Context, key identity.Key) (asked bool) {
	d := net.Dialer{Control: func(_, _ string, c syscall.RawConn) error {
		return c.Control(func(fd uintptr) { _ = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUF, 32<<10) })
	}}
	socket, err := d.DialContext(ctx, "tcp", l.address)
	if err != nil {
		return false
	}
	defer context.AfterFunc(ctx, func() { _ = socket.Close() })()
	defer func() { _ = socket.Close() }()
	var host identity.ID
	c := secure.Client(socket, func(found identity.ID) error { host = found; return nil })
	r := frame.NewReader(c)
	_, payload, err := r.Next(frame.MaxWelcome)
	if err != nil {
		return false
	}
	challenge, err := frame.DecodeChallenge(payload)
	if err != nil {
		return false
	}
	hello := frame.Hello{Role: frame.RoleObserver, RunID: joinRun}.Sign(nil, key, challenge.Nonce, host)
	if _, err := c.Write(frame.Append(nil, frame.TypeHello, hello)); err != nil {
		return false
	}
	if kind, _, err := r.Next(frame.MaxWelcome); err != nil || kind != frame.TypeWelcome {
		return false
	}
	if _, err := c.Write(frame.Append(nil, frame.TypeFollow, frame.Follow{Index: 2}.AppendTo(nil))); err != nil {
		return false
	}
	l.asked.Add(1)
	pong := time.Now()
	for piece := make([]byte, 8<<10); ; {
		n, err := c.Read(piece)
		if err != nil {
			return true
		}
		time.Sleep(time.Duration(n) * time.Second / time.Duration(loadObserverIO)) // of the kernel's clock
		if time.Since(pong) > frame.PingInterval {
			pong = time.Now()
			if _, err := c.Write(frame.Append(nil, frame.TypePong, nil)); err != nil {
				return true
			}
		}
	}
}

// TestLoadOfLog measures how long a member that lost its log needs to receive it again: from an
// idle server, while slow observers read the log, and after a restart of the server, when all
// observers and members reconnect at the same time.
func TestLoadOfLog(t *testing.T) {
	l := &logLoad{t: t, dir: t.TempDir(), address: "127.0.0.1:0"}
	l.h = makeHistory(t, l.dir, *loadMembers, *loadLogRounds)
	size := l.h.store.journal.Size()
	if err := l.h.store.close(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 9*time.Minute)
	defer cancel()
	l.serve(true, -1)
	defer func() { l.stop() }()
	alone := l.catchUp(ctx, l.h.keys[0])
	t.Logf("journal of %.1f MiB: a member has the log after %v", float64(size)/(1<<20), alone.Round(time.Millisecond))

	var observing sync.WaitGroup
	defer observing.Wait()
	defer cancel()
	for n := range *loadObservers {
		observing.Go(func() { l.observer(ctx, n) })
	}
	l.awaitObservers(ctx, int64(*loadObservers))
	crowded := l.catchUp(ctx, l.h.keys[0])
	t.Logf("with %d slow observers: after %v, %.2f times", *loadObservers, crowded.Round(time.Millisecond), crowded.Seconds()/alone.Seconds())

	began := time.Now()
	l.stop()
	l.serve(false, -1)
	clients := l.connectMembers(ctx)
	l.stop()
	for _, c := range clients { // discard updates of the first server
		select {
		case <-c.Updates():
		default:
		}
	}
	l.asked.Store(0)
	t.Logf("connecting %d members took %v", len(clients), time.Since(began).Round(time.Second))
	began = time.Now()
	l.serve(true, 0) // default grace period
	var back sync.WaitGroup
	times := make([]time.Duration, len(clients))
	for i, c := range clients {
		back.Go(func() {
			times[i] = awaitUpdate(ctx, t, c, began)
		})
	}
	lost := l.catchUp(ctx, l.h.keys[0])
	back.Wait()
	t.Logf("restart with %d members and %d observers: all have the log after %v, one that lost its log after %v; %d observers came back; %d members were withdrawn",
		*loadMembers, *loadObservers, slices.Max(times).Round(time.Millisecond), lost.Round(time.Millisecond), l.asked.Load(), l.withdrawn.Load())
	if n := l.withdrawn.Load(); n > 0 {
		t.Errorf("%d members were withdrawn", n)
	}
	// Other work on the machine increases all these times. Check only that observers do not prevent
	// members from receiving the log.
	if worst := max(crowded, lost); worst > 10*alone+20*time.Second {
		t.Errorf("a member waited %v, but %v without observers", worst, alone)
	}
	for _, c := range clients {
		_ = c.Close()
	}
}

// connectMembers connects all members except the first.
func (l *logLoad) connectMembers(ctx context.Context) (clients []*tcp.Client) {
	l.t.Helper()
	for _, key := range l.h.keys[1:] {
		c, err := tcp.Dial(ctx, tcp.Options{Addr: l.address, RunID: joinRun, Key: key})
		if err != nil {
			l.t.Fatal(err)
		}
		clients = append(clients, c)
	}
	for _, c := range clients {
		select {
		case <-c.Updates():
		case <-ctx.Done():
			l.t.Fatal(context.Cause(ctx))
		}
	}
	return clients
}

func awaitUpdate(ctx context.Context, t *testing.T, c *tcp.Client, since time.Time) time.Duration {
	select {
	case u := <-c.Updates():
		if u.State == nil || u.State.RunState == coordinator.Finished {
			t.Errorf("no state: %v", c.Err())
		}
	case <-ctx.Done():
		t.Error(fmt.Errorf("no state: %w", context.Cause(ctx)))
	}
	return time.Since(since)
}

func (l *logLoad) awaitObservers(ctx context.Context, n int64) {
	l.t.Helper()
	for l.asked.Load() < n {
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			l.t.Fatalf("%d observers follow the log, want %d", l.asked.Load(), n)
		}
	}
}
