package server

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/psyche-go/psyche/net/admission"
)

// Limits of the HTTP server.
const (
	maxWebConnections = 64 // shared between addresses
	maxWebProbes      = 32 // additional connections, for quick requests of healthPath only
	maxWebHeader      = 8 << 10
	webTimeout        = 10 * time.Second // for a request, and for its answer
)

// healthPath is served even at the connection limit. A supervisor whose check fails considers the
// server dead and may restart it.
const healthPath = "/healthz"

// ServeHTTP serves requests with handler until ctx ends, and closes the listener. Its limits suit a
// small public server.
func ServeHTTP(ctx context.Context, listener net.Listener, handler http.Handler, logger *slog.Logger) {
	web := &http.Server{
		Handler:           probed(handler),
		ReadHeaderTimeout: webTimeout, ReadTimeout: webTimeout, WriteTimeout: webTimeout, IdleTimeout: webTimeout,
		MaxHeaderBytes: maxWebHeader,
		ConnContext: func(ctx context.Context, conn net.Conn) context.Context {
			return context.WithValue(ctx, probing{}, conn.(*boundedConn).probes)
		},
		ErrorLog: slog.NewLogLogger(logger.Handler(), slog.LevelDebug),
	}
	stopped := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(stopped)
		grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
		defer cancel()
		if web.Shutdown(grace) != nil {
			_ = web.Close()
		}
	})
	err := web.Serve(&boundedListener{
		Listener: listener, slots: admission.NewLastingLimiter(maxWebConnections), probes: admission.NewBriefLimiter(maxWebProbes),
	})
	if !errors.Is(err, http.ErrServerClosed) {
		logger.Error("the HTTP server ended", "error", err)
	}
	if !stop() {
		<-stopped
	}
}

// probing is the context key of requests without a regular connection slot.
type probing struct{}

// probed answers requests without a regular connection slot only if they are for healthPath.
func probed(handler http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if probes, _ := r.Context().Value(probing{}).(bool); probes {
			w.Header().Set("Connection", "close")
			if r.URL.Path != healthPath {
				http.Error(w, "too many connections", http.StatusServiceUnavailable)
				return
			}
		}
		handler.ServeHTTP(w, r)
	})
}

// boundedListener limits the open connections, and the connections per address while other
// addresses wait.
type boundedListener struct {
	net.Listener
	slots, probes *admission.Limiter
}

// Accept implements net.Listener.
func (l *boundedListener) Accept() (net.Conn, error) {
	for {
		socket, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		evict := func() { _ = socket.Close() }
		c := &boundedConn{Conn: socket, limiter: l.slots}
		if c.slot = l.slots.Enter(socket.RemoteAddr(), evict); c.slot == nil {
			c.limiter, c.probes = l.probes, true
			c.slot = l.probes.Enter(socket.RemoteAddr(), evict)
		}
		if c.slot != nil {
			return c, nil
		}
		_ = socket.Close()
	}
}

// boundedConn releases its slot at the first Close.
type boundedConn struct {
	net.Conn
	limiter *admission.Limiter
	slot    *admission.Slot
	probes  bool
	once    sync.Once
}

// Read implements net.Conn.
func (c *boundedConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if n > 0 {
		c.slot.Spoke()
	}
	return n, err
}

// Close implements net.Conn.
func (c *boundedConn) Close() error {
	c.once.Do(func() { c.limiter.Leave(c.slot) })
	return c.Conn.Close()
}
