package openai

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

// Time limits for answers after the server's context ends.
const (
	graceTimeout = 10 * time.Second
	cutTimeout   = 10 * time.Second
)

const maxConnections = 256 // not being answered

// Serve serves requests until ctx ends, and closes the listener. It then rejects waiting requests,
// and gives running answers some time before it aborts them. When Serve returns, the model is no
// longer in use. Call Serve at most once.
func (s *Server) Serve(ctx context.Context, listener net.Listener) error {
	base, cut := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cut(errClosing)
	var answering sync.WaitGroup
	web := &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			answering.Add(1)
			defer answering.Done()
			s.ServeHTTP(w, r)
		}),
		ReadHeaderTimeout: headerTime, IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeader,
		BaseContext: func(net.Listener) context.Context { return base },
		ConnContext: func(ctx context.Context, conn net.Conn) context.Context {
			return context.WithValue(ctx, visitorKey{}, conn)
		},
		ErrorLog: slog.NewLogLogger(s.logger.Handler(), slog.LevelDebug),
	}
	stopped := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(stopped)
		close(s.closing)
		if within(s.grace, web.Shutdown) == nil {
			return
		}
		cut(errClosing)
		if within(cutTimeout, web.Shutdown) != nil {
			_ = web.Close()
		}
	})
	err := web.Serve(limitedListener{listener, admission.NewLastingLimiter(maxConnections)})
	if stop() { // it ended by itself
		cut(errClosing)
		_ = web.Close()
	} else {
		<-stopped
	}
	answering.Wait()
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

func within(timeout time.Duration, do func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	return do(ctx)
}
